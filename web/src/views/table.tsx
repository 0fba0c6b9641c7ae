import { computed, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { After } from "../parts/after";
import { Box, MoreChoices } from "../parts/asking";
import { openCell, rowsOf } from "../parts/cell";
import { Cost } from "../parts/cost";
import { Drop } from "../parts/drop";
import { Grid, type Column } from "../parts/grid";
import { Stop } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { ScopeChoice, requested, restrictAs, scopeOf } from "../parts/scope";
import { InLibrary, SpanLink } from "../parts/spans";
import { go, link, route } from "../route";
import { Run, of } from "../run";
import { count, counted, median, roughly } from "../format";
import { EMPTY, asFailure, current, library } from "../state";
import type { Cell, Estimate, Problem, Row } from "../types";

// Outside the view, so that the table survives a change of views.
const columns = signal("");
const records = signal(""); // what a row is, if not a document
const scopes = signal({});
const counting = signal(false);
const told = signal<Told | null>(null);
const problem = signal<Problem | null>(null);
const run = signal<Run | null>(null);
const names = signal<string[]>([]); // of the columns, before the first row is there

/** What the form asks for; another object after each change. */
const wanted = computed(() => ({
  name: library.value,
  asked: {
    columns: columns.value,
    rows: records.value.trim(),
    ...requested(scopes, library.value),
  },
}));
/** What it takes, and the seconds if earlier tables tell. */
type Told = { wanted: typeof wanted.value; found: Estimate; seconds: number | undefined };

const fail = (error: unknown) => (problem.value = asFailure(error).problem);

/** Say what the table takes; once that is said, fill it. */
async function submit(): Promise<void> {
  const now = wanted.value;
  const { name, asked } = now;
  if (!asked.columns.trim() || counting.value) return;
  if (told.value?.wanted === now) return start(told.value);
  problem.value = null;
  counting.value = true;
  try {
    const runs = api.runs(name).catch(() => []); // without it, no time is told
    const found = await api.estimate(name, asked);
    const before = (await runs).filter((each) => each.strategy === "table" && each.calls);
    const pace = median(before.slice(0, 15).map((each) => (each.seconds ?? 0) / each.calls!));
    if (now !== wanted.value) return;
    const next = { wanted: now, found, seconds: pace && pace * found.calls };
    if (found.documents) told.value = next;
    else start(next); // all of it was filled before
  } catch (error) {
    fail(error);
  } finally {
    counting.value = false;
  }
}

function start({ wanted: { name, asked }, found }: Told): void {
  go(link("table"));
  run.value?.cancel();
  told.value = null;
  names.value = found.columns;
  run.value = new Run(name, asked.columns, "table");
  void run.value.fill(asked);
}

async function open(id: string): Promise<void> {
  try {
    const info = await api.runById(id);
    run.value?.cancel();
    names.value = [];
    columns.value = info.question;
    records.value = String(info.parameters?.["rows"] ?? "");
    library.value = info.library ?? library.value;
    restrictAs(scopes, library.value, info);
    run.value = new Run(library.value, info.question, "table");
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
        A row for each document, a column for each thing to look up. Each cell leads to its place in
        the document.
      </p>
      {current.value?.documents === 0 ? (
        <>
          <p>{EMPTY}</p>
          <Drop />
        </>
      ) : (
        <TableForm />
      )}
      {problem.value && <ProblemNote problem={problem.value} />}
      {now && <Filling run={now} />}
    </div>
  );
}

function TableForm() {
  const known = told.value?.wanted === wanted.value ? told.value : null;
  const { ticked, where } = scopeOf(scopes, library.value);
  return (
    <form
      class="question"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <Box
        id="columns"
        label="Columns"
        value={columns}
        placeholder="annual rent: money; ends on: date; governing law; parties: list"
        help="columns-help"
      />
      <div class="row">
        <small id="columns-help" class={known ? "grow known" : "grow"} role="status">
          {known
            ? takes(known)
            : counting.value
              ? "Counting what there is to read …"
              : "Semicolons between columns. After a colon: text, number, money, date, yes/no, list, or choices such as open|closed."}
        </small>
        <button
          class="primary"
          disabled={!columns.value.trim()}
          onClick={(event) => {
            if (event.detail > 1) event.preventDefault(); // a double click has not read what it takes
          }}
        >
          {known ? "Start" : "Fill the table"}
        </button>
      </div>
      <MoreChoices set={[records.value.trim(), ticked.length, where].filter(Boolean).length}>
        <label class={records.value ? "field changed" : "field"}>
          <span>a row for each</span>
          <input
            placeholder="document"
            maxLength={1000}
            value={records.value}
            onInput={(event) => (records.value = event.currentTarget.value)}
          />
          <small>
            What a row is, if a document has several: “loan”, “named person”. It takes a larger
            model than the bundled one.
          </small>
        </label>
        <ScopeChoice scopes={scopes} />
      </MoreChoices>
    </form>
  );
}

function takes({ found, seconds }: Told): string {
  const time = seconds ? `, about ${roughly(seconds)}` : "";
  return `${counted(found.documents, "document")} to read: about ${counted(found.calls, "call")} and ${counted(found.tokens, "token")}${time}.`;
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
        <Rows key={run.question} run={run} />
        {run.table.value && <After run={run} made="table" />}
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

function Rows({ run }: { run: Run }) {
  const [doubtful, setDoubtful] = useState(false);
  const rows = rowsOf(run);
  const heads =
    run.table.value?.columns.map((each) => each.name) ??
    (names.value.length ? names.value : Object.keys(rows[0]?.cells ?? {}));
  const sorted: Column<Row>[] = heads.map((name) => [
    name,
    ({ cells }) => cells[name]?.values[0]?.value ?? cells[name]?.values[0]?.written,
  ]);
  return (
    <Grid
      kind="cells"
      label="Rows"
      search="Filter rows"
      few={1}
      columns={[["Document", (row) => row.title], ...sorted]}
      rows={rows}
      text={(row) => [row.title, row.name, ...cellsOf(row).map(said)].join("\n")}
      first={doubtful ? doubts : undefined}
      beside={
        rows.length > 1 && (
          <label class="check">
            <input
              type="checkbox"
              checked={doubtful}
              onChange={(event) => setDoubtful(event.currentTarget.checked)}
            />
            Doubtful first
          </label>
        )
      }
    >
      {(row) => (
        <tr key={`${row.document} ${row.name}`}>
          <th scope="row">
            <SpanLink span={{ document_id: row.document, start: 0, end: 0 }}>{row.title}</SpanLink>
            {row.name && <small>{row.name}</small>}
          </th>
          {heads.map((name) => (
            <CellButton key={name} cell={row.cells[name]} open={() => openCell(run, row, name)} />
          ))}
        </tr>
      )}
    </Grid>
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
