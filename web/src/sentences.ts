// A line for each event; what a model call says is told apart, as there may be hundreds.
import { counted, oneLine, seconds } from "./say";
import type { Span, TraceEvent } from "./types";

export type Sentence = {
  tone: "step" | "left-out" | "note" | "warning" | "call" | "end";
  said: string;
  more?: string;
  spans?: Span[];
};

/** What an event says, null for those that only drive a picture or a progress bar. */
export function sentence(event: TraceEvent): Sentence | null {
  switch (event.event) {
    case "noted":
      return { tone: event.warning ? "warning" : "note", said: event.text };
    case "retrieved":
      return {
        tone: "step",
        said: `Searched (${event.how}): ${counted(event.spans.length, "passage")}`,
        more: event.query,
        spans: event.spans,
      };
    case "scored":
      return {
        tone: "step",
        said: `Scored ${counted(event.spans.length, "passage")} by ${event.signal}`,
      };
    case "pruned":
      return {
        tone: "left-out",
        said: `Left out ${counted(event.spans.length, "passage")}: ${event.reason}`,
        spans: event.spans,
      };
    case "asked":
      return {
        tone: "call",
        said: `${capital(event.role)} replied in ${seconds(event.seconds)}: ${counted(event.usage.input_tokens, "token")} read, ${counted(event.usage.output_tokens, "token")} written`,
        more: event.reply,
      };
    case "measured":
      return {
        tone: "call",
        said: `${capital(event.role)} measured ${event.signal} of ${counted(event.values.length, "text")} in ${seconds(event.seconds)}`,
      };
    case "routed":
      return {
        tone: event.verdict === "refused" ? "left-out" : "step",
        said: `Routed a subtree of ${event.document}: ${event.actions.length ? counted(event.actions.length, "action") : event.verdict}`,
      };
    case "structured":
      return {
        tone: "step",
        said: `Structured ${event.document}: ${counted(event.nodes, "part")} from ${event.basis}`,
      };
    case "weighed":
      return {
        tone: "step",
        said: `Weighed ${counted(event.nodes.length, "part")} of ${event.document}`,
      };
    case "selected":
      return {
        tone: "step",
        said: `Kept ${counted(event.tokens, "token")} of a budget of ${event.budget} from ${counted(event.documents, "document")}`,
        spans: event.spans,
      };
    case "shortened":
      return {
        tone: "step",
        said: `Shortened ${counted(event.spans.length, "passage")}`,
        spans: event.spans,
      };
    case "listed":
      return { tone: "step", said: `Comparing ${event.spans.length} ${event.units}` };
    case "weighted":
      return {
        tone: "step",
        said: `Fused ${Object.keys(event.weights).join(", ")} of ${counted(event.spans.length, "text")}`,
      };
    case "viewed":
      return {
        tone: "step",
        said: `The ${event.agent} agent read ${counted(event.shown.length, "document")} and named ${event.important.join(", ") || "none"}`,
        more: event.log,
      };
    case "gated": {
      const kept = event.scores.filter((score) => score.kept).length;
      return {
        tone: "step",
        said: `${kept} of ${counted(event.scores.length, "candidate")} scored ${event.threshold} or more`,
      };
    }
    case "reasoned":
      return { tone: "step", said: `Round ${event.round}: ${oneLine(event.thought, 240)}` };
    case "identified":
      return {
        tone: "step",
        said: `Round ${event.round}: looking up ${event.links.map((each) => each.name).join(", ") || event.queries.flat().join(", ")}`,
      };
    case "gathered":
      return {
        tone: "step",
        said: `Read ${counted(event.unseen.length, "new passage")} for ${event.entity}`,
        spans: event.unseen,
      };
    case "summarised":
      return {
        tone: "step",
        said: `${event.entity}: ${counted(event.fragments.length, "statement")} with a place, of ${event.said} made`,
      };
    case "outlined":
      return {
        tone: "step",
        said: `The outline has ${counted(event.entities.length, "entity", "entities")}, ${event.new.length} statements new`,
      };
    case "stopped":
      return {
        tone: "step",
        said: `Stopped after ${counted(event.rounds, "round")}: ${event.reason}`,
      };
    case "planned":
      return {
        tone: "step",
        said: `Planned ${counted(event.tasks.length, "task")} for each of ${counted(event.documents, "document")}`,
      };
    case "agentturn":
      return {
        tone: "step",
        said: `${event.title}: ${event.action === "search" ? `searches “${event.query}”` : "done"}`,
      };
    case "agentended":
      return {
        tone: "step",
        said: `${event.title}: ${event.status}, ${counted(event.findings.length, "finding")}`,
      };
    case "grouped":
      return {
        tone: "step",
        said: `Level ${event.level}: ${event.groups.flat().length} texts in ${counted(event.groups.length, "group")}`,
      };
    case "synthesised":
      return {
        tone: "step",
        said: `Level ${event.level}: put together ${counted(event.findings.length, "finding")}`,
      };
    case "answered":
      return {
        tone: "end",
        said: event.found
          ? `Answered with ${counted(event.citations.length, "citation")}`
          : "Not in the documents",
        ...(event.dropped.length && { more: `Dropped on the way: ${event.dropped.join("; ")}` }),
      };
    default:
      return null;
  }
}

const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);
