// A run as the page sees it: events as they come, then an answer or a problem.
import { computed, signal } from "@preact/signals";
import * as api from "./api";
import type { Message } from "./sse";
import {
  is,
  type Answer,
  type EventOf,
  type Events,
  type Feedback,
  type Problem,
  type RunInfo,
  type Table,
  type TraceEvent,
} from "./types";

export type State = "starting" | "queued" | "running" | "done" | "failed" | "cancelled";

const EVERY_MS = 50; // events are shown in batches: thousands may come in a second

export class Run {
  readonly events = signal<readonly TraceEvent[]>([]);
  readonly state = signal<State>("starting");
  readonly place = signal<number | null>(null);
  readonly answer = signal<Answer | null>(null);
  readonly table = signal<Table | null>(null);
  readonly problem = signal<Problem | null>(null);
  readonly feedback = signal<Feedback | null>(null);
  readonly seconds = signal(0);
  readonly busy = computed(() => ["starting", "queued", "running"].includes(this.state.value));
  id = "";
  asked: api.Asked | null = null;
  kept: RunInfo | null = null; // of a run that was opened by its address

  private readonly control = new AbortController();
  private readonly waiting: TraceEvent[] = [];
  private flushing: ReturnType<typeof setTimeout> | null = null;
  private ticking: ReturnType<typeof setInterval> | null = null;

  constructor(
    readonly library: string,
    readonly question: string,
    readonly strategy: string,
  ) {}

  /** Ask, and follow until the end. */
  async ask(asked: api.Asked): Promise<void> {
    this.asked = asked;
    this.tick();
    await this.follow(api.ask(this.library, asked, this.control.signal));
  }

  /** Fill a table, and follow until the end. */
  async fill(asked: api.AskedTable): Promise<void> {
    this.tick();
    await this.follow(api.fill(this.library, asked, this.control.signal));
  }

  /** Show a run that has ended, or follow one under way. */
  async open(id: string, info: RunInfo): Promise<void> {
    this.id = id;
    this.kept = info;
    this.feedback.value = info.feedback ?? null;
    this.state.value = "running";
    await this.follow(api.runEvents(id, this.control.signal));
  }

  /** Hang up, which frees the run on the server. */
  cancel(): void {
    this.control.abort();
    if (this.busy.value) this.end("cancelled");
  }

  private async follow(stream: AsyncGenerator<Message>): Promise<void> {
    try {
      for await (const message of stream) this.hear(message);
      this.flush();
      if (this.busy.value) await this.settle();
    } catch (error) {
      this.flush();
      await this.fail(error);
    }
  }

  private hear(message: Message): void {
    const data: unknown = JSON.parse(message.data);
    if (message.event === "event") {
      this.state.value = "running";
      this.take(data as TraceEvent);
      if (!this.ticking) this.seconds.value = (data as TraceEvent).at;
    } else if (message.event === "run") {
      this.id = (data as { id: string }).id;
    } else if (message.event === "queued") {
      this.place.value = (data as { place: number }).place;
      this.state.value = "queued";
    } else if (message.event === "answer") {
      this.flush();
      this.finish(data as Answer);
    } else if (message.event === "table") {
      this.flush();
      this.table.value = data as Table;
      this.end("done");
    } else if (message.event === "problem") {
      this.flush();
      const problem = data as Problem;
      if (isStop(problem)) return this.end("cancelled");
      this.problem.value = problem;
      this.end("failed");
    }
  }

  /** Ask the server how the run ended, after a stream without an answer or a problem. */
  private async settle(): Promise<void> {
    if (this.id) {
      const known = await api.runById(this.id).catch(() => null);
      if (known?.table) {
        this.table.value = known.table;
        return this.end("done");
      }
      if (known?.answer) return this.finish(known.answer);
      if (known?.state === "cancelled") return this.end("cancelled");
    }
    this.problem.value = {
      title: "The run was interrupted",
      detail: "the connection ended before the answer",
    };
    this.end("failed");
  }

  private finish(answer: Answer): void {
    this.answer.value = answer;
    this.seconds.value = answer.seconds ?? answer.usage.seconds;
    this.end("done");
  }

  private async fail(error: unknown): Promise<void> {
    if (this.control.signal.aborted) return this.end("cancelled");
    if (!(error instanceof api.Failure)) return this.settle(); // the connection broke
    this.problem.value = error.problem;
    this.end("failed");
  }

  private end(state: State): void {
    this.state.value = state;
    if (this.ticking) clearInterval(this.ticking);
  }

  private tick(): void {
    const began = performance.now();
    this.ticking = setInterval(
      () => (this.seconds.value = (performance.now() - began) / 1000),
      100,
    );
  }

  private take(event: TraceEvent): void {
    this.waiting.push(event);
    this.flushing ??= setTimeout(() => this.flush(), EVERY_MS);
  }

  private flush(): void {
    if (this.flushing) clearTimeout(this.flushing);
    this.flushing = null;
    if (this.waiting.length) this.events.value = [...this.events.value, ...this.waiting.splice(0)];
  }
}

/** Whether a run ended so because somebody stopped it: no kind of error is named. */
const isStop = ({ type, status }: Problem): boolean => type === "about:blank" && status === 409;

/** The events of one kind, in order. */
export function of<Name extends keyof Events>(
  events: readonly TraceEvent[],
  name: Name,
): EventOf<Name>[] {
  return events.filter((event) => is(event, name));
}

export function lastOf<Name extends keyof Events>(
  events: readonly TraceEvent[],
  name: Name,
): EventOf<Name> | undefined {
  return events.findLast((event) => is(event, name));
}

/** The sentences of the answer that is being written; an event without text withdraws some. */
export function draftOf(events: readonly TraceEvent[]): EventOf<"drafted">[] {
  const draft: EventOf<"drafted">[] = [];
  for (const event of events) {
    if (is(event, "answered")) draft.length = 0;
    if (!is(event, "drafted")) continue;
    if (event.text) draft[event.index] = event;
    else draft.length = event.index;
  }
  return draft;
}

export type Spent = {
  /** Calls that write text, and those that only judge; both with the one under way. */
  calls: number;
  judgements: number;
  input: number;
  output: number;
  /** The call under way, and what it reads. */
  reading: { writes: boolean; tokens: number } | null;
  /** What it has written so far, in tokens; of calls at the same time, the one that said so last. */
  writing: number;
};

/** The usage of models so far, what is being read included; after the run the answer has its own. */
export function spent(events: readonly TraceEvent[]): Spent {
  const sum: Spent = { calls: 0, judgements: 0, input: 0, output: 0, reading: null, writing: 0 };
  for (const event of events) {
    if (is(event, "asking"))
      sum.reading = { writes: event.what === "chat", tokens: event.prompt_tokens };
    if (is(event, "writing")) sum.writing = event.tokens;
    if (!is(event, "asked") && !is(event, "measured")) continue;
    sum.reading = null;
    sum.writing = 0;
    sum[is(event, "asked") ? "calls" : "judgements"] += 1;
    sum.input += event.usage.input_tokens;
    sum.output += event.usage.output_tokens;
  }
  if (sum.reading) sum[sum.reading.writes ? "calls" : "judgements"] += 1;
  sum.input += sum.reading?.tokens ?? 0;
  sum.output += sum.writing;
  return sum;
}
