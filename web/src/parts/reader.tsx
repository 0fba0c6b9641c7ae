import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { blocks, parts, path, rangesIn, type Block } from "../blocks";
import { Text } from "../codepoints";
import { counted } from "../format";
import { asFailure } from "../state";
import type { DocumentText, Problem, Span, Tree, TreeNode } from "../types";
import { ProblemNote } from "./problem";

const BEFORE = 40_000;
const AT_ONCE = 160_000; // characters; the server gives 200,000 at most

type Shown = { library: string; id: string; start: number; end: number; others?: Span[] };

/** A document's text next to its headings, scrolled to a highlighted span. */
export function Reader({ library, id, start, end, others = [] }: Shown) {
  const [tree, setTree] = useState<Tree | null>(null);
  const [text, setText] = useState<DocumentText | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [aim, setAim] = useState({ place: start, highlight: end > start });
  const box = useRef<HTMLDivElement>(null);

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
  }, [here, tree, aim]);

  if (problem) return <ProblemNote problem={problem} />;
  if (!text || !tree || text.id !== id) return <p class="quiet loading">Opening the document…</p>;

  const more = async (from: number, to: number) => {
    const found = await api.documentText(library, id, Math.max(0, from), to);
    setText((now) => {
      if (!now) return found;
      const [first, second] = found.start < now.start ? [found, now] : [now, found];
      return { ...now, start: first.start, end: second.end, text: first.text + second.text };
    });
  };
  const main = end > start ? { start, end } : null;
  return (
    <div class="reader">
      <Headings
        tree={tree}
        lit={main ? path(tree.nodes, start) : []}
        go={(place) => setAim({ place, highlight: false })}
      />
      <div class="text" ref={box} tabIndex={0} role="region" aria-label={`Text of ${text.title}`}>
        {text.start > 0 && (
          <button
            type="button"
            class="more-text"
            onClick={() => void more(text.start - AT_ONCE, text.start)}
          >
            Show earlier text
          </button>
        )}
        <Body text={text} nodes={tree.nodes} main={main} others={rangesIn(id, others)} />
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
    </div>
  );
}

type Made = {
  text: DocumentText;
  nodes: TreeNode[];
  main: { start: number; end: number } | null;
  others: { start: number; end: number }[];
};

function Body({ text, nodes, main, others }: Made) {
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
}: { block: Block; whole: Text; text: DocumentText } & Pick<Made, "main" | "others">) {
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
  const pre = kind === "code" || kind === "table";
  const said = cut.map((part) => {
    const slice = whole.slice(part.start, part.end);
    return (
      <>
        {part.page !== null && <PageMark number={part.page} />}
        {part.lit ? <mark class={part.main ? "main" : undefined}>{slice}</mark> : slice}
      </>
    );
  });
  if (pre) return <pre data-at={block.start}>{said}</pre>;
  return (
    <p class={kind} data-at={block.start}>
      {said}
    </p>
  );
}

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
