import { DocumentTitle, SpanLink } from "../parts/spans";
import { of } from "../run";
import { counted, oneLine } from "../format";
import type { EventOf, TraceEvent } from "../types";
import { drawn, marksOf } from "./lines";

/** RDR2: each document's headings, what the search found, what the router accepted and opened. */
export function RoutedPicture({ events }: { events: readonly TraceEvent[] }) {
  const byDocument = new Map<string, EventOf<"routed">[]>();
  for (const event of of(events, "routed")) {
    byDocument.set(event.document, [...(byDocument.get(event.document) ?? []), event]);
  }
  return (
    <figure class="picture routed">
      <figcaption>
        <h2 class="cap">The path through each document</h2>
        <ul class="legend">
          <li>
            <i class="node highlighted" /> found by the search
          </li>
          <li>
            <i class="node expanded" /> opened
          </li>
          <li>
            <i class="node accepted" /> accepted
          </li>
        </ul>
      </figcaption>
      {[...byDocument].map(([id, routed]) => (
        <Walk key={id} id={id} routed={routed} />
      ))}
    </figure>
  );
}

function Walk({ id, routed }: { id: string; routed: EventOf<"routed">[] }) {
  const accepted = new Set<number>();
  const expanded = new Set<number>();
  const highlighted = new Set<number>();
  const refused = routed.filter((event) => event.verdict === "refused").length;
  for (const event of routed) {
    if (event.round === 0) marksOf(event).highlighted.forEach((node) => highlighted.add(node));
    for (const { tag, node } of event.actions) (tag === "answer" ? accepted : expanded).add(node);
    if (event.expanded !== null) expanded.add(event.expanded);
  }
  const rejected = routed.flatMap((event) => marksOf(event).rejected);
  const { lines, folded } = drawn(
    routed,
    (node) => accepted.has(node) || expanded.has(node) || highlighted.has(node),
  );
  return (
    <section class="walk">
      <h3>
        <SpanLink span={{ document_id: id, start: 0, end: 0 }}>
          <DocumentTitle id={id} />
        </SpanLink>
        <small>
          {counted(routed.length, "subtree")} shown
          {refused > 0 && `, ${refused} refused`}
        </small>
      </h3>
      <ul class="lines">
        {lines.map((line) => {
          const state = accepted.has(line.node)
            ? "accepted"
            : expanded.has(line.node)
              ? "expanded"
              : highlighted.has(line.node)
                ? "highlighted"
                : "";
          return (
            <li
              key={line.node}
              class={`${state} ${line.heading ? "heading" : "block"}`}
              style={{ "--depth": line.depth }}
            >
              <i class={`node ${state}`} />
              <span>
                {state && <span class="unseen">{state}: </span>}
                {state === "accepted" && !line.heading ? (
                  <mark>{oneLine(line.text, 260)}</mark>
                ) : (
                  oneLine(line.text, state ? 260 : 90)
                )}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="quiet">
        {folded > 0 && `${counted(folded, "heading")} not shown. `}
        {rejected.length > 0 &&
          `${counted(rejected.length, "action")} broke a rule: ${[...new Set(rejected.map((each) => each.why))].join("; ")}.`}
      </p>
    </section>
  );
}
