// The text of spans, fetched when it is shown and kept while the page is open.
import { useEffect, useState } from "preact/hooks";
import * as api from "./api";

const MOST_KEPT = 2000;
const AT_ONCE = 4;
const known = new Map<string, Promise<string>>();
const line: (() => void)[] = [];
let going = 0;

async function turn<T>(work: () => Promise<T>): Promise<T> {
  if (going >= AT_ONCE) await new Promise<void>((resolve) => line.push(resolve));
  going += 1;
  try {
    return await work();
  } finally {
    going -= 1;
    line.shift()?.();
  }
}

export function textOf(library: string, id: string, start: number, end: number): Promise<string> {
  const key = JSON.stringify([library, id, start, end]);
  let text = known.get(key);
  if (!text) {
    if (known.size >= MOST_KEPT) known.delete(known.keys().next().value ?? "");
    text = turn(async () => (await api.documentText(library, id, start, end)).text);
    text.catch(() => known.delete(key));
    known.set(key, text);
  }
  return text;
}

/** The text of a span, null until it is loaded (or if the document was removed). */
export function useText(library: string, id: string, start: number, end: number): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    let wanted = true;
    setText(null);
    textOf(library, id, start, end).then(
      (found) => wanted && setText(found),
      () => undefined,
    );
    return () => void (wanted = false);
  }, [library, id, start, end]);
  return text;
}
