import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { seconds } from "../say";
import { sentence } from "../sentences";
import { titleOf } from "../state";
import type { TraceEvent } from "../types";
import { DocumentTitle, Excerpt, Few, InLibrary, SpanLink, spanKey } from "./spans";

const MOST = 300; // steps at once: a run over many documents has thousands

/** All that happened, a line an event, newest last. */
export function Steps({ events }: { events: readonly TraceEvent[] }) {
  const box = useRef<HTMLOListElement>(null);
  const followed = useRef(true); // until somebody scrolls back to read
  const [calls, setCalls] = useState(false);
  const [earlier, setEarlier] = useState(false);
  const library = useContext(InLibrary);
  const all = events.flatMap((event, at) => {
    const line = sentence(event);
    return line && (calls || line.tone !== "call") ? [{ at, event, line }] : [];
  });
  const said = earlier ? all : all.slice(-MOST);
  const hidden = events.filter(
    (event) => event.event === "asked" || event.event === "measured",
  ).length;
  useEffect(() => {
    const { current } = box;
    if (current && followed.current) current.scrollTop = current.scrollHeight;
  }, [all.length]);
  return (
    <div class="steps">
      <header>
        <h2 class="cap">Step by step</h2>
        {hidden > 0 && (
          <label class="check">
            <input
              type="checkbox"
              checked={calls}
              onChange={(event) => setCalls(event.currentTarget.checked)}
            />
            model calls ({hidden})
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
        {all.length > said.length && (
          <li class="step">
            <span />
            <button type="button" class="link" onClick={() => setEarlier(true)}>
              Show {all.length - said.length} earlier
            </button>
          </li>
        )}
        {said.map(({ at, event, line }) => (
          <li key={at} class={`step ${line.tone}`}>
            <time>{seconds(event.at)}</time>
            {line.more || line.spans?.length ? (
              <details>
                <summary>{named(line.said, event, library)}</summary>
                {line.more && <p class="more-said">{line.more}</p>}
                {line.spans && line.spans.length > 0 && (
                  <ul>
                    <Few all={line.spans} most={5}>
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
              <span>{named(line.said, event, library)}</span>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}

/** Documents go by their titles where people read of them. */
function named(said: string, event: TraceEvent, library: string): string {
  if (!("document" in event) || !event.document) return said;
  return said.replace(event.document, () => `“${titleOf(library, event.document)}”`);
}
