// The JSON of the API. Spans count code points, half-open (see codepoints.ts).

export type Span = { document_id: string; start: number; end: number };

export type Citation = {
  document: string;
  title: string;
  section: string[];
  page: number | null;
  row?: number | null; // absent from runs kept by older versions
  table_head?: string;
  date?: string;
  authors?: string;
  source?: string;
  start: number;
  end: number;
  quote: string;
  meaning?: "supports" | "unclear" | null;
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
  split?: Record<string, number>;
};

/** What a document says in a column of the table beside an answer. */
export type Entry = {
  document: string;
  title: string;
  column: string;
  text: string;
  citation: Citation | null;
};

export type Answer = {
  table?: Entry[];
  question: string;
  strategy: string;
  answer: string;
  short_answer: string | null;
  found: boolean;
  ground?: "documents" | "computed" | "none";
  how?: string;
  probability?: number | null; // absent from runs kept by older versions
  citations: Citation[];
  evidence: Evidence[];
  usage: Usage;
  warnings: string[];
  run?: string;
  seconds?: number;
};

export type CellValue = {
  written: string;
  value: string | number | boolean | null; // null: it cannot be read in one way
  unit: string;
  citation: Citation | null;
  probability: number | null;
};

/** `reason` says why no value holds, `doubt` why a person should look at it. */
export type Cell = {
  values: CellValue[];
  reason: string | null;
  corrected: boolean;
  doubt: string;
};

/** The cells of a document, or of a record in it with a name, by the name of their column. */
export type Row = { document: string; title: string; name: string; cells: Record<string, Cell> };

export type Table = {
  columns: { name: string }[];
  rows: Row[];
  usage: Usage;
  warnings: string[];
  seconds?: number;
};

export type Estimate = { columns: string[]; documents: number; calls: number; tokens: number };

export type Strategy = {
  name: string;
  summary: string;
  runs?: boolean | null;
  why_not?: string;
};

export type About = {
  version: string;
  models: Record<string, string | null>;
  advice: string;
  strategies: Strategy[];
  limits: Record<string, number | null>;
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
  date: string;
};

export type Page = { number: number; start: number; end: number };

/** Left, top, right and bottom, in shares of a page's width and height. */
export type Box = [number, number, number, number];

export type DocumentText = {
  id: string;
  title: string;
  media_type?: string;
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
  children: number[];
};

export type Tree = {
  document: string;
  title: string;
  structure: { confidence: number; basis: string };
  nodes: TreeNode[];
};

export type Problem = {
  type?: string;
  title: string;
  detail?: string;
  status?: number;
  hint?: string;
};

export type RunInfo = {
  id: string;
  library?: string;
  question: string;
  strategy: string;
  parameters?: Record<string, unknown>;
  retriever?: string | null; // absent from runs kept by older versions
  documents?: string[] | null;
  where?: string[]; // absent from runs kept by older versions
  state: "queued" | "running" | "done" | "failed" | "cancelled" | string;
  began: string | number;
  seconds: number | null;
  calls?: number; // absent from runs kept by older versions
  found: boolean | null;
  feedback?: Feedback | null; // absent from runs kept by older versions
};

/** What a person says of an answer. */
export type Feedback = { good: boolean; note: string };

export type Job = {
  id: string;
  library: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  phase: string;
  done: number;
  total: number;
  problems: { file: string; why: string; hint: string }[];
  documents: string[];
};

// ---- events of a run

export type LocatedPassage = {
  span: Span;
  title: string;
  section: string[];
  page: number | null;
  date?: string; // absent from runs kept by older versions
  source?: string;
};

/** A sentence that likely answers, and the words in it. */
export type Likely = { sentence: LocatedPassage & { text: string }; answer: Span };

/** A step of a run. `line` says it in a sentence; runs recorded by early versions have none. */
export type TraceEvent = { event: string; at: number; line?: string };

/** The fields of the events that the page does more with than show their line. */
export type Events = {
  noted: { text: string; warning: boolean };
  filled: { rows: Row[] };
  progressed: { phase: string; done: number; total: number };
  retrieved: { query: string; spans: Span[]; scores: number[]; how: string; seconds: number };
  scored: { signal: string; spans: Span[]; scores: number[] };
  pruned: { spans: Span[]; reason: string };
  asking: { what: string; prompt_tokens: number };
  writing: { tokens: number };
  drafted: {
    index: number;
    text: string;
    state: "writing" | "confirmed" | "struck";
    passages: LocatedPassage[];
    why: string;
  };
  asked: { reply: string; usage: TokenUsage; seconds: number };
  measured: { usage: TokenUsage; seconds: number };
  shortened: { spans: Span[]; texts: string[]; shares: number[] };
  answered: { found: boolean; citations: Span[]; dropped: string[] };
  // auto
  located: { passages: LocatedPassage[] };
  likely: Likely;
  // DuQUAD
  listed: { units: "documents" | "passages"; spans: Span[]; titles: string[] };
  weighted: {
    spans: Span[];
    signals: Record<string, number[]>;
    weights: Record<string, number>;
    scores: number[];
    missing: string[];
  };
  viewed: { agent: "global" | "local"; log: string; important: number[] };
  gated: {
    threshold: number;
    scores: { number: number; p: number; kept: boolean }[];
    missing: number[];
  };
  // DualRAG
  reasoned: { round: number; thought: string };
  identified: { round: number; links: { name: string }[]; queries: string[][] };
  gathered: { round: number; entity: string; unseen: Span[] };
  summarised: { round: number; entity: string; fragments: FoundThere[] };
  outlined: { round: number; entities: { name: string; fragments: FoundThere[] }[] };
  stopped: { reason: string };
  // SPD-RAG
  planned: { tasks: string[]; directive: string; documents: number };
  agentturn: { document: string; title: string; turn: number; shown?: Span[]; query: string };
  agentended: {
    document: string;
    title: string;
    findings: FoundThere[];
    relevance: number;
    dropped: number;
    problem: string;
    report?: string; // absent from runs kept by older versions
  };
  grouped: { level: number; groups: number[][]; tokens: number[]; budget: number };
  // RDR2; early versions wrote `lit` for `highlighted` and `expelled` for `rejected`
  routed: {
    document: string;
    round: number;
    expanded: number | null;
    highlighted?: number[];
    lit?: number[];
    shown: string;
    verdict: string;
    actions: { tag: "answer" | "expand"; node: number }[];
    rejected?: { why: string }[];
    expelled?: { why: string }[];
  };
  // LongRefiner
  structured: { document: string; basis: string; nodes: number };
  weighed: { document: string; scope: number | null; selected: string[]; nodes: NodeScore[] };
  selected: { spans: Span[]; tokens: number; budget: number };
};

export type EventOf<Name extends keyof Events> = TraceEvent & { event: Name } & Events[Name];

/** Whether an event is of a kind, with its fields. */
export const is = <Name extends keyof Events>(
  event: TraceEvent,
  name: Name,
): event is EventOf<Name> => event.event === name;

export type TokenUsage = { input_tokens: number; output_tokens: number };
export type FoundThere = { text: string; spans: Span[] };

export type NodeScore = {
  span: Span;
  level: string;
  title: string;
  local_score: number;
  global_score: number;
  score: number;
  kept: boolean;
};
