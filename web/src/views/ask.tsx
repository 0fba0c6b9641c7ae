import { signal, useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { AnswerText, Draft, LikelyHere, Located } from "../parts/answer";
import {
  Efforts,
  Parameters,
  RetrieverChoice,
  StrategyChoice,
  asValues,
  summaryOf,
} from "../parts/asking";
import { Drop } from "../parts/drop";
import { Arrow, Stop } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { RunPane } from "../parts/runpane";
import { Few, InLibrary, SpanLink, useSearch } from "../parts/spans";
import { go, link, type Route } from "../route";
import { Run, draftOf, lastOf } from "../run";
import { counted, firstWords, oneLine } from "../format";
import { about, asFailure, current, documentsOf, isKept, library, loadDocuments } from "../state";
import type { Answer, DocumentInfo, Tree } from "../types";

// Outside the view, so that the text and the run survive a change of views.
const question = signal("");
const strategy = signal("auto");
const parameters = signal<Record<string, string>>({});
const retriever = signal("");
// What the questions of each library may read: the documents ticked, all if none, that meet this.
type Scope = { ticked: string[]; where: string };
const scopes = signal<Record<string, Scope>>({});
const limits = { tokens: signal(""), seconds: signal("") };
const risk = signal(""); // "" is the reader's own
const run = signal<Run | null>(null);
const earlier = signal<Run[]>([]); // the turns of the conversation before the run

const scopeOf = (name: string): Scope => scopes.value[name] ?? { ticked: [], where: "" };

function restrict(name: string, change: Partial<Scope>): void {
  scopes.value = { ...scopes.value, [name]: { ...scopeOf(name), ...change } };
}

function ask(asked: string, before: Run[] = []): void {
  if (!asked) return;
  earlier.value = before;
  // A follow-up stays in the library of the answer before.
  const last = before.at(-1);
  const name = last?.library ?? library.value;
  if (last?.kept) {
    // It was shown without the form; from now on the form says what it might read.
    const { documents, where = [] } = last.kept;
    restrict(name, { ticked: documents ?? [], where: where.join("; ") });
    last.kept = null;
  }
  const { ticked, where } = scopeOf(name);
  start(name, {
    question: asked,
    strategy: strategy.value,
    parameters: asValues(strategy.value, parameters.value),
    retriever: retriever.value || null,
    documents: ticked.length ? ticked : null,
    where: split(where),
    max_tokens_total: positive(limits.tokens.value),
    timeout: positive(limits.seconds.value),
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

/** The conditions of a field: a semicolon parts them only where the next one begins. */
function split(conditions: string): string[] {
  const parted = conditions.split(/;(?=[\s;]*(?:$|[\p{L}\p{N}_]+\s*(?:!=|[=<>~])))/u);
  const found = parted.map((each) => each.trim());
  return found.filter(Boolean);
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

function positive(text: string): number | null {
  const number = Number(text);
  return text && number > 0 ? number : null;
}

/** Whether the run of an address is the one in this view. */
export const isInView = ({ parts }: Route): boolean => run.value?.id === parts[0];

export function AskView() {
  const filled = !!current.value?.documents; // not before it is known
  const now = run.value;
  const documents = documentsOf(library.value).value;
  useEffect(() => {
    if (!documents) return;
    const { ticked } = scopeOf(library.value); // those removed can no longer be read
    restrict(library.value, {
      ticked: ticked.filter((id) => documents.some((each) => each.id === id)),
    });
  }, [documents]);
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
        {(now || filled) && <QuestionForm />}
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
  if (!now.documents) return "The library is empty. Add the files that your questions are about.";
  const pages = now.pages ? `, ${counted(now.pages, "page")}` : "";
  return `${counted(now.documents, "document")}${pages}, ${counted(now.passages, "passage")}. Every claim in an answer links to the place that supports it.`;
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

function QuestionForm() {
  const field = useRef<HTMLTextAreaElement>(null);
  const limit = about.value?.limits["question_characters"] ?? undefined;
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
        ask(question.value.trim());
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
            ask(question.value.trim());
          }
        }}
      />
      <Efforts strategy={strategy} values={parameters} />
      <div class="row">
        <Settings />
        <button class="primary" disabled={!question.value.trim()}>
          Ask <Arrow />
        </button>
      </div>
    </form>
  );
}

function Settings() {
  const limited = [limits.tokens.value, limits.seconds.value, risk.value].filter(Boolean);
  const { ticked, where } = scopeOf(library.value);
  const set = [...ticked, ...split(where), ...limited].length;
  const named = strategy.value !== "auto";
  const given = Object.keys(parameters.value).filter((name) => name !== "effort").length;
  return (
    <div class="grow">
      <details class="settings">
        <summary>
          Settings
          {set > 0 && <b class="count">{set}</b>}
        </summary>
        <DocumentChoice />
        <label class={where ? "field changed" : "field"}>
          <span>only documents that meet these conditions</span>
          <input
            placeholder="date>=2024; title~report"
            value={where}
            onInput={(event) => restrict(library.value, { where: event.currentTarget.value })}
          />
          <small>
            Conditions on date, title, file or language, with semicolons between them; ~ means
            “contains”.
          </small>
        </label>
        <div class="parameters">
          <Limit value={limits.tokens} step="1" why="Tokens read and written, added together.">
            token limit
          </Limit>
          <Limit value={limits.seconds} step="any" why="After it the run ends without an answer.">
            time limit in seconds
          </Limit>
          <label class={risk.value ? "field changed" : "field"}>
            <span>when to answer</span>
            <select
              value={risk.value}
              onChange={(event) => (risk.value = event.currentTarget.value)}
            >
              <option value="">as the server is set (default)</option>
              <option>careful</option>
              <option>balanced</option>
              <option>eager</option>
            </select>
            <small>
              Of ten answers given, how many may be wrong: careful one, balanced two, eager four.
            </small>
          </label>
        </div>
      </details>
      <details class="settings">
        <summary>
          For researchers
          {named && <b class="count">{strategy.value}</b>}
          {given > 0 && <b class="count">{given}</b>}
          {retriever.value && <b class="count">{retriever.value}</b>}
        </summary>
        <p class="quiet">
          Choose one published method or a baseline instead of the three efforts, and its
          parameters.
        </p>
        <StrategyChoice value={strategy} id="strategy" />
        <p class="quiet summary">{summaryOf(strategy.value)}</p>
        <RetrieverChoice value={retriever} />
        <Parameters strategy={strategy.value} values={parameters} />
      </details>
    </div>
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

function Limit({
  value,
  step,
  why,
  children,
}: {
  value: Signal<string>;
  step: string;
  why: string;
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
      <small>{why}</small>
    </label>
  );
}

function DocumentChoice() {
  const { ticked } = scopeOf(library.value);
  const all = documentsOf(library.value).value ?? [];
  const [found, search] = useSearch(
    all,
    "Search documents",
    (each) => `${each.title} ${each.source}`,
  );
  if (!all.length) return null;
  return (
    <fieldset class="documents-choice">
      <legend>
        {ticked.length ? (
          <>
            Read only {counted(ticked.length, "document")}{" "}
            <button
              type="button"
              class="link"
              onClick={() => restrict(library.value, { ticked: [] })}
            >
              Untick all
            </button>
          </>
        ) : (
          "Read all documents, or only those ticked"
        )}
      </legend>
      {search}
      <Few all={found} most={50} last={(button) => <p class="more">{button}</p>}>
        {(each) => (
          <label key={each.id} class="check">
            <input
              type="checkbox"
              checked={ticked.includes(each.id)}
              onChange={(event) => {
                const others = ticked.filter((id) => id !== each.id);
                const all = event.currentTarget.checked ? [...others, each.id] : others;
                restrict(library.value, { ticked: all });
              }}
            />
            {each.title}
          </label>
        )}
      </Few>
    </fieldset>
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
      {run.id && !run.busy.value && <After run={run} />}
    </section>
  );
}

const FILES = { md: "Markdown", html: "HTML", docx: "Word", bib: "BibTeX" };

/** Whether a document cited says who wrote it, or when: others are not in a BibTeX file. */
const isDocumented = (answer: Answer): boolean =>
  answer.citations.some((each) => each.authors || each.date);

/** What can be done with a run that has ended: copy, download or send its answer. */
function After({ run }: { run: Run }) {
  const said = useSignal("");
  const answer = run.answer.value;
  const address = link("run", [run.id]);
  const act = (work: Promise<void>, done: string) =>
    void work.then(
      () => (said.value = done),
      (error: unknown) => (said.value = asFailure(error).problem.title),
    );
  const markdown = () => api.answerFile(run.id, "md").then((file) => file.text());
  return (
    <div class="quiet after">
      {/* Browsers offer the clipboard to pages of this machine, or over https, alone. */}
      {answer && "clipboard" in navigator && (
        <>
          <button type="button" onClick={() => act(copy(markdown()), "Copied as Markdown")}>
            Copy
          </button>
          <button
            type="button"
            onClick={() =>
              act(copy(Promise.resolve(new URL(address, location.href).href)), "Link copied")
            }
          >
            Copy link
          </button>
        </>
      )}
      {answer &&
        Object.entries(FILES)
          .filter(([ending]) => ending !== "bib" || isDocumented(answer))
          .map(([ending, name]) => (
            <button
              key={ending}
              type="button"
              aria-label={`Download as ${name}`}
              onClick={() =>
                act(
                  download(api.answerFile(run.id, ending), firstWords(run.question), ending),
                  "Downloaded",
                )
              }
            >
              ↓ {name}
            </button>
          ))}
      <span role="status">{said.value}</span>
    </div>
  );
}

/** Copy a text that is still to come: Safari allows it only to the click itself. */
async function copy(text: Promise<string>): Promise<void> {
  const type = "text/plain";
  const blob = text.then((content) => new Blob([content], { type }));
  await navigator.clipboard.write([new ClipboardItem({ [type]: blob })]);
}

/** A link could not send the token, so the file is fetched and given to the browser. */
export async function download(
  file: Promise<Response>,
  name: string,
  ending: string,
): Promise<void> {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(await (await file).blob());
  anchor.download = `${name}.${ending}`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}
