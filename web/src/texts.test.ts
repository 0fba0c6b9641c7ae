import { describe, expect, it } from "vitest";
import { blocks, parts, path } from "./blocks";
import { Text } from "./codepoints";
import { oneLine, withoutHashes } from "./format";
import { around, pieces } from "./marks";
import { drawn, marksOf } from "./pictures/lines";
import { sentences } from "./sentences";
import { messages } from "./sse";
import type { TraceEvent, TreeNode } from "./types";

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

describe("a sentence around the words to mark", () => {
  it("is one line, cut by code points where it is long", () => {
    const cut = (text: string, start: number, end: number) => {
      const span = { document_id: "a", start: 7, end: 7 + Array.from(text).length };
      const sentence = { span, text, title: "A", section: [], page: null };
      return around(sentence, { document_id: "a", start, end });
    };
    expect(cut("| 🚲 | 3,700\n| x |", 13, 18)).toEqual([" 🚲 ", "3,700", " x "]);
    const [before, words, after] = cut(`${"b".repeat(999)}words${"a".repeat(999)}`, 1006, 1011);
    expect([before.length, words, after.length]).toEqual([201, "words", 201]);
  });
});

describe("an answer in pieces", () => {
  it("has marks, uncited places, and the text that rests on each citation", () => {
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

describe("Markdown that is quoted", () => {
  it("has no marks of headings", () => {
    expect(oneLine("# Yard\n\n### Bicycles\nThey stand in it.")).toBe(
      "Yard Bicycles They stand in it.",
    );
    expect(withoutHashes("#### Results\nIssue #4 # 5")).toBe("Results\nIssue #4 # 5");
    expect(withoutHashes("# of shares: 5")).toBe("# of shares: 5");
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

describe("the steps of a run", () => {
  const spans = [{ document_id: "a", start: 0, end: 5 }];
  const usage = { input_tokens: 900, output_tokens: 20 };
  const steps = (...events: (Omit<TraceEvent, "at"> & Record<string, unknown>)[]) =>
    sentences(events.map((event) => ({ at: 0, ...event }) as TraceEvent)).map(
      ({ sentence }) => sentence,
    );

  it("are an event's own line, of whatever strategy, with the spans it names", () => {
    expect(steps({ event: "sorted", line: "sorted 1 passage", spans })).toEqual([
      { tone: "step", text: "Sorted 1 passage", spans },
    ]);
    expect(steps({ event: "sorted", line: "x", spans: [1, null, {}], fields: {} })).toEqual([
      { tone: "step", text: "X" },
    ]);
  });

  it("have the tone and the texts that the page adds", () => {
    const found = steps(
      { event: "noted", line: "slow", text: "slow", warning: true },
      { event: "retrieved", line: "found 1 passage", query: "who?", spans },
      { event: "routed", line: "routing a: refused", verdict: "refused" },
      { event: "asked", line: "the reader m replied", reply: "yes", usage, seconds: 2 },
      { event: "answered", line: "answered", citations: spans, dropped: ["it"] },
    );
    expect(found.map(({ tone }) => tone)).toEqual(["warning", "step", "left-out", "call", "end"]);
    expect(found.map(({ more }) => more)).toEqual([
      undefined,
      "who?",
      undefined,
      "yes",
      "Dropped: it",
    ]);
    expect(found[3]?.text).toBe(
      "The reader m replied in 2.0 s: 900 tokens read, 20 tokens written",
    );
  });

  it("leave out events without a line, and those that a progress bar shows", () => {
    expect(
      steps({ event: "quiet" }, { event: "asking", line: "asking" }, { event: "a", line: "b" }),
    ).toHaveLength(1);
  });

  it("of a run that was recorded before events had lines are the events' names", () => {
    expect(
      steps({ event: "gated", scores: [] }, { event: "noted", text: "slow", warning: false }),
    ).toMatchObject([{ text: "Gated" }, { tone: "note", text: "Slow" }]);
  });

  it("cut a long line and keep the whole of it", () => {
    const line = "word ".repeat(100).trim();
    const [step] = steps({ event: "reasoned", line });
    expect(step?.text).toHaveLength(240);
    expect(step?.more).toBe(line);
  });
});

describe("a routed document", () => {
  it("has its marks under their names of now and of before", () => {
    const now = { highlighted: [1], rejected: [{ why: "x" }] };
    expect(marksOf(now)).toEqual(marksOf({ lit: [1], expelled: [{ why: "x" }] }));
  });
});
