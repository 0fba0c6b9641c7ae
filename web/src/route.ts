// Where the page is: the part of its address after the #.
import { computed, signal } from "@preact/signals";

export type Route = { view: string; parts: string[]; query: URLSearchParams };

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

export const route = computed<Route>(() => parse(hash.value));

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...parts] = path.split("/").map(decoded);
  return { view: view || "ask", parts, query: new URLSearchParams(query) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not an address of this page
  }
}

/** An address of this page. */
export function link(
  view: string,
  parts: string[] = [],
  query: Record<string, string | number> = {},
): string {
  const path = [view, ...parts.map(encodeURIComponent)].join("/");
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]) => [name, String(value)]),
  );
  return `#/${path}${search.size ? `?${search}` : ""}`;
}

export function go(address: string): void {
  location.hash = address;
  hash.value = address; // at once: the event comes later
}
