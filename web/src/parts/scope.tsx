import type { Signal } from "@preact/signals";
import { counted } from "../format";
import { documentsOf, isKept, library } from "../state";
import { Few, useSearch } from "./spans";

/** What a view reads of a library: the documents ticked, all if none, that meet the conditions. */
type Scope = { ticked: string[]; where: string };
export type Scopes = Signal<Record<string, Scope>>; // by the library's name

/** Those that were removed can no longer be read. */
export function scopeOf(scopes: Scopes, name: string): Scope {
  const { ticked, where } = scopes.value[name] ?? { ticked: [], where: "" };
  return { ticked: ticked.filter((id) => isKept(name, id)), where };
}

export function restrict(scopes: Scopes, name: string, change: Partial<Scope>): void {
  scopes.value = { ...scopes.value, [name]: { ...scopeOf(scopes, name), ...change } };
}

/** Restrict a view to what a run read. */
export function restrictAs(
  scopes: Scopes,
  name: string,
  run: { documents?: string[] | null; where?: string[] },
): void {
  restrict(scopes, name, { ticked: run.documents ?? [], where: (run.where ?? []).join("; ") });
}

/** The scope, as the server is asked for it. */
export function requested(scopes: Scopes, name: string) {
  const { ticked, where } = scopeOf(scopes, name);
  return { documents: ticked.length ? ticked : null, where: split(where) };
}

/** The conditions of a field: a semicolon parts them only where the next one begins. */
function split(conditions: string): string[] {
  const parted = conditions.split(/;(?=[\s;]*(?:$|[\p{L}\p{N}_]+\s*(?:!=|[=<>~])))/u);
  const found = parted.map((each) => each.trim());
  return found.filter(Boolean);
}

export function ScopeChoice({ scopes }: { scopes: Scopes }) {
  const { ticked, where } = scopeOf(scopes, library.value);
  const change = (to: Partial<Scope>) => restrict(scopes, library.value, to);
  const all = documentsOf(library.value).value ?? [];
  const [found, search] = useSearch(
    all,
    "Search documents",
    (each) => `${each.title} ${each.source}`,
  );
  return (
    <>
      <fieldset class="documents-choice">
        <legend>
          {ticked.length ? (
            <>
              Read only {counted(ticked.length, "document")}{" "}
              <button type="button" class="link" onClick={() => change({ ticked: [] })}>
                Untick all
              </button>
            </>
          ) : (
            "Read all documents, or only those ticked"
          )}
        </legend>
        {search}
        <Few all={found} most={50} last={(button) => <p class="more">{button}</p>}>
          {(each) => (
            <label key={each.id} class="check">
              <input
                type="checkbox"
                checked={ticked.includes(each.id)}
                onChange={(event) => {
                  const others = ticked.filter((id) => id !== each.id);
                  change({ ticked: event.currentTarget.checked ? [...others, each.id] : others });
                }}
              />
              {each.title}
            </label>
          )}
        </Few>
      </fieldset>
      <label class={where ? "field changed" : "field"}>
        <span>only documents that meet these conditions</span>
        <input
          placeholder="date>=2024; title~report"
          value={where}
          onInput={(event) => change({ where: event.currentTarget.value })}
        />
        <small>
          Conditions on date, title, file or language, with semicolons between them; ~ means
          “contains”.
        </small>
      </label>
    </>
  );
}
