import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { openCell, rowsOf } from "../parts/cell";
import { Cost } from "../parts/cost";
import { Stop } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { Few, InLibrary, SpanLink, useSearch } from "../parts/spans";
import { go, link, route } from "../route";
import { Run, of } from "../run";
import { count, counted, firstWords } from "../format";
import { asFailure, current, library } from "../state";
import type { Cell, Estimate, Problem, Row } from "../types";
import { download } from "./ask";
import { Head } from "./library";

// Outside the view, so that the table survives a change of views.
const columns = signal("");
const estimate = signal<Estimate | null>(null);
const names = signal<string[]>([]); // of the columns, before the first row is there
const problem = signal<Problem | null>(null);
const run = signal<Run | null>(null);

const fail = (error: unknown) => (problem.value = asFailure(error).problem);

async function ask(): Promise<void> {
  problem.value = estimate.value = null;
  try {
    const found = await api.estimate(library.value, columns.value);
    if (found.documents) estimate.value = found;
    else start(found); // all of it was filled before
  } catch (error) {
    fail(error);
  }
}

function start(found: Estimate): void {
  go(link("table"));
  run.value?.cancel();
  estimate.value = null;
  names.value = found.columns;
  run.value = new Run(library.value, columns.value, "table");
  void run.value.fill();
}

async function open(id: string): Promise<void> {
  try {
    const info = await api.runById(id);
    run.value?.cancel();
    names.value = [];
    columns.value = info.question;
    run.value = new Run(info.library ?? library.value, info.question, "table");
    await run.value.open(id, info);
  } catch (error) {
    fail(error);
  }
}

export function TableView() {
  const now = run.value;
  const id = route.value.parts[0];
  const ended = now && !now.busy.value && now.id;
  useEffect(() => {
    if (id && run.value?.id !== id) void open(id);
  }, [id]);
  useEffect(() => {
    if (ended) history.replaceState(null, "", link("table", [ended]));
  }, [ended]);
  return (
    <div class="table-view">
      <h1>Table</h1>
      <p class="quiet">
        A row for each document of the library, a column for each thing to look up. Each cell leads
        to its place in the document.
      </p>
      <ColumnsForm />
      {problem.value && <ProblemNote problem={problem.value} />}
      {now && <Filling run={now} />}
    </div>
  );
}

function ColumnsForm() {
  const found = estimate.value;
  const begin = useRef<HTMLButtonElement>(null);
  useEffect(() => begin.current?.focus(), [found]);
  return (
    <form
      class="question"
      onSubmit={(event) => {
        event.preventDefault();
        void ask();
      }}
    >
      <label class="unseen" for="columns">
        Columns
      </label>
      <textarea
        id="columns"
        rows={2}
        aria-describedby="columns-help"
        value={columns.value}
        placeholder="annual rent: money; ends on: date; governing law; parties: list"
        onInput={(event) => {
          columns.value = event.currentTarget.value;
          estimate.value = null;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            if (columns.value.trim()) void ask();
          }
        }}
      />
      <div class="row">
        <small id="columns-help" class="grow">
          Semicolons between columns. After a colon: text, number, money, date, yes/no, list, or
          choices such as open|closed.
        </small>
        <button class="primary" disabled={!columns.value.trim() || !current.value?.documents}>
          Fill the table
        </button>
      </div>
      {found && (
        <div class="row estimate">
          <p role="status">
            {counted(found.documents, "document")} to read: about {counted(found.calls, "call")} and{" "}
            {counted(found.tokens, "token")}.
          </p>
          <button type="button" class="primary" ref={begin} onClick={() => start(found)}>
            Start
          </button>
          <button type="button" onClick={() => (estimate.value = null)}>
            Cancel
          </button>
        </div>
      )}
    </form>
  );
}

const ENDS: Record<string, string> = {
  queued: "It waits for its turn.",
  cancelled: "It was stopped. What is filled is kept: fill the table again to go on.",
};

/** A table as it is filled, and what can be done with it. */
function Filling({ run }: { run: Run }) {
  const progress = of(run.events.value, "progressed").findLast((each) => each.phase === "filling");
  const busy = run.busy.value;
  return (
    <InLibrary.Provider value={run.library}>
      <section class="filling" aria-label="The table" aria-busy={busy}>
        {busy && (
          <div class="row">
            <label class="progress grow">
              <span>
                {progress
                  ? `${count(progress.done)} of ${counted(progress.total, "document")}`
                  : "Starting"}
              </span>
              <progress value={progress?.done} max={progress?.total || 1} />
            </label>
            <button type="button" onClick={() => run.cancel()}>
              <Stop /> Stop
            </button>
          </div>
        )}
        <Cost run={run} />
        {run.problem.value && <ProblemNote problem={run.problem.value} />}
        <p class="quiet" role="status">
          {ENDS[run.state.value]}
          {run.table.value && summary(run.table.value.rows)}
        </p>
        {run.table.value && run.table.value.warnings.length > 0 && (
          <ul class="warnings">
            {run.table.value.warnings.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        )}
        <Grid run={run} />
        {run.table.value && <Downloads run={run} />}
      </section>
    </InLibrary.Provider>
  );
}

const cellsOf = (row: Row): Cell[] => Object.values(row.cells);
const doubts = (row: Row): number => cellsOf(row).filter((cell) => cell.doubt).length;

function summary(rows: readonly Row[]): string {
  const cells = rows.flatMap(cellsOf);
  const filled = cells.filter((cell) => cell.values.length && !cell.reason).length;
  const doubtful = cells.filter((cell) => cell.doubt).length;
  return `${count(filled)} of ${counted(cells.length, "cell")} filled, ${count(doubtful)} doubtful.`;
}

const said = (cell: Cell | undefined): string =>
  cell?.values.map((each) => each.written).join("; ") ?? "";

const texts = new Intl.Collator(undefined, { numeric: true });

/** Compare rows by a column, "" for the document; numbers and dates by value, empty cells last. */
function compareBy(column: string, down: boolean) {
  const read = (row: Row) => {
    const [first] = row.cells[column]?.values ?? [];
    return column ? (first?.value ?? first?.written) : row.title;
  };
  return (one: Row, other: Row) => {
    const [a, b] = [read(one), read(other)];
    if (a === undefined || b === undefined)
      return Number(a === undefined) - Number(b === undefined);
    const both = typeof a === "number" && typeof b === "number";
    const order = both ? a - b : texts.compare(String(a), String(b));
    return down ? -order : order;
  };
}

function Grid({ run }: { run: Run }) {
  const [sorted, setSorted] = useState<{ by: string; down: boolean } | null>(null);
  const [doubtful, setDoubtful] = useState(false);
  const rows = rowsOf(run);
  const heads =
    run.table.value?.columns.map((each) => each.name) ??
    (names.value.length ? names.value : Object.keys(rows[0]?.cells ?? {}));
  let ordered = sorted ? rows.toSorted(compareBy(sorted.by, sorted.down)) : rows;
  if (doubtful) ordered = ordered.toSorted((one, other) => doubts(other) - doubts(one));
  const [shown, search] = useSearch(
    ordered,
    "Filter rows",
    (row) => [row.title, row.name, ...cellsOf(row).map(said)].join("\n"),
    1,
  );
  const head = (name: string, column: string) => (
    <Head
      key={column}
      name={name}
      down={sorted?.by === column ? sorted.down : null}
      sort={(down) => setSorted({ by: column, down })}
    />
  );
  return (
    <>
      <div class="row">
        {search}
        {rows.length > 1 && (
          <label class="check">
            <input
              type="checkbox"
              checked={doubtful}
              onChange={(event) => setDoubtful(event.currentTarget.checked)}
            />
            Doubtful first
          </label>
        )}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Rows">
        <table class="documents cells">
          <thead>
            <tr>
              {head("Document", "")}
              {heads.map((name) => head(name, name))}
            </tr>
          </thead>
          <tbody>
            <Few
              all={shown}
              most={50}
              last={(button) => (
                <tr>
                  <td class="more" colSpan={heads.length + 1}>
                    {button}
                  </td>
                </tr>
              )}
            >
              {(row) => (
                <tr key={`${row.document} ${row.name}`}>
                  <th scope="row">
                    <SpanLink span={{ document_id: row.document, start: 0, end: 0 }}>
                      {row.title}
                    </SpanLink>
                    {row.name && <small>{row.name}</small>}
                  </th>
                  {heads.map((name) => (
                    <CellButton
                      key={name}
                      cell={row.cells[name]}
                      open={() => openCell(run, row, name)}
                    />
                  ))}
                </tr>
              )}
            </Few>
          </tbody>
        </table>
      </div>
    </>
  );
}

function CellButton({ cell, open }: { cell: Cell | undefined; open: () => void }) {
  if (!cell) return <td />;
  const words = said(cell);
  return (
    <td class={cell.doubt ? "doubtful" : undefined}>
      <button type="button" class="cell" title={cell.doubt || undefined} onClick={open}>
        {words || <span class="quiet">{cell.reason}</span>}
        {cell.doubt && words && (
          <>
            <span class="flag" aria-hidden="true">
              ?
            </span>
            <span class="unseen">, doubtful: {cell.doubt}</span>
          </>
        )}
        {cell.corrected && <span class="quiet"> ✓</span>}
      </button>
    </td>
  );
}

const FILES = { xlsx: "Excel", csv: "CSV", json: "JSON", md: "Markdown" };

function Downloads({ run }: { run: Run }) {
  return (
    <div class="quiet after">
      {Object.entries(FILES).map(([ending, name]) => (
        <button
          key={ending}
          type="button"
          aria-label={`Download as ${name}`}
          onClick={() =>
            void download(api.tableFile(run.id, ending), firstWords(run.question), ending).catch(
              fail,
            )
          }
        >
          ↓ {name}
        </button>
      ))}
    </div>
  );
}
