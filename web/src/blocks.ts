// A document's text as blocks: headings, paragraphs, and the text between them.
import type { Page, Span, TreeNode } from "./types";

export type Block = { node: TreeNode | null; start: number; end: number };
type Range = { start: number; end: number };

/** The text of each node before its children, and text of no node; in order, without overlap. */
export function blocks(nodes: readonly TreeNode[], whole: Range): Block[] {
  const found: Block[] = [];
  let done = whole.start;
  const add = (node: TreeNode | null, start: number, end: number) => {
    const [from, to] = [Math.max(start, whole.start, done), Math.min(end, whole.end)];
    if (to > from) found.push({ node, start: from, end: to });
    done = Math.max(done, to);
  };
  for (const node of nodes) {
    if (node.kind === "root") continue;
    const first = node.children[0];
    const end = first === undefined ? node.end : (nodes[first]?.start ?? node.end);
    add(null, done, node.start);
    add(node, node.start, end);
  }
  add(null, done, whole.end);
  return found;
}

export type Part = Range & { lit: boolean; main: boolean; page: number | null };

/** A block cut where highlights and pages begin or end. */
export function parts(
  block: Range,
  main: Range | null,
  others: readonly Range[],
  pages: readonly Page[],
): Part[] {
  const inside = (place: number) => place > block.start && place < block.end;
  const ranges = main ? [main, ...others] : others;
  const starts = new Map(
    pages
      .filter((page) => page.start >= block.start && page.start < block.end)
      .map((page) => [page.start, page.number]),
  );
  const cuts = new Set([block.start, block.end]);
  for (const { start, end } of ranges)
    [start, end].filter(inside).forEach((place) => cuts.add(place));
  for (const start of starts.keys()) cuts.add(start);
  const places = [...cuts].sort((a, b) => a - b);
  const covers = (range: Range, start: number, end: number) =>
    range.start <= start && range.end >= end && range.end > range.start;
  return places.slice(0, -1).map((start, at) => {
    const end = places[at + 1] ?? start;
    return {
      start,
      end,
      lit: ranges.some((range) => covers(range, start, end)),
      main: main !== null && covers(main, start, end),
      page: starts.get(start) ?? null,
    };
  });
}

/** The sections that a place lies in, outermost first. */
export function path(nodes: readonly TreeNode[], place: number): number[] {
  return nodes
    .filter((node) => node.kind === "section" && node.start <= place && place < node.end)
    .map((node) => node.id);
}

export const rangesIn = (id: string, spans: readonly Span[]): Range[] =>
  spans.filter((span) => span.document_id === id);
