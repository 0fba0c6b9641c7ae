import { useEffect, useRef } from "preact/hooks";
import { link } from "../route";
import { opened, titleOf } from "../state";
import { Close } from "./icons";
import { Reader } from "./reader";

/** The document that is open over the page, at the place of the link. */
export function DocumentSheet() {
  const dialog = useRef<HTMLDialogElement>(null);
  const now = opened.value;
  useEffect(() => {
    if (now && !dialog.current?.open) dialog.current?.showModal();
    if (!now && dialog.current?.open) dialog.current.close();
  }, [now]);
  useEffect(() => {
    const close = () => (opened.value = null);
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  const title = now ? titleOf(now.library, now.id) : "";
  const others = now?.others ?? [];
  const step = (by: number) => {
    if (!now) return;
    const number = (((now.number ?? 1) - 1 + by + others.length) % others.length) + 1;
    const span = others[number - 1];
    if (span)
      opened.value = { ...now, number, id: span.document_id, start: span.start, end: span.end };
  };
  return (
    <dialog
      class="sheet"
      ref={dialog}
      aria-label={title ? `Document: ${title}` : "Document"}
      onClose={() => (opened.value = null)}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      onKeyDown={(event) => {
        if (!now?.number || others.length < 2 || event.altKey || event.ctrlKey || event.metaKey)
          return;
        if (event.key === "ArrowRight") step(1);
        if (event.key === "ArrowLeft") step(-1);
      }}
    >
      {now && (
        <div class="inner">
          <div class="head">
            <h2>{title}</h2>
            {now.number && others.length > 1 && (
              <span class="stepper">
                <button type="button" onClick={() => step(-1)} aria-label="Previous source">
                  ‹
                </button>
                <span aria-live="polite">
                  Source {now.number} of {others.length}
                </span>
                <button type="button" onClick={() => step(1)} aria-label="Next source">
                  ›
                </button>
              </span>
            )}
            <a
              class="alone"
              href={link("document", [now.library, now.id], { start: now.start, end: now.end })}
            >
              Open as a page
            </a>
            <button
              type="button"
              class="icon-button"
              aria-label="Close"
              onClick={() => dialog.current?.close()}
            >
              <Close />
            </button>
          </div>
          {now.panel}
          <Reader {...now} />
        </div>
      )}
    </dialog>
  );
}
