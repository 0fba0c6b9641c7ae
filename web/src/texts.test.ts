import { describe, expect, it } from "vitest";
import { blocks, parts, path } from "./blocks";
import { Text } from "./codepoints";
import { pieces } from "./marks";
import { drawn } from "./pictures/lines";
import { messages } from "./sse";
import type { TreeNode } from "./types";

const citation = {
  document: "a",
  title: "A",
  section: [],
  page: null,
  start: 0,
  end: 1,
  quote: "q",
};

describe("Text", () => {
  it("cuts by code points, counted from its offset", () => {
    const text = new Text("a🚲b🔔c", 10);
    expect(text.length).toBe(5);
    expect(text.slice(11, 14)).toBe("🚲b🔔");
    expect(text.slice(0, 11)).toBe("a");
    expect(new Text("plain").slice(1, 3)).toBe("la");
  });
});

describe("an answer taken apart", () => {
  it("has marks, uncited places, and what each citation stands behind", () => {
    const found = pieces({
      answer: "🚲 One. [1] Two. [uncited] See [9].",
      citations: [{ ...citation, answer_spans: [[0, 6]] }],
    });
    expect(found).toEqual([
      { kind: "text", text: "🚲 One.", cited: [1] },
      { kind: "text", text: " ", cited: [] },
      { kind: "mark", number: 1 },
      { kind: "text", text: " Two. ", cited: [] },
      { kind: "uncited" },
      { kind: "text", text: " See [9].", cited: [] },
    ]);
  });
});

describe("server-sent events", () => {
  async function read(...chunks: string[]) {
    const sent = new ReadableStream<Uint8Array>({
      start(stream) {
        for (const chunk of chunks) stream.enqueue(new TextEncoder().encode(chunk));
        stream.close();
      },
    });
    const found = [];
    for await (const message of messages(sent)) found.push(message);
    return found;
  }

  it("are read whatever the chunks and the line ends, pings left out", async () => {
    const one = { id: "1", event: "event", data: '{"at":1}' };
    expect(await read('id: 1\nevent: event\ndata: {"a', 't":1}\n', "\n: ping\n\n")).toEqual([one]);
    expect(await read('id: 1\r\nevent: event\r\ndata: {"at":1}\r\n\r', "\n")).toEqual([one]);
    expect(await read("data: a\ndata: b\n\n")).toEqual([
      { id: "", event: "message", data: "a\nb" },
    ]);
  });

  it("end where the stream does: half an event is none", async () => {
    expect(await read("data: a\n\ndata: b\n")).toHaveLength(1);
  });
});

const node = (
  id: number,
  kind: TreeNode["kind"],
  start: number,
  end: number,
  children: number[] = [],
): TreeNode => ({
  id,
  kind,
  start,
  end,
  children,
  level: 1,
  title: kind === "section" ? `s${id}` : "",
  page: null,
  parent: null,
});

describe("a document's blocks", () => {
  const nodes = [
    node(0, "root", 0, 100, [1]),
    node(1, "section", 10, 90, [2, 3]),
    node(2, "paragraph", 15, 40),
    node(3, "list_item", 45, 80),
  ];

  it("cover the whole text once, in order", () => {
    const found = blocks(nodes, { start: 0, end: 100 });
    expect(found.map((block) => [block.node?.id ?? null, block.start, block.end])).toEqual([
      [null, 0, 10],
      [1, 10, 15],
      [2, 15, 40],
      [null, 40, 45],
      [3, 45, 80],
      [null, 80, 100],
    ]);
  });

  it("end where the text that is here ends", () => {
    const found = blocks(nodes, { start: 20, end: 50 });
    expect([found[0]?.start, found.at(-1)?.end]).toEqual([20, 50]);
  });

  it("are cut at highlights and pages", () => {
    const found = parts(
      { start: 15, end: 40 },
      { start: 20, end: 30 },
      [{ start: 28, end: 60 }],
      [{ number: 2, start: 25, end: 99 }],
    );
    expect(found.map((part) => [part.start, part.lit, part.main, part.page])).toEqual([
      [15, false, false, null],
      [20, true, true, null],
      [25, true, true, 2],
      [28, true, true, null],
      [30, true, false, null],
    ]);
  });

  it("lie under sections", () => expect(path(nodes, 20)).toEqual([1]));
});

describe("a routed tree", () => {
  it("shows what matters, what is above it, and the chapters; the rest is folded", () => {
    const shown =
      "-1: Title\n\t0: ==One==\n\t\t1: ===In one===\n\t\t\t2: a paragraph\n\t3: ==Two==\n\t\t4: ===In two===";
    const found = drawn([{ shown }], (id) => id === 2);
    expect(found.lines.map((line) => line.text)).toEqual(["One", "In one", "a paragraph", "Two"]);
    expect(found.folded).toBe(1);
  });
});
