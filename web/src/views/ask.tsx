import { signal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { AnswerText, Located } from "../parts/answer";
import { Effort, Parameters, StrategyChoice, asValues, summaryOf } from "../parts/asking";
import { Drop } from "../parts/drop";
import { Arrow } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { RunPane } from "../parts/runpane";
import { link } from "../route";
import { Run, lastOf } from "../run";
import { counted } from "../format";
import { about, current, documentsOf, library } from "../state";

// Outside the view, so that the text and the run survive a change of views.
const question = signal("");
const strategy = signal("auto");
const parameters = signal<Record<string, string>>({});
const chosen = signal<string[]>([]);
const limits = { tokens: signal(""), seconds: signal("") };
const run = signal<Run | null>(null);

function ask(): void {
  const asked = question.value.trim();
  if (!asked) return;
  run.value?.cancel();
  const started = new Run(library.value, asked, strategy.value);
  run.value = started;
  void started.ask({
    question: asked,
    strategy: strategy.value,
    parameters: asValues(strategy.value, parameters.value),
    documents: chosen.value.length ? chosen.value : null,
    max_tokens_total: positive(limits.tokens.value),
    timeout: positive(limits.seconds.value),
  });
}

function positive(text: string): number | null {
  const number = Number(text);
  return text && number > 0 ? number : null;
}

export function AskView() {
  const empty = current.value?.documents === 0;
  const now = run.value;
  useEffect(() => {
    chosen.value = [];
  }, [library.value]);
  return (
    <div class={now ? "ask asked" : "ask"}>
      <div class="left">
        {!now && (
          <div class="welcome">
            <h1>Ask your documents</h1>
            <p>{stock()}</p>
          </div>
        )}
        {now && <h1 class="unseen">Ask</h1>}
        {empty && !now ? <Drop /> : <QuestionForm />}
        {now && <Outcome run={now} />}
      </div>
      {now && <RunPane run={now} />}
    </div>
  );
}

function stock(): string {
  const now = current.value;
  if (!now) return "";
  if (!now.documents) return "The library is empty. Add the files that your questions are about.";
  const pages = now.pages ? `, ${counted(now.pages, "page")}` : "";
  return `${counted(now.documents, "document")}${pages}, ${counted(now.passages, "passage")}. Every claim in an answer links to the place that supports it.`;
}

function QuestionForm() {
  const field = useRef<HTMLTextAreaElement>(null);
  const limit = about.value?.limits["question_characters"] ?? undefined;
  const changed = [
    ...Object.keys(parameters.value).filter((name) => name !== "effort"), // it has a slider
    ...chosen.value,
    limits.tokens.value,
    limits.seconds.value,
  ];
  const set = changed.filter(Boolean).length;
  useEffect(() => {
    const box = field.current;
    if (!box) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  }, [question.value, run.value]); // the form is narrower next to a run
  return (
    <form
      class="question"
      onSubmit={(event) => {
        event.preventDefault();
        ask();
      }}
    >
      <label class="unseen" for="question">
        Question
      </label>
      <textarea
        id="question"
        ref={field}
        rows={2}
        value={question.value}
        maxLength={limit}
        placeholder="What do you want to know?"
        onInput={(event) => (question.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            ask();
          }
        }}
      />
      <div class="row">
        <StrategyChoice value={strategy} id="strategy" />
        {strategy.value === "auto" && <Effort values={parameters} />}
        <button class="primary" disabled={!question.value.trim()}>
          Ask <Arrow />
        </button>
      </div>
      <p class="quiet summary">{summaryOf(strategy.value)}</p>
      <details class="settings">
        <summary>
          Settings
          {set > 0 && <b class="count">{set}</b>}
        </summary>
        <DocumentChoice />
        <div class="parameters">
          <Limit value={limits.tokens} step="1">
            token limit
          </Limit>
          <Limit value={limits.seconds} step="any">
            time limit in seconds
          </Limit>
        </div>
        <p class="cap">{strategy.value}</p>
        <Parameters strategy={strategy.value} values={parameters} />
      </details>
    </form>
  );
}

function Limit({
  value,
  step,
  children,
}: {
  value: Signal<string>;
  step: string;
  children: string;
}) {
  return (
    <label class={value.value ? "field changed" : "field"}>
      <span>{children}</span>
      <input
        type="number"
        min="1"
        step={step}
        placeholder="no limit"
        value={value.value}
        onInput={(event) => (value.value = event.currentTarget.value)}
      />
    </label>
  );
}

function DocumentChoice() {
  const all = documentsOf(library.value).value ?? [];
  if (!all.length) return null;
  return (
    <fieldset class="documents-choice">
      <legend>
        {chosen.value.length ? `Only ${counted(chosen.value.length, "document")}` : "All documents"}
      </legend>
      {all.map((each) => (
        <label key={each.id} class="check">
          <input
            type="checkbox"
            checked={chosen.value.includes(each.id)}
            onChange={(event) => {
              const others = chosen.value.filter((id) => id !== each.id);
              chosen.value = event.currentTarget.checked ? [...others, each.id] : others;
            }}
          />
          {each.title}
        </label>
      ))}
    </fieldset>
  );
}

export function Outcome({ run }: { run: Run }) {
  const answer = run.answer.value;
  const problem = run.problem.value;
  const located = answer ? undefined : lastOf(run.events.value, "located");
  return (
    <section
      class="outcome"
      aria-label={`Answer of ${run.strategy}`}
      aria-live="polite"
      aria-busy={run.busy.value}
    >
      {run.busy.value && (
        <div class="writing" aria-label="Working">
          <i />
          <i />
          <i />
        </div>
      )}
      {located && <Located passages={located.passages} library={run.library} />}
      {problem && <ProblemNote problem={problem} />}
      {run.state.value === "cancelled" && <p class="quiet">The run was stopped.</p>}
      {answer && <AnswerText answer={answer} library={run.library} />}
      {run.id && !run.busy.value && (
        <p class="quiet after">
          <a href={link("run", [run.id])}>Replay this run</a>
        </p>
      )}
    </section>
  );
}
