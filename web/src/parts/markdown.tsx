// Markdown of documents as elements. Every piece keeps its place in the source, so that highlights
// stay exact, and no markup of a document is used: HTML in it is text, links lead nowhere.
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmTableFromMarkdown } from "mdast-util-gfm-table";
import { gfmTable } from "micromark-extension-gfm-table";
import type { JSX } from "preact";

// The tree has the blocks already, so only what is inside one is parsed.
const OFF = ["codeIndented", "htmlFlow", "htmlText", "setextUnderline", "definition", "list"];
const OPTIONS = {
  extensions: [gfmTable(), { disable: { null: OFF } }],
  mdastExtensions: [gfmTableFromMarkdown()],
};

type Node = ReturnType<typeof fromMarkdown>["children"][number];
/** Show the source from start to end; `value` is what it says without marks and escapes. */
type Leaf = (start: number, end: number, value: string) => JSX.Element;

/** The elements of one block of Markdown; null if it has to be a table and is none. */
export function markdown(source: string, leaf: Leaf, table: boolean): JSX.Element | null {
  const { children } = fromMarkdown(source, OPTIONS);
  if (table && (children.length !== 1 || children[0]?.type !== "table")) return null;
  return <>{children.map((node) => element(node, leaf))}</>;
}

function element(node: Node, leaf: Leaf): JSX.Element {
  const start = node.position?.start.offset ?? 0;
  const end = node.position?.end.offset ?? start;
  if (node.type === "table") {
    const [head, ...rows] = node.children;
    return (
      <table>
        <thead>{head && element(head, leaf)}</thead>
        <tbody>{rows.map((row) => element(row, leaf))}</tbody>
      </table>
    );
  }
  const inside = "children" in node ? node.children.map((each) => element(each, leaf)) : [];
  switch (node.type) {
    case "tableRow":
      return <tr>{inside}</tr>;
    case "tableCell":
      return <td>{inside}</td>;
    case "strong":
    case "heading":
      return <strong>{inside}</strong>;
    case "emphasis":
      return <em>{inside}</em>;
    case "inlineCode":
      return <code>{leaf(start, end, node.value)}</code>;
    case "thematicBreak":
      return <span class="rule" />;
    case "break":
      return <br />;
    case "text":
      return leaf(start, end, node.value);
    case "image":
      return leaf(start, end, node.alt ?? "");
    default:
      return inside.length ? <>{inside}</> : leaf(start, end, "value" in node ? node.value : "");
  }
}
