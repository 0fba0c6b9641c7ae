// What all views share: the server's description, the libraries, the theme.
import type { ComponentChildren } from "preact";
import { computed, effect, signal, type Signal } from "@preact/signals";
import * as api from "./api";
import type { About, DocumentInfo, Library, Span } from "./types";

export const about = signal<About | null>(null);
export const libraries = signal<Library[] | null>(null);
/** An error of the server as a whole, shown above every view. */
export const trouble = signal<api.Failure | null>(null);

const LIBRARY = "colligate.library";
export const library = signal(sessionStorage.getItem(LIBRARY) ?? "default");
effect(() => sessionStorage.setItem(LIBRARY, library.value));

/** The library in view, once the list of libraries is loaded. */
export const current = computed(
  () => libraries.value?.find((each) => each.name === library.value) ?? null,
);

export const EMPTY = "The library is empty. Add the files that your questions are about.";

export async function loadAll(): Promise<void> {
  trouble.value = null;
  try {
    [about.value] = await Promise.all([api.about(), loadLibraries()]);
  } catch (error) {
    trouble.value = asFailure(error);
  }
}

export async function loadLibraries(): Promise<void> {
  const all = await api.libraries();
  libraries.value = all;
  const [first] = all;
  if (first && !all.some((each) => each.name === library.value)) library.value = first.name;
  for (const [name, list] of lists) {
    // One that is made again under the name of one removed has none of its documents.
    if (!all.some((each) => each.name === name)) lists.delete(name);
    else if (!list.value) void loadDocuments(name);
  }
}

const lists = new Map<string, Signal<DocumentInfo[] | null>>();

/** The documents of a library; null until they are known. It is asked for once it is listed. */
export function documentsOf(name: string): Signal<DocumentInfo[] | null> {
  let list = lists.get(name);
  if (!list) {
    list = signal(null);
    lists.set(name, list);
    if (libraries.value) void loadDocuments(name);
  }
  return list;
}

export async function loadDocuments(name: string): Promise<void> {
  try {
    const found = await api.documents(name);
    let list = lists.get(name);
    if (!list) lists.set(name, (list = signal<DocumentInfo[] | null>(null)));
    list.value = found;
  } catch (error) {
    const failure = asFailure(error);
    if (failure.status !== 404) trouble.value = failure; // 404: the library was removed
  }
}

export function titleOf(name: string, id: string): string {
  return documentsOf(name).value?.find((each) => each.id === id)?.title ?? id;
}

/** Whether a document is in a library, as far as is known. */
export function isKept(name: string, id: string): boolean {
  return documentsOf(name).value?.some((each) => each.id === id) ?? true;
}

export function asFailure(error: unknown): api.Failure {
  if (error instanceof api.Failure) return error;
  return new api.Failure({ title: "Error in the page", detail: String(error) }, 0);
}

// ---- the document that is open over the page

export type Opened = {
  library: string;
  id: string;
  start: number;
  end: number;
  number?: number;
  others?: Span[];
  panel?: ComponentChildren; // shown above the text
};
export const opened = signal<Opened | null>(null);

// ---- theme: the system's, unless one was chosen

export type Theme = "system" | "light" | "dark";
const THEME = "colligate.theme";
const chosen = localStorage.getItem(THEME);
export const theme = signal<Theme>(chosen === "light" || chosen === "dark" ? chosen : "system");
effect(() => {
  if (theme.value === "system") return;
  document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(THEME, theme.value);
});
