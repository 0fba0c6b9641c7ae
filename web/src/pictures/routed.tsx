import { DocumentTitle, SpanLink } from "../parts/spans";
import { of } from "../run";
import { counted, oneLine } from "../say";
import type { EventOf, TraceEvent } from "../types";

type Line = { node: number; depth: number; text: string; heading: boolean };
type Drawn = { lines: Line[]; folded: number };

/** RDR2: each document's headings, what the search lit, what the router accepted and opened. */
export function RoutedPicture({ events }: { events: readonly TraceEvent[] }) {
  const byDocument = new Map<string, EventOf<"routed">[]>();
  for (const event of of(events, "routed")) {
    byDocument.set(event.document, [...(byDocument.get(event.document) ?? []), event]);
  }
  return (
    <figure class="picture routed">
      <figcaption>
        <h3>The path through each document</h3>
        <ul class="legend">
          <li>
            <i class="node lit" /> found by the search
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
  const lit = new Set<number>();
  const refused = routed.filter((event) => event.verdict === "refused").length;
  for (const event of routed) {
    if (event.round === 0) event.lit.forEach((node) => lit.add(node));
    for (const { tag, node } of event.actions) (tag === "answer" ? accepted : expanded).add(node);
    if (event.expanded !== null) expanded.add(event.expanded);
  }
  const broken = routed.flatMap((event) => event.expelled);
  const { lines, folded } = drawn(routed, (node) => accepted.has(node) || expanded.has(node) || lit.has(node));
  return (
    <section class="walk">
      <h4>
        <SpanLink span={{ document_id: id, start: 0, end: 0 }}>
          <DocumentTitle id={id} />
        </SpanLink>
        <small>
          {counted(routed.length, "subtree")} shown
          {refused > 0 && `, ${refused} refused`}
        </small>
      </h4>
      <ul class="lines">
        {lines.map((line) => {
          const state = accepted.has(line.node) ? "accepted" : expanded.has(line.node) ? "expanded" : lit.has(line.node) ? "lit" : "";
          return (
            <li key={line.node} class={`${state} ${line.heading ? "heading" : "block"}`} style={{ "--depth": line.depth }}>
              <i class={`node ${state}`} />
              <span>
                {state && <span class="unseen">{state}: </span>}
                {state === "accepted" && !line.heading ? <mark>{oneLine(line.text, 260)}</mark> : oneLine(line.text, state ? 260 : 90)}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="quiet">
        {folded > 0 && `${counted(folded, "heading")} more folded away. `}
        {broken.length > 0 && `${counted(broken.length, "action")} broke a rule: ${[...new Set(broken.map((each) => each.why))].join("; ")}.`}
      </p>
    </section>
  );
}

const LINE = /^(\t*)(-?\d+): (.*)$/;

/** The lines that the router was shown, all subtrees together, without what leads nowhere. */
export function drawn(routed: Pick<EventOf<"routed">, "shown">[], matters: (node: number) => boolean): Drawn {
  const all = new Map<number, Line>();
  for (const { shown } of routed) {
    for (const line of shown.split("\n")) {
      const [, tabs, node, text] = LINE.exec(line) ?? [];
      if (tabs === undefined || text === undefined) continue;
      const heading = /^(=+)(.*)\1$/.exec(text);
      all.set(Number(node), {
        node: Number(node),
        depth: tabs.length,
        text: heading?.[2] ?? text,
        heading: heading !== null || Number(node) < 0,
      });
    }
  }
  const lines = [...all.values()].sort((a, b) => a.node - b.node);
  const kept = new Set<number>();
  const path: Line[] = [];
  for (const line of lines) {
    path.length = Math.min(path.length, line.depth);
    path[line.depth] = line;
    if (matters(line.node)) path.forEach((each) => each && kept.add(each.node));
    else if (line.heading && line.depth === 1) kept.add(line.node);
  }
  const shown = lines.filter((line) => kept.has(line.node) && line.node >= 0);
  return { lines: shown, folded: lines.filter((line) => line.heading && line.node >= 0 && !kept.has(line.node)).length };
}
