import { useContext } from "preact/hooks";
import { Text } from "../codepoints";
import { useText } from "../excerpts";
import { Bar, shares } from "../parts/bar";
import { DocumentTitle, InLibrary, SpanLink } from "../parts/spans";
import { lastOf, of } from "../run";
import { count, counted, oneLine } from "../format";
import type { EventOf, NodeScore, TraceEvent } from "../types";

const MOST_READ = 200_000;

/** LongRefiner: the parts of each document that were kept for the reader, and those dropped. */
export function RefinedPicture({ events }: { events: readonly TraceEvent[] }) {
  // A retriever may refine a document for one query after another.
  const weighed = [...new Map(of(events, "weighed").map((each) => [each.document, each])).values()];
  const selected = lastOf(events, "selected");
  const structured = new Map(of(events, "structured").map((event) => [event.document, event]));
  const sorted = weighed.sort((a, b) => keptLength(b) - keptLength(a));
  return (
    <figure class="picture refined">
      <figcaption>
        <h2 class="cap">Parts kept and dropped</h2>
        {selected && (
          <p class="budget">
            <Bar
              share={selected.tokens / selected.budget}
              tone="c0 strong"
              label={`${selected.tokens} of ${selected.budget} tokens`}
            />
            <span>
              <b>{count(selected.tokens)}</b> of {count(selected.budget)} tokens
            </span>
          </p>
        )}
      </figcaption>
      {!weighed.length &&
        [...structured.values()].map((event) => (
          <p key={event.document} class="quiet">
            <DocumentTitle id={event.document} />: {event.nodes} parts from {event.basis}
          </p>
        ))}
      {sorted.map((event, at) => (
        <Refined
          key={event.document}
          event={event}
          open={at === 0 && Boolean(selected)}
          structured={structured.get(event.document)}
        />
      ))}
    </figure>
  );
}

const leaves = (event: EventOf<"weighed">): NodeScore[] =>
  event.nodes.filter((node) => node.level === "paragraph");
const keptLength = (event: EventOf<"weighed">): number =>
  leaves(event).reduce((sum, node) => sum + (node.kept ? node.span.end - node.span.start : 0), 0);

function Refined({
  event,
  open,
  structured,
}: {
  event: EventOf<"weighed">;
  open: boolean;
  structured: EventOf<"structured"> | undefined;
}) {
  const parts = leaves(event);
  const whole = parts.reduce((sum, node) => sum + node.span.end - node.span.start, 0);
  const share = whole ? keptLength(event) / whole : 0;
  return (
    <details class="refined-document" open={open}>
      <summary>
        <span class="title">
          <DocumentTitle id={event.document} />
        </span>
        <span class="strip" aria-hidden="true">
          {parts.map((node, at) => (
            <i
              key={at}
              class={node.kept ? "kept" : undefined}
              style={{ flexGrow: node.span.end - node.span.start }}
            />
          ))}
        </span>
        <span class="share">{Math.round(100 * share)}% kept</span>
      </summary>
      <p class="quiet">
        {structured && `${structured.nodes} parts from ${structured.basis}`}
        {event.scope !== null &&
          `; the question needs ${event.scope < 0.3 ? "one place" : event.scope > 0.7 ? "the whole document" : "several parts"} (scope ${event.scope.toFixed(2)})`}
        {event.selected.length > 0 && `; chosen headings: ${event.selected.join(", ")}`}
      </p>
      {event.nodes.length > 0 && <Parts event={event} />}
    </details>
  );
}

function Parts({ event }: { event: EventOf<"weighed"> }) {
  const library = useContext(InLibrary);
  const start = Math.min(...event.nodes.map((node) => node.span.start));
  const end = Math.min(start + MOST_READ, Math.max(...event.nodes.map((node) => node.span.end)));
  const text = useText(library, event.document, start, end);
  const whole = text === null ? null : new Text(text, start);
  const bars = shares(event.nodes.map((node) => node.score));
  const part = (node: NodeScore, at: number) => {
    const heading = node.level !== "paragraph";
    const said = whole
      ? oneLine(whole.slice(node.span.start, node.span.end), node.kept ? 600 : 160)
      : "…";
    return (
      <li key={at} class={`${node.level} ${node.kept ? "kept" : "dropped"}`}>
        <Bar
          share={bars[at] ?? 0}
          tone={node.kept ? "c0" : "c6"}
          label={`score ${node.score.toFixed(3)}: local ${node.local_score.toFixed(3)}, global ${node.global_score.toFixed(3)}`}
        />
        {heading ? (
          <b>{node.title || node.level}</b>
        ) : (
          <SpanLink span={node.span}>
            <span class="unseen">{node.kept ? "kept: " : "dropped: "}</span>
            {said}
          </SpanLink>
        )}
      </li>
    );
  };
  return (
    <ol class="parts">
      {stretches(event.nodes).map(({ kept, first, nodes }) =>
        kept ? (
          nodes.map((node, at) => part(node, first + at))
        ) : (
          <li key={first} class="fold">
            <details>
              <summary>{counted(nodes.length, "part")} dropped</summary>
              <ol>{nodes.map((node, at) => part(node, first + at))}</ol>
            </details>
          </li>
        ),
      )}
    </ol>
  );
}

type Stretch = { kept: boolean; first: number; nodes: NodeScore[] };

/** Nodes in order, grouped: those kept with their headings, and those between that were not. */
export function stretches(nodes: readonly NodeScore[]): Stretch[] {
  const kept = nodes.filter((node) => node.kept);
  const matters = nodes.map((node) => node.kept || kept.some((each) => within(each, node)));
  const found: Stretch[] = [];
  for (const [at, node] of nodes.entries()) {
    const last = found.at(-1);
    if (last && last.kept === matters[at]) last.nodes.push(node);
    else found.push({ kept: matters[at] ?? false, first: at, nodes: [node] });
  }
  return found;
}

const within = (inner: NodeScore, outer: NodeScore): boolean =>
  outer.span.start <= inner.span.start && inner.span.end <= outer.span.end;
