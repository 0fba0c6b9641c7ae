import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { counted, seconds } from "../format";
import { spent } from "../run";
import { sentences } from "../sentences";
import { titleOf } from "../state";
import type { TraceEvent } from "../types";
import { DocumentTitle, Excerpt, Few, InLibrary, SpanLink, spanKey } from "./spans";

const MOST = 300; // steps at once: a run over many documents has thousands

/** The events of a run in sentences, newest last. */
export function Steps({ events }: { events: readonly TraceEvent[] }) {
  const box = useRef<HTMLOListElement>(null);
  const followed = useRef(true); // until somebody scrolls back to read
  const [calls, setCalls] = useState(false);
  const [earlier, setEarlier] = useState(false);
  const library = useContext(InLibrary);
  const steps = sentences(events);
  const all = calls ? steps : steps.filter(({ sentence }) => sentence.tone !== "call");
  const shown = earlier ? all : all.slice(-MOST);
  const { calls: asked, judgements } = spent(events);
  useEffect(() => {
    const { current } = box;
    if (current && followed.current) current.scrollTop = current.scrollHeight;
  }, [all.length]);
  return (
    <div class="steps">
      <header>
        <h2 class="cap">Steps</h2>
        {asked + judgements > 0 && (
          <label class="check">
            <input
              type="checkbox"
              checked={calls}
              onChange={(event) => setCalls(event.currentTarget.checked)}
            />
            Show {counted(asked, "model call")}
            {judgements > 0 && `, ${counted(judgements, "judgement")}`}
          </label>
        )}
      </header>
      <ol
        ref={box}
        onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
          followed.current = scrollHeight - scrollTop - clientHeight < 30;
        }}
        tabIndex={0}
        role="list"
        aria-label="Steps, oldest first"
      >
        {all.length > shown.length && (
          <li class="step">
            <span />
            <button type="button" class="link" onClick={() => setEarlier(true)}>
              Show {all.length - shown.length} earlier steps
            </button>
          </li>
        )}
        {shown.map(({ at, event, sentence: { tone, text, more, spans } }) => (
          <li key={at} class={`step ${tone}`}>
            <time>{seconds(event.at)}</time>
            {more || spans ? (
              <details>
                <summary>{withTitle(text, event, library)}</summary>
                {more && <p class="more-said">{more}</p>}
                {spans && (
                  <ul>
                    <Few all={spans} most={5}>
                      {(span) => (
                        <li key={spanKey(span)}>
                          <SpanLink span={span}>
                            <DocumentTitle id={span.document_id} />
                          </SpanLink>{" "}
                          <Excerpt span={span} most={140} />
                        </li>
                      )}
                    </Few>
                  </ul>
                )}
              </details>
            ) : (
              <span>{withTitle(text, event, library)}</span>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}

/** Documents go by their titles where people read of them. */
function withTitle(text: string, event: TraceEvent, library: string): string {
  const id = (event as { document?: unknown }).document;
  if (typeof id !== "string" || !id) return text;
  return text.replace(id, () => `“${titleOf(library, id)}”`);
}
