// The part of a document that RDR2's router was shown, as lines to draw.
import type { EventOf } from "../types";

type Line = { node: number; depth: number; text: string; heading: boolean };
type Drawn = { lines: Line[]; folded: number };

const LINE = /^(\t*)(-?\d+): (.*)$/;

/** The lines that the router was shown, all subtrees together, without branches that do not matter. */
export function drawn(
  routed: Pick<EventOf<"routed">, "shown">[],
  matters: (node: number) => boolean,
): Drawn {
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
  return {
    lines: shown,
    folded: lines.filter((line) => line.heading && line.node >= 0 && !kept.has(line.node)).length,
  };
}

type Routed = Pick<EventOf<"routed">, "highlighted" | "lit" | "rejected" | "expelled">;

/** The nodes that the search found and the actions that broke a rule, by either name. */
export function marksOf(event: Routed): { highlighted: number[]; rejected: { why: string }[] } {
  return {
    highlighted: event.highlighted ?? event.lit ?? [],
    rejected: event.rejected ?? event.expelled ?? [],
  };
}
