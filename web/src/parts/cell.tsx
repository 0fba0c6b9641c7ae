import { useSignal } from "@preact/signals";
import * as api from "../api";
import { place } from "../format";
import { of, type Run } from "../run";
import { asFailure, opened } from "../state";
import type { CellValue, Row, Span } from "../types";
import { paged } from "./reader";

/** The rows that are filled so far. */
export const rowsOf = (run: Run): Row[] =>
  run.table.value?.rows ?? of(run.events.value, "filled").flatMap((event) => event.rows);

/** Open the place of a cell's first value, on the page of the PDF if it is one. */
export function openCell(run: Run, row: Row, column: string): void {
  const spans = (row.cells[column]?.values ?? []).flatMap(({ citation }): Span[] =>
    citation ? [{ document_id: citation.document, start: citation.start, end: citation.end }] : [],
  );
  const [first] = spans;
  paged.value = true;
  opened.value = {
    library: run.library,
    id: first?.document_id ?? row.document,
    start: first?.start ?? 0,
    end: first?.end ?? 0,
    ...(spans.length > 1 && { number: 1, others: spans }),
    panel: <CellPanel run={run} document={row.document} name={row.name} column={column} />,
  };
}

type Place = { run: Run; document: string; name: string; column: string };

/** What a cell says and where from, and a form in which a person corrects it. */
function CellPanel({ run, document, name, column }: Place) {
  const text = useSignal("");
  const said = useSignal("");
  const row = rowsOf(run).find((each) => each.document === document && each.name === name);
  const cell = row?.cells[column];
  if (!cell) return null;
  const correct = async (wanted: string | null, done: string) => {
    try {
      const kept = await api.correct(run.id, { document, row: name, column, text: wanted });
      const now = run.table.value;
      if (now)
        run.table.value = {
          ...now,
          rows: now.rows.map((each) =>
            each.document === document && each.name === name
              ? { ...each, cells: { ...each.cells, [column]: kept } }
              : each,
          ),
        };
      text.value = "";
      said.value = done;
    } catch (error) {
      const { problem } = asFailure(error);
      said.value = problem.detail || problem.title;
    }
  };
  return (
    <section class="cell-panel" aria-label={`Cell: ${column}`}>
      <h3>{name ? `${column}, ${name}` : column}</h3>
      {cell.values.map((each, at) => (
        <Value key={at} value={each} />
      ))}
      {(cell.doubt || cell.reason) && (
        <p class={cell.doubt ? "doubt" : "quiet"}>{cell.doubt || cell.reason}</p>
      )}
      {cell.corrected && <p class="quiet">Decided by a person; it is not filled again.</p>}
      {run.table.value ? (
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            if (text.value.trim()) void correct(text.value.trim(), "Saved");
          }}
        >
          <input
            aria-label="Correct value"
            placeholder="Correct value"
            maxLength={2000}
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
          <button disabled={!text.value.trim()}>Save</button>
          {cell.values.length > 0 && (
            <>
              <button type="button" onClick={() => void correct(null, "Kept")}>
                Keep as it is
              </button>
              <button type="button" onClick={() => void correct("", "Emptied")}>
                Empty it
              </button>
            </>
          )}
          <span role="status">{said.value}</span>
        </form>
      ) : (
        <p class="quiet">Cells can be corrected when the whole table is filled.</p>
      )}
    </section>
  );
}

function Value({ value: { written, value, unit, citation, probability } }: { value: CellValue }) {
  const plain = typeof value === "number" ? value.toLocaleString("en-GB") : value;
  const read = [plain, unit].filter(Boolean).join(" ");
  const checked = citation?.meaning === "supports" ? "confirmed by a check" : "";
  const likely = probability === null ? "" : `likely right: ${Math.round(100 * probability)}%`;
  return (
    <div class="value">
      <span>
        <b>{written}</b>
        {typeof value !== "boolean" && read && read !== written && `, read as ${read}`}
      </span>
      {citation && (
        <>
          <q>{citation.quote}</q>
          <small>
            {[place({ ...citation, meaning: null }), checked, likely].filter(Boolean).join(" · ")}
          </small>
        </>
      )}
    </div>
  );
}
