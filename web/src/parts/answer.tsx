import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { around, pieces } from "../marks";
import { oneLine, place, withoutHashes, withoutOption } from "../format";
import type { Answer, Citation, Entry, EventOf, Likely, LocatedPassage, Span } from "../types";
import { Grid, type Column } from "./grid";
import { Excerpt, Few, InLibrary, SpanLink, spanKey } from "./spans";

const spanOf = (citation: Citation): Span => ({
  document_id: citation.document,
  start: citation.start,
  end: citation.end,
});

const GROUNDS = {
  documents: "From the documents",
  computed: "Computed from figures in the documents",
  none: "Nothing in the documents supports this",
};

/** The answer, with marks that link to its sources, and the sources below. */
export function AnswerText({
  answer,
  library,
  readAll,
}: {
  answer: Answer;
  library: string;
  readAll?: (() => void) | undefined;
}) {
  const [lit, setLit] = useState(0);
  const others = answer.citations.map(spanOf);
  const light = (number: number) => ({
    onMouseEnter: () => setLit(number),
    onMouseLeave: () => setLit(0),
    onFocusIn: () => setLit(number),
    onFocusOut: () => setLit(0),
  });
  const short = answer.short_answer?.trim();
  return (
    <InLibrary.Provider value={library}>
      <div class={answer.found ? "answer" : "answer not-found"}>
        {answer.found && short && short.length < 160 && short !== answer.answer.trim() && (
          <p class="short">{short}</p>
        )}
        <p class="said">
          {pieces(answer).map((piece, at, all) => {
            const struck =
              !("cited" in piece && piece.cited.length) && all[at + 1]?.kind === "uncited";
            if (piece.kind === "uncited")
              return (
                <span key={at} class="uncited" title="No document was found that supports this">
                  no source
                </span>
              );
            if (piece.kind === "text")
              return (
                <span key={at} class={piece.cited.includes(lit) ? "lit" : undefined}>
                  {struck ? <s>{withoutHashes(piece.text)}</s> : withoutHashes(piece.text)}
                </span>
              );
            const citation = answer.citations[piece.number - 1];
            if (!citation) return null;
            return (
              <span key={at} class="cite-place" {...light(piece.number)}>
                <SpanLink
                  class="cite"
                  span={spanOf(citation)}
                  number={piece.number}
                  others={others}
                >
                  <span class="unseen">Source </span>
                  {piece.number}
                </SpanLink>
              </span>
            );
          })}
        </p>
        <p class="quiet ground">
          {!answer.found
            ? "The documents that were read do not contain the answer."
            : answer.ground && GROUNDS[answer.ground]}
          {answer.found &&
            answer.probability != null &&
            `; likely right: ${Math.min(99, Math.round(100 * answer.probability))}%`}
        </p>
      </div>
      {answer.table && <Documents entries={answer.table} />}
      {answer.citations.length > 0 && (
        <div class="sources">
          <h2 class="cap">Sources</h2>
          <ol>
            <Few all={answer.citations} most={20}>
              {(citation, at) => (
                <li key={at} class={lit === at + 1 ? "lit" : undefined} {...light(at + 1)}>
                  <SpanLink class="source" span={spanOf(citation)} number={at + 1} others={others}>
                    <span class="number" aria-hidden="true">
                      {at + 1}
                    </span>
                    <span class="where">
                      <b>{citation.title}</b>
                      <small>{place(citation)}</small>
                      {citation.table_head && (
                        <small class="head">{oneLine(citation.table_head)}</small>
                      )}
                    </span>
                    <q>{oneLine(citation.quote, 320)}</q>
                  </SpanLink>
                </li>
              )}
            </Few>
          </ol>
        </div>
      )}
      {answer.how && <p class="quiet how">{answer.how}</p>}
      {answer.warnings.length > 0 && (
        <ul class="warnings" aria-label="Warnings">
          <Few all={answer.warnings} most={10}>
            {(warning, at) => <Warning key={at} text={warning} readAll={readAll} />}
          </Few>
        </ul>
      )}
    </InLibrary.Provider>
  );
}

/** What each document says, beside the answer; each value opens its place. */
function Documents({ entries }: { entries: Entry[] }) {
  const named = new Map(entries.map(({ document, title }) => [document, title]));
  const heads = [...new Set(entries.map(({ column }) => column))];
  const cell = (document: string, head: string) =>
    entries.filter((each) => each.document === document && each.column === head);
  const texts = (of: Entry[]) => of.map(({ text }) => text).join("; ") || null;
  const columns: Column<string>[] = [
    ["Document", (document) => named.get(document)],
    ...heads.map((head): Column<string> => [head, (document) => texts(cell(document, head))]),
  ];
  return (
    <Grid
      label="What each document says"
      kind="cells"
      search="Search the table"
      few={10}
      columns={columns}
      rows={[...named.keys()]}
      text={(document) =>
        [named.get(document), ...heads.map((head) => texts(cell(document, head)))].join(" ")
      }
    >
      {(document) => (
        <tr key={document}>
          <th scope="row">{named.get(document)}</th>
          {heads.map((head) => (
            <td key={head}>
              {cell(document, head).map(({ text, citation }, at) => (
                <span key={at}>
                  {citation ? (
                    <SpanLink span={spanOf(citation)}>{text}</SpanLink>
                  ) : (
                    <span class="quiet">not found</span>
                  )}{" "}
                </span>
              ))}
            </td>
          ))}
        </tr>
      )}
    </Grid>
  );
}

/** The answer as it is written, with marks where a sentence is confirmed, and what is struck out. */
export function Draft({ draft, library }: { draft: EventOf<"drafted">[]; library: string }) {
  const spans = draft.flatMap(({ passages }) => passages.map(({ span }) => span));
  const keys = [...new Set(spans.map(spanKey))];
  return (
    <InLibrary.Provider value={library}>
      <div class="answer draft">
        <h2 class="cap">Being written and checked</h2>
        <p class="said">
          {draft.map(({ text, state, passages, why }, at) => (
            <span key={at}>
              {state === "struck" ? <s>{withoutHashes(text)}</s> : withoutHashes(text)}{" "}
              {why && <span class="uncited">struck out: {why}</span>}
              {!why &&
                passages.map(({ span }) => (
                  <SpanLink key={spanKey(span)} class="cite" span={span}>
                    <span class="unseen">Source </span>
                    {keys.indexOf(spanKey(span)) + 1}
                  </SpanLink>
                ))}{" "}
            </span>
          ))}
        </p>
      </div>
    </InLibrary.Provider>
  );
}

function Warning({ text, readAll }: { text: string; readAll?: (() => void) | undefined }) {
  const said = withoutOption(text);
  if (said === text) return <li>{text}</li>;
  return (
    <li>
      {said}.{" "}
      {readAll && (
        <>
          <button type="button" onClick={readAll}>
            Read all {said.match(/\d[\d,]*/g)?.at(-1)} documents
          </button>{" "}
          This takes many model calls.
        </>
      )}
    </li>
  );
}

/** What the search found, to look at before the answer is there. */
export function Located({
  passages,
  library,
  busy,
}: {
  passages: LocatedPassage[];
  library: string;
  busy: boolean;
}) {
  return (
    <InLibrary.Provider value={library}>
      <div class="sources located">
        <h2 class="cap">{busy ? "Found so far, being read" : "Found before the end"}</h2>
        <ol>
          <Few all={passages} most={10}>
            {(each, at) => (
              <Found key={at} passage={each}>
                <Excerpt span={each.span} most={160} />
              </Found>
            )}
          </Few>
        </ol>
      </div>
    </InLibrary.Provider>
  );
}

function Found({ passage, children }: { passage: LocatedPassage; children: ComponentChildren }) {
  return (
    <li>
      <SpanLink class="source" span={passage.span}>
        <span class="number" aria-hidden="true">
          ·
        </span>
        <span class="where">
          <b>{passage.title}</b>
          <small>{place(passage)}</small>
        </span>
        {children}
      </SpanLink>
    </li>
  );
}

/** The sentence that likely answers, with the words marked, before the model has read it. */
export function LikelyHere({
  likely: { sentence, answer },
  library,
  busy,
}: {
  likely: Likely;
  library: string;
  busy: boolean;
}) {
  const [before, words, after] = around(sentence, answer);
  return (
    <InLibrary.Provider value={library}>
      <div class="sources likely">
        <h2 class="cap">{busy ? "Likely the answer, being checked" : "Likely, not checked"}</h2>
        <ol>
          <Found passage={sentence}>
            <q>
              {before}
              <mark>{words}</mark>
              {after}
            </q>
          </Found>
        </ol>
      </div>
    </InLibrary.Provider>
  );
}
