// Numbers, times and texts for people.
import type { Citation } from "./types";

const whole = new Intl.NumberFormat("en-GB");
const short = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n: number): string => whole.format(n);
export const compact = (n: number): string => (n < 10_000 ? whole.format(n) : short.format(n));

/** "1 document", "3 documents". */
export function counted(n: number, noun: string, nouns = `${noun}s`): string {
  return `${count(n)} ${n === 1 ? noun : nouns}`;
}

export function seconds(s: number): string {
  if (s < 0.0995) return `${Math.max(1, Math.round(s * 1000))} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const minutes = Math.floor(s / 60);
  return `${minutes} min ${Math.round(s - minutes * 60)} s`;
}

/** A time that nobody knows exactly. */
export const roughly = (s: number): string =>
  s < 90 ? `${Math.max(1, Math.round(s))} s` : `${Math.round(s / 60)} min`;

/** The middle one, of two the larger. */
export const median = (all: number[]): number | undefined =>
  all.toSorted((a, b) => a - b)[all.length >> 1];

export function dollars(usd: number | null | undefined): string {
  if (usd == null) return "price not known";
  if (usd === 0) return "no cost";
  return usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(0)} KB`;
  const mega = n / 1024 ** 2;
  return `${mega >= 100 || Number.isInteger(mega) ? Math.round(mega) : mega.toFixed(1)} MB`;
}

export function score(x: number): string {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  return size !== 0 && size < 0.001 ? x.toExponential(1) : x.toFixed(size >= 10 ? 1 : 3);
}

const dateOf = (began: string | number): Date =>
  new Date(typeof began === "number" ? began * 1000 : began);

export const timeOf = (began: string | number): string =>
  dateOf(began).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** "Today", "Yesterday", "3 May 2026". */
export function day(began: string | number): string {
  const then = dateOf(began).toDateString();
  const now = new Date();
  if (then === now.toDateString()) return "Today";
  now.setDate(now.getDate() - 1);
  if (then === now.toDateString()) return "Yesterday";
  return dateOf(began).toLocaleDateString("en-GB", {
    day: "numeric",
    month: "long",
    year: "numeric",
  });
}

/** The first words of a question, as the name of a file. */
export const firstWords = (question: string): string =>
  (question.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? ["answer"])
    .slice(0, 8)
    .join("-")
    .slice(0, 60);

/** A warning without the clause, its last, that names an option of the command line. */
export const withoutOption = (text: string): string =>
  text.replace(/[,:;.(][^,:;.(]*--yes.*$/s, "");

/** An answer without the marks of headings that it quotes; one # may mean "number". */
export const withoutHashes = (text: string): string =>
  text.replace(/^([ \t]*)#{2,6}[ \t]+/gm, "$1");

/** A text in one line, cut to so many characters. */
export function oneLine(text: string, most = 160): string {
  // Rulers and the marks of headings and tables have no meaning within a line.
  const line = text
    .replace(/^[ \t]*#{1,6}[ \t]+/gm, "")
    .replace(/^[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-*:?[ \t]*)+$/gm, " ")
    .replace(/^[ \t]*\|(.*?)\|?[ \t]*$/gm, (_, cells: string) =>
      cells.split(/(?<!\\)\|/).join(" · "),
    )
    .replace(/[-=_*~]{4,}/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  return line.length > most ? `${line.slice(0, most).trimEnd()}…` : line;
}

/** The section, page, row, date and file of a citation, and a mark if the answer may say something else. */
export function place(
  citation: Pick<Citation, "section" | "title" | "page" | "row" | "date" | "source" | "meaning">,
): string {
  const section = citation.section.filter((title) => title !== citation.title);
  const page = citation.page === null ? "" : `page ${citation.page}`;
  const row = citation.row ? `row ${citation.row}` : "";
  const words = citation.meaning === "unclear" ? "worded differently, please check" : "";
  return [section.slice(-2).join(" › "), page, row, citation.date, citation.source, words]
    .filter(Boolean)
    .join(" · ");
}
