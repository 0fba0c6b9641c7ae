import { signal, useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { AnswerText, Draft, LikelyHere, Located } from "../parts/answer";
import { After } from "../parts/after";
import {
  AUTO,
  Box,
  Depth,
  MoreChoices,
  NORMAL,
  RetrieverChoice,
  StrategyChoice,
} from "../parts/asking";
import { Drop } from "../parts/drop";
import { Arrow, Stop } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { RunPane } from "../parts/runpane";
import { ScopeChoice, requested, restrictAs, scopeOf } from "../parts/scope";
import { InLibrary, SpanLink } from "../parts/spans";
import { Verdict } from "../parts/verdict";
import { go, link, type Route } from "../route";
import { Run, draftOf, lastOf } from "../run";
import { counted, oneLine } from "../format";
import { EMPTY, about, current, documentsOf, isKept, library, loadDocuments } from "../state";
import type { DocumentInfo, Tree } from "../types";

// Outside the view, so that the text and the run survive a change of views.
const question = signal("");
const effort = signal(NORMAL);
const strategy = signal(AUTO);
const retriever = signal("");
const scopes = signal({});
const risk = signal(""); // "" is the reader's own
const run = signal<Run | null>(null);
const earlier = signal<Run[]>([]); // the turns of the conversation before the run

function ask(asked: string, before: Run[] = []): void {
  if (!asked) return;
  earlier.value = before;
  // A follow-up stays in the library of the answer before.
  const last = before.at(-1);
  const name = last?.library ?? library.value;
  if (last?.kept) {
    // It was shown without the form; from now on the form says what it might read.
    restrictAs(scopes, name, last.kept);
    last.kept = null;
  }
  const deep = strategy.value === AUTO && effort.value !== NORMAL;
  start(name, {
    question: asked,
    strategy: strategy.value,
    parameters: deep ? { effort: effort.value } : {},
    retriever: retriever.value || null,
    ...requested(scopes, name),
    risk: risk.value || null,
    history: before.flatMap(turnOf),
  });
}

function start(library: string, asked: api.Asked): void {
  go(link("ask"));
  run.value?.cancel();
  run.value = new Run(library, asked.question, asked.strategy);
  void run.value.ask(asked);
}

function turnOf({ answer: { value: answer } }: Run): api.Turn[] {
  if (!answer) return [];
  const cited = answer.evidence.filter((each) =>
    answer.citations.some(
      (citation) =>
        citation.document === each.document &&
        citation.start < each.end &&
        each.start < citation.end,
    ),
  );
  const places = cited.map(({ document, start, end }) => ({ document, start, end }));
  const said = answer.short_answer ?? answer.answer;
  return [{ question: answer.question, answer: said, cited: places }];
}

/** Whether the run of an address is the one in this view. */
export const isInView = ({ parts }: Route): boolean => run.value?.id === parts[0];

export function AskView() {
  const filled = !!current.value?.documents; // not before it is known
  const now = run.value;
  const turns = [...earlier.value, ...(now ? [now] : [])].filter((each) => each.answer.value);
  const ended = now && !now.busy.value && now.id;
  useEffect(() => {
    if (ended) history.replaceState(null, "", link("run", [ended]));
  }, [ended]);
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
        {(now || filled) && <QuestionForm ended={ended || ""} />}
        {!now && filled && <Samples />}
        {!now && <Latest />}
        {!now && <Drop />}
        <Earlier />
        {now && earlier.value.length > 0 && <h2 class="asked-now">{now.question}</h2>}
        {now && <Outcome run={now} again={(asked) => start(now.library, asked)} />}
        {now && !now.busy.value && turns.length > 0 && (
          <FollowUp before={turns} asked={now.answer.value ? "" : now.question} />
        )}
      </div>
      {now && <RunPane run={now} />}
    </div>
  );
}

function stock(): string {
  const now = current.value;
  if (!now) return "";
  if (!now.documents) return EMPTY;
  const pages = now.pages ? `, ${counted(now.pages, "page")}` : "";
  return `${counted(now.documents, "document")}${pages}. Every claim in an answer links to the place that supports it.`;
}

const LATEST = 3;

/** The documents that were added last, newest first. */
function latest(): DocumentInfo[] {
  return (documentsOf(library.value).value ?? []).slice(-LATEST).reverse();
}

function Latest() {
  const found = latest();
  if (!found.length) return null;
  return (
    <InLibrary.Provider value={library.value}>
      <p class="latest">
        Added last:{" "}
        {found.map((each, at) => (
          <span key={each.id}>
            {at > 0 && ", "}
            <SpanLink span={{ document_id: each.id, start: 0, end: 0 }}>
              {oneLine(each.title, 60)}
            </SpanLink>
          </span>
        ))}
      </p>
    </InLibrary.Provider>
  );
}

/** Questions that the titles and headings of the latest documents suggest. */
function Samples() {
  const [asked, setAsked] = useState<string[]>([]);
  const [newest, other] = latest();
  useEffect(() => {
    setAsked([]);
    if (!newest) return;
    let wanted = true;
    const title = `“${oneLine(newest.title, 60)}”`;
    const both = other && `How do ${title} and “${oneLine(other.title, 60)}” differ?`;
    const make = (heading?: string) => {
      const about = heading && `What does ${title} say about “${heading}”?`;
      if (wanted)
        setAsked([`What is ${title} about?`, about, both].filter((each) => !!each) as string[]);
    };
    api.tree(library.value, newest.id).then(
      (tree) => make(longestSection(tree)),
      () => make(),
    );
    return () => void (wanted = false);
  }, [newest?.id, other?.id]);
  if (!asked.length) return null;
  return (
    <div class="samples">
      <h2 class="cap">For example</h2>
      <ul>
        {asked.map((each) => (
          <li key={each}>
            <button
              type="button"
              onClick={() => {
                question.value = each;
                document.getElementById("question")?.focus();
              }}
            >
              {each}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The heading over most text, of those that can be named in a question. */
function longestSection({ title, nodes }: Tree): string | undefined {
  return nodes
    .filter((node) => node.kind === "section" && node.title !== title)
    .filter((node) => node.title !== "Introduction" && /^.{4,60}$/.test(node.title))
    .filter((node) => !node.children.some((child) => nodes[child]?.kind === "section"))
    .sort((a, b) => b.end - b.start - (a.end - a.start))[0]?.title;
}

function QuestionForm({ ended }: { ended: string }) {
  const named = strategy.value !== AUTO;
  const { ticked, where } = scopeOf(scopes, library.value);
  const set = [ticked.length, where, risk.value, named, retriever.value].filter(Boolean).length;
  return (
    <form
      class="question"
      onSubmit={(event) => {
        event.preventDefault();
        event.currentTarget.querySelector("details")!.open = false; // the answer comes below it
        ask(question.value.trim());
      }}
    >
      <Box
        id="question"
        label="Question"
        value={question}
        placeholder="What do you want to know?"
      />
      <div class="row">
        {named ? (
          <p class="grow">
            Method: <b>{strategy.value}</b>
          </p>
        ) : (
          <Depth value={effort} ended={ended} />
        )}
        <button class="primary" disabled={!question.value.trim()}>
          Ask <Arrow />
        </button>
      </div>
      <MoreChoices set={set}>
        <ScopeChoice scopes={scopes} />
        <label class={risk.value ? "field changed" : "field"}>
          <span>when to answer</span>
          <select value={risk.value} onChange={(event) => (risk.value = event.currentTarget.value)}>
            <option value="">as the server is set (default)</option>
            <option>careful</option>
            <option>balanced</option>
            <option>eager</option>
          </select>
          <small>
            Of ten answers given, how many may be wrong: careful one, balanced two, eager four.
          </small>
        </label>
        <StrategyChoice value={strategy} />
        <RetrieverChoice value={retriever} />
      </MoreChoices>
    </form>
  );
}

/** The turns of the conversation before the run, folded. */
function Earlier() {
  if (!earlier.value.length) return null;
  return (
    <section class="earlier" aria-label="Earlier in this conversation">
      {earlier.value.map((each) => (
        <details key={each.id}>
          <summary>{each.answer.value?.question}</summary>
          {each.answer.value && <AnswerText answer={each.answer.value} library={each.library} />}
        </details>
      ))}
    </section>
  );
}

/** The field for the next question of a conversation; `asked` is one that got no answer. */
export function FollowUp({ before, asked = "" }: { before: Run[]; asked?: string }) {
  const text = useSignal(asked);
  return (
    <form
      class="follow-up"
      onSubmit={(event) => {
        event.preventDefault();
        ask(text.value.trim(), before);
      }}
    >
      <input
        aria-label="Follow-up"
        placeholder="Ask a follow-up question"
        maxLength={about.value?.limits["question_characters"] ?? undefined}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      <button disabled={!text.value.trim()}>Ask</button>
    </form>
  );
}

/** How a run ended; `again` asks once more with what is changed in the request. */
export function Outcome({ run, again }: { run: Run; again?: (asked: api.Asked) => void }) {
  const answer = run.answer.value;
  const { asked } = run;
  const problem = run.problem.value;
  const located = answer ? undefined : lastOf(run.events.value, "located");
  const likely = answer ? undefined : lastOf(run.events.value, "likely");
  const draft = run.busy.value ? draftOf(run.events.value) : [];
  useEffect(() => {
    // One that another program added since the list was loaded can be opened too.
    if (answer?.evidence.some(({ document }) => !isKept(run.library, document)))
      void loadDocuments(run.library);
  }, [answer]);
  return (
    <section
      class="outcome"
      aria-label={`Answer of ${run.strategy}`}
      aria-live="polite"
      aria-busy={run.busy.value}
    >
      {run.busy.value && (
        <div class="writing" role="group" aria-label="Working">
          <i />
          <i />
          <i />
          {asked && (
            <button type="button" onClick={() => run.cancel()}>
              <Stop /> Stop
            </button>
          )}
        </div>
      )}
      {problem && <ProblemNote problem={problem} />}
      {run.state.value === "cancelled" && <p class="quiet">The run was stopped.</p>}
      {draft.length > 0 && <Draft draft={draft} library={run.library} />}
      {likely && <LikelyHere likely={likely} library={run.library} busy={run.busy.value} />}
      {located && (
        <Located passages={located.passages} library={run.library} busy={run.busy.value} />
      )}
      {answer && answer.question !== run.question && (
        <p class="quiet asked-as">
          Asked as: {answer.question}{" "}
          <button type="button" onClick={() => (question.value = answer.question)}>
            Edit
          </button>
        </p>
      )}
      {answer && (
        <AnswerText
          answer={answer}
          library={run.library}
          readAll={again && asked ? () => again({ ...asked, yes: true }) : undefined}
        />
      )}
      {answer && run.id && <After run={run} made="answer" />}
      {answer && run.id && <Verdict run={run} />}
    </section>
  );
}
