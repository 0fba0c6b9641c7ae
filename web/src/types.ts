// What the API says. Spans count code points, half-open (see codepoints.ts).

export type Span = { document_id: string; start: number; end: number };

export type Citation = {
  document: string;
  title: string;
  section: string[];
  page: number | null;
  start: number;
  end: number;
  quote: string;
  answer_spans: [number, number][];
};

export type Evidence = {
  document: string;
  start: number;
  end: number;
  score: number;
  reason: string;
};

export type Usage = {
  calls: number;
  input_tokens: number;
  output_tokens: number;
  scoring_passes: number;
  retrieval_rounds: number;
  seconds: number;
  cost_usd: number | null;
  by_role: Record<string, Record<string, number>>;
};

export type Answer = {
  question: string;
  strategy: string;
  answer: string;
  short_answer: string | null;
  found: boolean;
  citations: Citation[];
  evidence: Evidence[];
  usage: Usage;
  warnings: string[];
  run?: string;
  seconds?: number;
};

export type Parameter = { name: string; type: string; default: unknown };

export type Strategy = {
  name: string;
  summary: string;
  parameters: Parameter[];
  runs?: boolean | null;
  why_not?: string;
};

export type About = {
  version: string;
  models: Record<string, string | null>;
  strategies: Strategy[];
  limits: Record<string, number | null>;
  libraries?: unknown;
};

export type Library = { name: string; documents: number; pages: number; passages: number };

export type DocumentInfo = {
  id: string;
  title: string;
  source: string;
  characters: number;
  pages: number;
  passages: number;
  language: string;
};

export type Page = { number: number; start: number; end: number };

export type DocumentText = {
  id: string;
  title: string;
  characters: number;
  pages: Page[];
  text: string;
  start: number;
  end: number;
};

export type TreeNode = {
  id: number;
  kind: "root" | "section" | "paragraph" | "list_item" | "table" | "code";
  level: number;
  title: string;
  start: number;
  end: number;
  page: number | null;
  parent: number | null;
  children: number[];
};

export type Tree = {
  document: string;
  title: string;
  structure: { confidence: number; basis: string; note: string };
  nodes: TreeNode[];
};

export type Problem = { title: string; detail?: string; status?: number; hint?: string };

export type RunInfo = {
  id: string;
  library?: string;
  question: string;
  strategy: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled" | string;
  began: string | number;
  seconds: number | null;
  found: boolean | null;
};

export type Job = {
  id: string;
  library: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  phase: string;
  done: number;
  total: number;
  problems: { file: string; why: string }[];
  documents: string[];
};

// ---- events of a run: strategies/trace.py and *_trace.py

export type TokenUsage = { input_tokens: number; output_tokens: number };
export type FoundThere = { text: string; spans: Span[] };
type At = { at: number };

export type TraceEvent = At &
  (
    | { event: "noted"; text: string; warning: boolean }
    | { event: "progressed"; phase: string; done: number; total: number; what: string }
    | {
        event: "retrieved";
        query: string;
        spans: Span[];
        scores: number[];
        how: string;
        seconds: number;
      }
    | { event: "scored"; signal: string; spans: Span[]; scores: number[]; seconds: number }
    | { event: "pruned"; spans: Span[]; reason: string }
    | { event: "asking"; role: string; model: string; what: string; prompt_tokens: number }
    | {
        event: "asked";
        role: string;
        model: string;
        reply: string;
        usage: TokenUsage;
        seconds: number;
      }
    | {
        event: "measured";
        signal: string;
        role: string;
        model: string;
        values: number[];
        usage: TokenUsage;
        seconds: number;
      }
    | { event: "parsed"; schema: string; stages: Record<string, number> }
    | {
        event: "routed";
        document: string;
        round: number;
        expanded: number | null;
        lit: number[];
        shown: string;
        omitted: number[];
        verdict: string;
        actions: { tag: "answer" | "expand"; node: number }[];
        expelled: { tag: string; node: number; why: string }[];
        dropped: string[];
      }
    | {
        event: "structured";
        document: string;
        basis: string;
        nodes: number;
        coverage: number;
        lost: string[];
        kept: boolean;
      }
    | {
        event: "weighed";
        document: string;
        scope: number | null;
        selected: string[];
        nodes: NodeScore[];
      }
    | { event: "selected"; spans: Span[]; tokens: number; budget: number; documents: number }
    | { event: "shortened"; spans: Span[]; texts: string[]; shares: number[] }
    | { event: "listed"; units: "documents" | "passages"; spans: Span[]; titles: string[] }
    | {
        event: "weighted";
        spans: Span[];
        fusion: string;
        signals: Record<string, number[]>;
        weights: Record<string, number>;
        scores: number[];
        missing: string[];
      }
    | {
        event: "viewed";
        agent: "global" | "local";
        shown: number[];
        log: string;
        important: number[];
        named: boolean;
      }
    | { event: "gated"; threshold: number; scores: DocumentScore[]; missing: number[] }
    | {
        event: "reasoned";
        round: number;
        thought: string;
        need_retrieve: boolean;
        facts: string[];
        readable: boolean;
      }
    | {
        event: "identified";
        round: number;
        links: { asked: string; name: string; how: string }[];
        queries: string[][];
        readable: boolean;
      }
    | {
        event: "gathered";
        round: number;
        entity: string;
        queries: string[];
        spans: Span[];
        scores: number[];
        how: string;
        unseen: Span[];
      }
    | {
        event: "summarised";
        round: number;
        entity: string;
        said: number;
        fragments: FoundThere[];
        readable: boolean;
      }
    | {
        event: "outlined";
        round: number;
        entities: { name: string; fragments: FoundThere[] }[];
        new: FoundThere[];
      }
    | { event: "stopped"; rounds: number; reason: string }
    | { event: "planned"; tasks: string[]; directive: string; documents: number; kept: boolean }
    | {
        event: "agentturn";
        document: string;
        title: string;
        turn: number;
        findings: string[];
        action: string;
        query: string;
        shown: Span[];
      }
    | {
        event: "agentended";
        document: string;
        title: string;
        status: string;
        findings: FoundThere[];
        relevance: number;
        searches: number;
        turns: number;
        dropped: number;
        problem: string;
        kept: boolean;
      }
    | {
        event: "grouped";
        level: number;
        groups: number[][];
        tokens: number[];
        budget: number;
        forced: boolean;
      }
    | {
        event: "synthesised";
        level: number;
        group: number;
        findings: FoundThere[];
        passed_on: boolean;
      }
    | { event: "answered"; found: boolean; text: string; citations: Span[]; dropped: string[] }
  );

export type EventName = TraceEvent["event"];
export type EventOf<Name extends EventName> = Extract<TraceEvent, { event: Name }>;

export type NodeScore = {
  span: Span;
  level: string;
  title: string;
  local_score: number;
  global_score: number;
  score: number;
  kept: boolean;
};

export type DocumentScore = {
  number: number;
  p: number;
  answer: string;
  kept: boolean;
  sentences: Span[];
};
