import { signal } from "@preact/signals";
import { StrategyChoice, summaryOf } from "../parts/asking";
import { Arrow } from "../parts/icons";
import { RunPane } from "../parts/runpane";
import { overlaps } from "../parts/spans";
import { Run } from "../run";
import { compact, counted, dollars, seconds } from "../format";
import { library } from "../state";
import type { Answer, Citation } from "../types";
import { Outcome } from "./ask";

const question = signal("");
const strategies = [signal("auto"), signal("retrieve-read")] as const;
const runs = signal<[Run, Run] | null>(null);

function compare(): void {
  const asked = question.value.trim();
  if (!asked) return;
  runs.value?.forEach((run) => run.cancel());
  const started = strategies.map((strategy) => new Run(library.value, asked, strategy.value)) as [
    Run,
    Run,
  ];
  runs.value = started;
  for (const run of started) {
    void run.ask({
      question: asked,
      strategy: run.strategy,
      parameters: {},
      documents: null,
      max_tokens_total: null,
      timeout: null,
      history: [],
    });
  }
}

export function CompareView() {
  const now = runs.value;
  return (
    <div class="compare">
      <div class="head">
        <form
          class="question"
          onSubmit={(event) => {
            event.preventDefault();
            compare();
          }}
        >
          <h1>{now ? "Compare" : "Two strategies, one question"}</h1>
          <label class="unseen" for="compared">
            Question
          </label>
          <textarea
            id="compared"
            rows={2}
            value={question.value}
            placeholder="What do you want to know?"
            onInput={(event) => (question.value = event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                compare();
              }
            }}
          />
          <div class="row">
            <StrategyChoice value={strategies[0]} label="First" id="first" />
            <StrategyChoice value={strategies[1]} label="Second" id="second" />
            <button class="primary" disabled={!question.value.trim()}>
              Compare <Arrow />
            </button>
          </div>
        </form>
        {now && <Verdict runs={now} />}
      </div>
      {now && (
        <div class="sides">
          {now.map((run, at) => (
            <article key={at} class="side" aria-label={run.strategy}>
              <header>
                <h2>{run.strategy}</h2>
                <p class="quiet">{summaryOf(run.strategy)}</p>
              </header>
              <Outcome run={run} />
              <RunPane run={run} />
            </article>
          ))}
        </div>
      )}
    </div>
  );
}

/** Both results side by side. */
function Verdict({ runs: [first, second] }: { runs: [Run, Run] }) {
  const [a, b] = [first.answer.value, second.answer.value];
  if (!a || !b) return null;
  const rows: [string, (answer: Answer, run: Run) => string][] = [
    ["Answer", (answer) => (answer.found ? answer.short_answer || "found" : "not found")],
    ["Time", (_, run) => seconds(run.seconds.value)],
    ["Model calls", (answer) => compact(answer.usage.calls)],
    ["Tokens read", (answer) => compact(answer.usage.input_tokens)],
    ["Tokens written", (answer) => compact(answer.usage.output_tokens)],
    ["Cost", (answer) => dollars(answer.usage.cost_usd)],
    ["Citations", (answer) => String(answer.citations.length)],
  ];
  const shared = a.citations.filter((one) =>
    b.citations.some((other) => overlaps(asSpan(one), asSpan(other))),
  ).length;
  return (
    <table class="verdict-table">
      <caption>
        {shared ? `${counted(shared, "place")} cited by both` : "No place is cited by both"}
      </caption>
      <thead>
        <tr>
          <td />
          <th scope="col">{first.strategy}</th>
          <th scope="col">{second.strategy}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, show]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{show(a, first)}</td>
            <td>{show(b, second)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const asSpan = (citation: Citation) => ({
  document_id: citation.document,
  start: citation.start,
  end: citation.end,
});
