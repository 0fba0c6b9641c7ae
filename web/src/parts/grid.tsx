import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Few, useSearch } from "./spans";

type Value = string | number | boolean | null | undefined;
/** A column without a value is not sorted by. */
export type Column<T> = [head: string, value?: (row: T) => Value];

const texts = new Intl.Collator(undefined, { numeric: true }); // "Report 9" before "Report 10"

/** Compare numbers by value and texts as a person would; what is empty comes last. */
function compare(one: Value, other: Value, down: boolean): number {
  const [a, b] = [one ?? undefined, other ?? undefined];
  if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
  const both = typeof a === "number" && typeof b === "number";
  const order = both ? a - b : texts.compare(String(a), String(b));
  return down ? -order : order;
}

/** Rows that can be searched and sorted; those for which `first` is highest stay above. */
export function Grid<T>(of: {
  label: string;
  search: string;
  few?: number; // rows that need no search
  columns: readonly Column<T>[];
  rows: readonly T[];
  text: (row: T) => string;
  first?: ((row: T) => number) | undefined;
  beside?: ComponentChildren;
  kind?: string;
  children: (row: T) => ComponentChildren;
}) {
  const [sorted, setSorted] = useState<{ by: number; down: boolean } | null>(null);
  const read = sorted && of.columns[sorted.by]?.[1];
  let rows = read
    ? of.rows.toSorted((one, other) => compare(read(one), read(other), sorted.down))
    : of.rows;
  const { first } = of;
  if (first) rows = rows.toSorted((one, other) => first(other) - first(one));
  const [shown, search] = useSearch(rows, of.search, of.text, of.few);
  return (
    <>
      <div class="row">
        {search}
        {of.beside}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label={of.label}>
        <table class={`documents ${of.kind ?? ""}`}>
          <thead>
            <tr>
              {of.columns.map(([head, value], by) => {
                if (!value) return <td key={by}>{head}</td>;
                const down = sorted?.by === by ? sorted.down : null;
                return (
                  <th
                    key={by}
                    scope="col"
                    aria-sort={down === null ? undefined : down ? "descending" : "ascending"}
                  >
                    <button
                      type="button"
                      class="sort"
                      onClick={() => setSorted({ by, down: down === false })}
                    >
                      {head}
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            <Few
              all={shown}
              most={50}
              last={(button) => (
                <tr>
                  <td class="more" colSpan={of.columns.length}>
                    {button}
                  </td>
                </tr>
              )}
            >
              {of.children}
            </Few>
          </tbody>
        </table>
      </div>
    </>
  );
}
