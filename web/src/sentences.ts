// The sentence of each event in the list of steps: its own line, and what the page adds to it.
import { counted, oneLine, seconds, withoutOption } from "./format";
import { is, type Span, type TraceEvent } from "./types";

export type Sentence = {
  tone: "step" | "left-out" | "note" | "warning" | "call" | "end";
  text: string;
  /** To unfold: a query, a reply, the rest of a long line. */
  more?: string;
  spans?: Span[];
};

const LONGEST = 240;
// Progress bars and pictures show these.
const SILENT = new Set(["asking", "progressed", "parsed", "opened", "writing", "drafted"]);

/** The steps to show of a run. An event without a line is not shown, unless no event has one, as
 * in runs of early versions: then its name is shown. */
export function sentences(
  events: readonly TraceEvent[],
): { at: number; event: TraceEvent; sentence: Sentence }[] {
  const unnamed = !events.some((event) => event.line);
  return events.flatMap((event, at) => {
    if (SILENT.has(event.event)) return [];
    const line = withoutOption(event.line || (unnamed ? nameOf(event) : ""));
    return line ? [{ at, event, sentence: sentence(event, line) }] : [];
  });
}

function sentence(event: TraceEvent, line: string): Sentence {
  const text = capital(oneLine(line, LONGEST));
  const spans = spansOf(event);
  const step: Sentence = { tone: "step", text, ...(spans.length && { spans }) };
  if (line.length > LONGEST) step.more = line;
  if (is(event, "noted")) return { ...step, tone: event.warning ? "warning" : "note" };
  if (is(event, "retrieved")) return { ...step, more: event.query };
  if (is(event, "pruned")) return { ...step, tone: "left-out" };
  if (is(event, "viewed")) return { ...step, more: event.log };
  if (is(event, "routed") && event.verdict === "refused") return { ...step, tone: "left-out" };
  if (is(event, "asked") || is(event, "measured")) {
    const { input_tokens: read, output_tokens: written } = event.usage;
    const cost = `${counted(read, "token")} read, ${counted(written, "token")} written`;
    const call = { ...step, tone: "call" as const };
    call.text = `${text} in ${seconds(event.seconds)}: ${cost}`;
    return is(event, "asked") ? { ...call, more: event.reply } : call;
  }
  if (is(event, "answered")) {
    const dropped = event.dropped.length && { more: `Dropped: ${event.dropped.join("; ")}` };
    return { ...step, tone: "end", ...dropped };
  }
  return step;
}

/** The places to open: those an event names, whichever strategy it is of. */
function spansOf(event: TraceEvent): Span[] {
  const fields = event as unknown as Record<string, unknown>;
  const found = fields["unseen"] ?? fields["spans"] ?? fields["citations"];
  return Array.isArray(found) ? found.filter(isSpan) : [];
}

const isSpan = (value: unknown): value is Span =>
  typeof value === "object" && value !== null && "document_id" in value && "start" in value;

const nameOf = (event: TraceEvent): string => (is(event, "noted") ? event.text : event.event);

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
