// The text and the place of spans, fetched when they are shown and kept while the page is open.
import { useEffect, useState } from "preact/hooks";
import * as api from "./api";
import { path } from "./blocks";

const MOST_KEPT = 2000;
const AT_ONCE = 4;
const known = new Map<string, Promise<unknown>>();
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

/** What `load` brings, null until it is there (or if the document was removed). */
function useKept<T>(about: (string | number)[], load: () => Promise<T>): T | null {
  const key = JSON.stringify(about);
  const [found, setFound] = useState<T | null>(null);
  useEffect(() => {
    let wanted = true;
    setFound(null);
    let coming = known.get(key) as Promise<T> | undefined;
    if (!coming) {
      if (known.size >= MOST_KEPT) known.delete(known.keys().next().value ?? "");
      coming = turn(load);
      coming.catch(() => known.delete(key));
      known.set(key, coming);
    }
    coming.then(
      (it) => wanted && setFound(it),
      () => undefined,
    );
    return () => void (wanted = false);
  }, [key]);
  return found;
}

/** The text of a range. */
export function useText(library: string, id: string, start: number, end: number): string | null {
  return useKept([library, id, start, end], async () => {
    return (await api.documentText(library, id, start, end)).text;
  });
}

/** The titles of the sections around a place of a document, and its page. */
export function usePlace(library: string, id: string, at: number) {
  const outline = useKept([library, id], async () => {
    const [{ nodes }, { pages }] = await Promise.all([
      api.tree(library, id),
      api.documentText(library, id, 0, 0),
    ]);
    return { nodes: nodes.filter((node) => node.kind === "section"), pages };
  });
  if (!outline) return null;
  const within = new Set(path(outline.nodes, at));
  return {
    section: outline.nodes.filter((node) => within.has(node.id)).map((node) => node.title),
    page: outline.pages.findLast((page) => page.start <= at)?.number ?? null,
  };
}
