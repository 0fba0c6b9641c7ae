import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { blocks, parts, path, rangesIn, type Block, type Part } from "../blocks";
import { Text, pointsOf } from "../codepoints";
import { counted } from "../format";
import { asFailure, documentsOf } from "../state";
import type { DocumentText, Problem, Span, Tree, TreeNode } from "../types";
import { markdown } from "./markdown";
import { PdfPage } from "./pdfpage";
import { ProblemNote } from "./problem";

// What these are read as is Markdown, with headings or without.
const MARKDOWN = /\.(md|markdown|docx|pptx|odt|html?|epub|rtf|eml)$/i;
const BEFORE = 40_000;
const AT_ONCE = 160_000; // characters; the server gives 200,000 at most

type Shown = { library: string; id: string; start: number; end: number; others?: Span[] };

/** Whether the pages of PDFs are shown beside their text. */
export const paged = signal(false);

/** A document's text next to its headings, scrolled to a highlighted span. */
export function Reader({ library, id, start, end, others = [] }: Shown) {
  const [tree, setTree] = useState<Tree | null>(null);
  const [text, setText] = useState<DocumentText | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [aim, setAim] = useState({ place: start, highlight: end > start });
  const [unseen, setUnseen] = useState<Problem | null>(null);
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => setUnseen(null), [library, id]);
  useEffect(() => setAim({ place: start, highlight: end > start }), [library, id, start, end]);

  useEffect(() => {
    let wanted = true;
    setTree(null);
    api.tree(library, id).then(
      (found) => wanted && setTree(found),
      (error: unknown) => wanted && setProblem(asFailure(error).problem),
    );
    return () => void (wanted = false);
  }, [library, id]);

  const here =
    text !== null &&
    text.id === id &&
    aim.place >= text.start &&
    (aim.place < text.end || text.end >= text.characters);
  useEffect(() => {
    if (here) return;
    let wanted = true;
    const from = Math.max(0, aim.place - BEFORE);
    api.documentText(library, id, from, from + AT_ONCE).then(
      (found) => wanted && (setText(found), setProblem(null)),
      (error: unknown) => wanted && setProblem(asFailure(error).problem),
    );
    return () => void (wanted = false);
  }, [library, id, aim.place, here]);

  useEffect(() => {
    if (!here || !tree || !box.current) return;
    const mark = aim.highlight
      ? box.current.querySelector("mark.main")
      : box.current.querySelector(`[data-at="${aim.place}"]`);
    if (mark) mark.scrollIntoView({ block: aim.highlight ? "center" : "start" });
    else if (aim.place === 0) box.current.scrollTo({ top: 0 });
  }, [here, tree, aim, paged.value]);

  const note = problem && <ProblemNote problem={problem} />;
  if (!text || !tree || text.id !== id)
    return note || <p class="quiet loading">Opening the document…</p>;

  const more = async (from: number, to: number) => {
    try {
      const found = await api.documentText(library, id, Math.max(0, from), to);
      setProblem(null);
      setText((now) => {
        // A second click brought it already, or another text is shown by now.
        if (now?.id !== found.id) return now;
        if (found.end === now.start)
          return { ...now, start: found.start, text: found.text + now.text };
        if (found.start === now.end) return { ...now, end: found.end, text: now.text + found.text };
        return now;
      });
    } catch (error) {
      setProblem(asFailure(error).problem);
    }
  };
  const main = end > start ? { start, end } : null;
  const source = documentsOf(library).value?.find((each) => each.id === id)?.source ?? "";
  const isPdf = /^application\/pdf$|^image\//.test(text.media_type ?? "");
  const isPaged = isPdf && paged.value && !unseen;
  return (
    <div class={isPaged ? "reader paged" : "reader"}>
      {isPdf && (
        <p class="page-switch">
          <button
            type="button"
            aria-pressed={isPaged}
            disabled={unseen !== null}
            onClick={() => (paged.value = !isPaged)}
          >
            {text.media_type === "application/pdf" ? "Page of the PDF" : "Picture"}
          </button>
          {paged.value && unseen && <span role="status">{unseen.detail ?? unseen.title}</span>}
        </p>
      )}
      <Headings
        tree={tree}
        lit={main ? path(tree.nodes, start) : []}
        go={(place) => setAim({ place, highlight: false })}
      />
      <div class="text" ref={box} tabIndex={0} role="region" aria-label={`Text of ${text.title}`}>
        {note}
        {text.start > 0 && (
          <button
            type="button"
            class="more-text"
            onClick={() => void more(text.start - AT_ONCE, text.start)}
          >
            Show earlier text
          </button>
        )}
        <Body
          text={text}
          nodes={tree.nodes}
          main={main}
          others={rangesIn(id, others)}
          marked={tree.structure.basis === "markup" || MARKDOWN.test(source)}
        />
        {text.end < text.characters && (
          <button
            type="button"
            class="more-text"
            onClick={() => void more(text.end, text.end + AT_ONCE)}
          >
            Show later text ({counted(text.characters - text.end, "character")})
          </button>
        )}
      </div>
      {isPaged && (
        <PdfPage library={library} text={text} place={aim.place} main={main} fail={setUnseen} />
      )}
    </div>
  );
}

type Made = {
  text: DocumentText;
  nodes: TreeNode[];
  main: { start: number; end: number } | null;
  others: { start: number; end: number }[];
  marked: boolean; // whether the text is Markdown
};

function Body({ text, nodes, main, others, marked }: Made) {
  const whole = useMemo(() => new Text(text.text, text.start), [text]);
  const all = useMemo(() => blocks(nodes, { start: text.start, end: text.end }), [nodes, text]);
  return (
    <>
      {all.map((block) => (
        <Typeset
          key={block.start}
          block={block}
          whole={whole}
          text={text}
          main={main}
          others={others}
          marked={marked}
        />
      ))}
    </>
  );
}

function Typeset({
  block,
  whole,
  text,
  main,
  others,
  marked,
}: { block: Block; whole: Text; text: DocumentText } & Pick<Made, "main" | "others" | "marked">) {
  const { node } = block;
  const cut = parts(block, main, others, text.pages);
  const kind = node?.kind ?? "between";
  if (kind === "section" && node) {
    const Heading = `h${Math.min(6, Math.max(2, node.level + 1))}` as "h2";
    const lit = cut.find((part) => part.lit && whole.slice(part.start, part.end).trim());
    return (
      <>
        <PageMarks parts={cut} />
        {node.title && (
          <Heading data-at={block.start}>
            {lit ? <mark class={lit.main ? "main" : undefined}>{node.title}</mark> : node.title}
          </Heading>
        )}
      </>
    );
  }
  if (!whole.slice(block.start, block.end).trim()) return <PageMarks parts={cut} />;
  const piece = (part: Part, said = whole.slice(part.start, part.end)) => (
    <>
      {part.page !== null && <PageMark number={part.page} />}
      {part.lit ? <mark class={part.main ? "main" : undefined}>{said}</mark> : said}
    </>
  );
  const table = kind === "table";
  if (table || (marked && kind !== "code")) {
    const source = whole.slice(block.start, block.end);
    const text =
      kind === "list_item" ? source.replace(BULLET, (mark) => " ".repeat(mark.length)) : source;
    const leaf = (from: number, to: number, value: string) => {
      const start = block.start + pointsOf(source.slice(0, from));
      const end = start + pointsOf(source.slice(from, to));
      const within = cut
        .filter((part) => part.start < end && start < part.end)
        .map((part) => ({
          ...part,
          start: Math.max(part.start, start),
          end: Math.min(part.end, end),
          page: part.start >= start && !table ? part.page : null,
        }));
      if (within.length === 1 && within[0]) return piece(within[0], value);
      return <>{within.map((part) => piece(part, unescaped(whole.slice(part.start, part.end))))}</>;
    };
    const said = markdown(text, leaf, table);
    if (said && table)
      return (
        <>
          <PageMarks parts={cut} />
          <div class="scroll" data-at={block.start} tabIndex={0} role="region" aria-label="Table">
            {said}
          </div>
        </>
      );
    if (said)
      return (
        <p class={`marked ${kind}`} data-at={block.start}>
          {said}
        </p>
      );
  }
  const said = cut.map((part) => piece(part));
  if (kind === "code" || table) return <pre data-at={block.start}>{said}</pre>;
  return (
    <p class={kind} data-at={block.start}>
      {said}
    </p>
  );
}

const BULLET = /^[ \t]*[-*+][ \t]+/;
const unescaped = (text: string): string => text.replace(/\\([!-/:-@[-`{-~])/g, "$1");

function PageMarks({ parts }: { parts: { page: number | null }[] }) {
  return <>{parts.map(({ page }) => page !== null && <PageMark key={page} number={page} />)}</>;
}

function PageMark({ number }: { number: number }) {
  return <span class="page-mark">page {number}</span>;
}

function Headings({ tree, lit, go }: { tree: Tree; lit: number[]; go: (place: number) => void }) {
  const sections = tree.nodes.filter((node) => node.kind === "section" && node.title);
  const wide = typeof matchMedia === "function" && matchMedia("(min-width: 56rem)").matches;
  const list = useRef<HTMLElement>(null);
  const last = lit.at(-1);
  useEffect(() => {
    list.current?.querySelector(".lit.last")?.scrollIntoView({ block: "center" });
  }, [last]);
  if (!sections.length) return <nav class="headings none" aria-label="Headings" />;
  const least = Math.min(...sections.map((node) => node.level));
  return (
    <nav class="headings" aria-label="Headings" ref={list}>
      <details open={wide}>
        <summary>{counted(sections.length, "heading")}</summary>
        <ul>
          {sections.map((node) => (
            <li
              key={node.id}
              class={lit.includes(node.id) ? `lit${node.id === last ? " last" : ""}` : undefined}
              style={{ "--depth": node.level - least }}
            >
              <button type="button" onClick={() => go(node.start)}>
                {node.title}
                {node.page !== null && <small>{node.page}</small>}
              </button>
            </li>
          ))}
        </ul>
        <p class="quiet">
          Structure from {tree.structure.basis}, {Math.round(100 * tree.structure.confidence)}%
          certain
        </p>
      </details>
    </nav>
  );
}
