// An answer's text cut into pieces: which citations each piece rests on, and the marks.
import { Text } from "./codepoints";
import type { Answer, Likely, Span } from "./types";

export type Piece =
  | { kind: "text"; text: string; cited: number[] }
  | { kind: "mark"; number: number }
  | { kind: "uncited" };

const MARK = /\[(\d{1,4}|uncited)\]/g;

/** Pieces in order; `cited` and marks count citations from 1. */
export function pieces(answer: Pick<Answer, "answer" | "citations">): Piece[] {
  const whole = new Text(answer.answer);
  const spans = answer.citations.flatMap((citation, at) =>
    (citation.answer_spans ?? []).map(([start, end]) => ({ start, end, number: at + 1 })),
  );
  const cuts = new Set([0, whole.length]);
  for (const { start, end } of spans) cuts.add(start).add(end);
  const places = [...cuts]
    .filter((place) => place >= 0 && place <= whole.length)
    .sort((a, b) => a - b);
  const found: Piece[] = [];
  for (const [at, start] of places.slice(0, -1).entries()) {
    const end = places[at + 1] ?? start;
    const cited = spans
      .filter((span) => span.start <= start && span.end >= end)
      .map((span) => span.number);
    found.push(...marked(whole.slice(start, end), [...new Set(cited)], answer.citations.length));
  }
  return found;
}

function marked(text: string, cited: number[], citations: number): Piece[] {
  const found: Piece[] = [];
  let done = 0;
  for (const match of text.matchAll(MARK)) {
    const number = match[1] === "uncited" ? null : Number(match[1]);
    if (number !== null && (number < 1 || number > citations)) continue; // the text's own brackets
    if (match.index > done)
      found.push({ kind: "text", text: text.slice(done, match.index), cited });
    found.push(number === null ? { kind: "uncited" } : { kind: "mark", number });
    done = match.index + match[0].length;
  }
  if (done < text.length) found.push({ kind: "text", text: text.slice(done), cited });
  return found;
}

const AROUND = 200; // characters of a sentence shown beside the words marked

/** A sentence in one line: what comes before the words to mark, the words, and what comes after. */
export function around(
  { text, span }: Likely["sentence"],
  { start, end }: Span,
): [before: string, words: string, after: string] {
  const whole = new Text(text, span.start);
  const line = (from: number, to: number) => whole.slice(from, to).replace(/[\s|]+/g, " ");
  const from = Math.max(span.start, start - AROUND);
  const to = Math.min(span.end, end + AROUND);
  return [
    (from > span.start ? "…" : "") + line(from, start),
    line(start, end),
    line(end, to) + (to < span.end ? "…" : ""),
  ];
}
