import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";
import { usePlace, useText } from "../excerpts";
import { link } from "../route";
import { count, oneLine, place } from "../format";
import { isKept, opened, titleOf } from "../state";
import type { Span } from "../types";

/** The library of the documents in a view. */
export const InLibrary = createContext("default");

type Place = {
  span: Span;
  children: ComponentChildren;
  class?: string;
  number?: number;
  others?: Span[];
};

/** A link to a place in a document: over the page, or in a new tab. Of a document that is not in the
 * library, as those of a retriever server, there is nothing to open. */
export function SpanLink({ span, children, number, others, ...rest }: Place) {
  const library = useContext(InLibrary);
  const { document_id: id, start, end } = span;
  if (!isKept(library, id))
    return (
      <span {...rest} title="This document is not in the library">
        {children}
      </span>
    );
  return (
    <a
      {...rest}
      href={link("document", [library, id], { start, end })}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
        event.preventDefault();
        opened.value = {
          library,
          id,
          start,
          end,
          ...(number && { number }),
          ...(others && { others }),
        };
      }}
    >
      {children}
    </a>
  );
}

/** The first words of a span, if its document is in the library. */
export function Excerpt(shown: { span: Span; most?: number }) {
  return isKept(useContext(InLibrary), shown.span.document_id) ? <Words {...shown} /> : null;
}

function Words({ span, most = 220 }: { span: Span; most?: number }) {
  const library = useContext(InLibrary);
  // No more than is shown: a whole document may be one span.
  const end = Math.min(span.end, span.start + 2 * most);
  const text = useText(library, span.document_id, span.start, end);
  if (text === null) return <span class="excerpt waiting">…</span>;
  return <span class="excerpt">{oneLine(text, most)}</span>;
}

/** The sections and the page of a span. */
export function Place(shown: { span: Span }) {
  return isKept(useContext(InLibrary), shown.span.document_id) ? <Sections {...shown} /> : null;
}

function Sections({ span }: { span: Span }) {
  const found = usePlace(useContext(InLibrary), span.document_id, span.start);
  const title = useTitle(span.document_id);
  return <small>{found && place({ ...found, title })}</small>;
}

export function useTitle(id: string): string {
  return titleOf(useContext(InLibrary), id);
}

export function DocumentTitle({ id }: { id: string }) {
  return <>{useTitle(id)}</>;
}

const PHONE = "(max-width: 40rem)";
const MOST_ON_A_PHONE = 5;

const STEP = 100; // entries that a click adds: a library may have thousands

/** A list that shows its first entries and a button for more, which `last` puts into the list. */
export function Few<T>({
  all,
  most,
  children,
  last = (button) => <li class="more">{button}</li>,
}: {
  all: readonly T[];
  most: number;
  children: (each: T, at: number) => ComponentChildren;
  last?: (button: ComponentChildren) => ComponentChildren;
}) {
  const [more, setMore] = useState(0);
  const least = matchMedia(PHONE).matches ? Math.min(most, MOST_ON_A_PHONE) : most;
  const shown = all.slice(0, least + more);
  const rest = all.length - shown.length;
  return (
    <>
      {shown.map(children)}
      {rest > 0 &&
        last(
          <button type="button" class="link" onClick={() => setMore(more + STEP)}>
            {rest > STEP ? `Show ${STEP} more of ${count(rest)}` : `Show ${rest} more`}
          </button>,
        )}
    </>
  );
}

/** A list in which words are searched, once it is long: the entries that have them. */
export function useSearch<T>(
  all: readonly T[],
  label: string,
  text: (each: T) => string,
  few = 8,
): [found: T[], field: ComponentChildren] {
  const [wanted, setWanted] = useState("");
  const words = wanted.toLowerCase().trim();
  const found = all.filter((each) => text(each).toLowerCase().includes(words));
  const field = all.length > few && (
    <div class="filter">
      <label class="field">
        <span>{label}</span>
        <input
          type="search"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      </label>
      <small role="status">
        {words &&
          (found.length ? `${count(found.length)} of ${count(all.length)}` : "Nothing found")}
      </small>
    </div>
  );
  return [found, field];
}

export const spanKey = (span: Span): string => `${span.document_id}:${span.start}-${span.end}`;

export const overlaps = (a: Span, b: Span): boolean =>
  a.document_id === b.document_id && a.start < b.end && b.start < a.end;
