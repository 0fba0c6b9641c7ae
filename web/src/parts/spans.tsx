import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";
import { useText } from "../excerpts";
import { link } from "../route";
import { oneLine } from "../format";
import { opened, titleOf } from "../state";
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

/** A link to a place in a document: over the page, or in a new tab. */
export function SpanLink({ span, children, number, others, ...rest }: Place) {
  const library = useContext(InLibrary);
  const { document_id: id, start, end } = span;
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

/** The first words of a span. */
export function Excerpt({ span, most = 220 }: { span: Span; most?: number }) {
  const library = useContext(InLibrary);
  // No more than is shown: a whole document may be one span.
  const end = Math.min(span.end, span.start + 2 * most);
  const text = useText(library, span.document_id, span.start, end);
  if (text === null) return <span class="excerpt waiting">…</span>;
  return <span class="excerpt">{oneLine(text, most)}</span>;
}

export function useTitle(id: string): string {
  return titleOf(useContext(InLibrary), id);
}

export function DocumentTitle({ id }: { id: string }) {
  return <>{useTitle(id)}</>;
}

const PHONE = "(max-width: 40rem)";
const MOST_ON_A_PHONE = 5;

/** A list that shows its first entries and a button for the rest. */
export function Few<T>({
  all,
  most,
  children,
}: {
  all: readonly T[];
  most: number;
  children: (each: T, at: number) => ComponentChildren;
}) {
  const [more, setMore] = useState(false);
  const least = matchMedia(PHONE).matches ? Math.min(most, MOST_ON_A_PHONE) : most;
  const shown = more ? all : all.slice(0, least);
  return (
    <>
      {shown.map(children)}
      {all.length > shown.length && (
        <li class="more">
          <button type="button" class="link" onClick={() => setMore(true)}>
            Show {all.length - shown.length} more
          </button>
        </li>
      )}
    </>
  );
}

export const spanKey = (span: Span): string => `${span.document_id}:${span.start}-${span.end}`;

export const overlaps = (a: Span, b: Span): boolean =>
  a.document_id === b.document_id && a.start < b.end && b.start < a.end;
