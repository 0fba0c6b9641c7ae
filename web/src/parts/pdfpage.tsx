import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { asFailure } from "../state";
import type { Box, DocumentText, Problem } from "../types";

type Shown = {
  library: string;
  text: DocumentText;
  place: number;
  main: { start: number; end: number } | null;
  fail: (problem: Problem) => void;
};

/** The page of the PDF at a place of its text, with the cited words marked. */
export function PdfPage({ library, text, place, main, fail }: Shown) {
  const { id, title, pages } = text;
  const here = Math.max(
    0,
    pages.findLastIndex((page) => page.start <= place),
  );
  const [at, setAt] = useState(here);
  const [picture, setPicture] = useState("");
  const [boxes, setBoxes] = useState<Box[] | null>(null);
  const first = useRef<HTMLSpanElement>(null);
  const { number, start, end } = pages[at] ?? { number: 1, start: 0, end: 0 };
  const cited = main !== null && main.start < end && main.end > start;

  useEffect(() => setAt(here), [id, here, place]);

  useEffect(() => {
    let [wanted, address] = [true, ""];
    setBoxes(null);
    api.pagePicture(library, id, number).then(
      (found) => {
        address = URL.createObjectURL(found);
        if (wanted) setPicture(address);
        else URL.revokeObjectURL(address);
      },
      (error: unknown) => wanted && fail(asFailure(error).problem),
    );
    return () => {
      wanted = false;
      setPicture("");
      URL.revokeObjectURL(address);
    };
  }, [library, id, number]);

  useEffect(() => {
    if (!cited || !main) return;
    let wanted = true;
    api.pageBoxes(library, id, number, main.start, main.end).then(
      (found) => wanted && setBoxes(found),
      (error: unknown) => wanted && fail(asFailure(error).problem),
    );
    return () => void (wanted = false);
  }, [library, id, number, cited, main?.start, main?.end]);

  useEffect(() => first.current?.scrollIntoView({ block: "center" }), [picture, boxes]);

  const share = (part: number) => `${100 * part}%`;
  return (
    <figure class="pdf-page" tabIndex={0} role="region" aria-label={`Pages of ${title}`}>
      <figcaption>
        <button type="button" disabled={at === 0} onClick={() => setAt(at - 1)}>
          Previous page
        </button>
        <span aria-live="polite">
          Page {number} of {pages.length}
          {cited && boxes?.length === 0 && ": the cited words were not found on the picture"}
        </span>
        <button type="button" disabled={at + 1 >= pages.length} onClick={() => setAt(at + 1)}>
          Next page
        </button>
      </figcaption>
      {picture ? (
        <div class="drawn">
          <img
            src={picture}
            alt={`Page ${number} of ${title}${cited && boxes?.length ? ", the cited words marked" : ""}`}
          />
          {cited &&
            boxes?.map(([left, top, right, bottom], n) => (
              <span
                key={n}
                ref={n ? null : first}
                class="box"
                style={{
                  left: share(left),
                  top: share(top),
                  width: share(right - left),
                  height: share(bottom - top),
                }}
              />
            ))}
        </div>
      ) : (
        <p class="quiet loading">Drawing the page…</p>
      )}
    </figure>
  );
}
