// The server's API. The token is asked for once and kept for this tab only.
import { signal } from "@preact/signals";
import { messages, type Message } from "./sse";
import type {
  About,
  Answer,
  Box,
  Cell,
  DocumentInfo,
  DocumentText,
  Estimate,
  Feedback,
  Job,
  Library,
  Problem,
  RunInfo,
  Table,
  Tree,
} from "./types";

/** An error that the server reported. */
export class Failure extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number,
  ) {
    super(problem.detail ? `${problem.title}: ${problem.detail}` : problem.title);
  }
}

const TOKEN = "colligate.token";
/** Whether the server needs a token: "none" was given, or a "wrong" one. */
export const locked = signal<"" | "none" | "wrong">("");
let unlocked: (() => void)[] = [];

export function useToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
  locked.value = "";
  unlocked.forEach((go) => go());
  unlocked = [];
}

function headers(extra: Record<string, string> = {}): Record<string, string> {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...extra, authorization: `Bearer ${token}` } : extra;
}

let first: Promise<unknown> | null = null;

/** Ask the server. Other requests wait for the first: a missing token is found out once. */
async function request(path: string, init: RequestInit = {}): Promise<Response> {
  if (first) await first;
  const asked = attempt(path, init);
  first ??= asked.catch(() => undefined);
  return asked;
}

async function attempt(path: string, init: RequestInit): Promise<Response> {
  for (;;) {
    let response: Response;
    try {
      response = await fetch(path, {
        ...init,
        headers: headers(init.headers as Record<string, string>),
      });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new Failure(
        { title: "The server does not answer", detail: "is colligate serve still running?" },
        0,
      );
    }
    if (response.ok) return response;
    if (response.status !== 401) throw new Failure(await problemOf(response), response.status);
    await response.body?.cancel();
    locked.value = sessionStorage.getItem(TOKEN) ? "wrong" : "none";
    await new Promise<void>((resolve) => unlocked.push(resolve));
  }
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as Partial<Problem>;
    if (typeof body.title === "string") {
      const detail = typeof body.detail === "string" ? body.detail : "";
      return { ...body, title: body.title, detail };
    }
  } catch {
    // no problem document: a proxy's page
  }
  return { title: `The server answered ${response.status} ${response.statusText}`.trim() };
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
  return (await request(path, init)).json() as Promise<T>;
}

const sent = (method: string, body: unknown): RequestInit => ({
  method,
  body: JSON.stringify(body),
  headers: { "content-type": "application/json" },
});

const of = (library: string, ...rest: string[]): string =>
  ["api/libraries", ...[library, ...rest].map(encodeURIComponent)].join("/");

export const about = (): Promise<About> => json("api/about");
export const libraries = (): Promise<Library[]> => json("api/libraries");
export const createLibrary = (name: string): Promise<unknown> =>
  json("api/libraries", sent("POST", { name }));
export const removeLibrary = (name: string): Promise<unknown> =>
  request(of(name), { method: "DELETE" });
export const documents = (library: string): Promise<DocumentInfo[]> =>
  json(of(library, "documents"));
export const removeDocument = (library: string, id: string): Promise<unknown> =>
  request(of(library, "documents", id), { method: "DELETE" });
export const documentText = (
  library: string,
  id: string,
  start: number,
  end: number,
): Promise<DocumentText> => json(`${of(library, "documents", id)}?start=${start}&end=${end}`);
const page = (library: string, id: string, number: number): string =>
  of(library, "documents", id, "pages", String(number));
export const pagePicture = async (library: string, id: string, number: number): Promise<Blob> =>
  (await request(`${page(library, id, number)}/picture?width=1600`)).blob();
export const pageBoxes = (
  library: string,
  id: string,
  number: number,
  start: number,
  end: number,
): Promise<Box[]> => json(`${page(library, id, number)}/boxes?start=${start}&end=${end}`);
export const tree = (library: string, id: string): Promise<Tree> =>
  json(of(library, "documents", id, "tree"));
export const runs = (library: string): Promise<RunInfo[]> => json(of(library, "runs"));
export const runById = (id: string): Promise<RunInfo & { answer?: Answer; table?: Table }> =>
  json(`api/runs/${encodeURIComponent(id)}`);
export const resultFile = (
  run: string,
  made: "answer" | "table",
  ending: string,
): Promise<Response> => request(`api/runs/${encodeURIComponent(run)}/${made}.${ending}`);
export const rate = (id: string, said: Feedback): Promise<unknown> =>
  request(`api/runs/${encodeURIComponent(id)}/feedback`, sent("POST", said));
export const forgetRun = (id: string): Promise<unknown> =>
  request(`api/runs/${encodeURIComponent(id)}`, { method: "DELETE" });

export type Asked = {
  question: string;
  strategy: string;
  parameters: Record<string, unknown>;
  retriever: string | null;
  documents: string[] | null;
  where?: string[];
  risk?: string | null;
  yes?: boolean; // to work that takes many model calls
  history: Turn[];
};

/** A question of the conversation, its answer, and the passages that the answer cites. */
export type Turn = {
  question: string;
  answer: string;
  cited: { document: string; start: number; end: number }[];
};

export async function* ask(
  library: string,
  asked: Asked,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const init = sent("POST", { ...asked, stream: true });
  yield* stream(await request(of(library, "ask"), { ...init, signal }));
}

/** A table to fill: its columns in words, what a row is if not a document, and what is read. */
export type AskedTable = {
  columns: string;
  rows: string;
  documents: string[] | null;
  where: string[];
};

export const estimate = (library: string, asked: AskedTable): Promise<Estimate> =>
  json(of(library, "table", "estimate"), sent("POST", asked));

export async function* fill(
  library: string,
  asked: AskedTable,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const init = sent("POST", { ...asked, stream: true });
  yield* stream(await request(of(library, "table"), { ...init, signal }));
}

/** Say what a cell must be: a text, "" if the document lacks it, null if it is right. */
export const correct = (
  run: string,
  said: { document: string; row: string; column: string; text: string | null },
): Promise<Cell> => json(`api/runs/${encodeURIComponent(run)}/cell`, sent("PUT", said));

export async function* runEvents(id: string, signal: AbortSignal): AsyncGenerator<Message> {
  yield* stream(await request(`api/runs/${encodeURIComponent(id)}/events`, { signal }));
}

export async function* jobEvents(id: string, signal: AbortSignal): AsyncGenerator<Message> {
  yield* stream(await request(`api/jobs/${encodeURIComponent(id)}/events`, { signal }));
}

export const job = (id: string): Promise<Job> => json(`api/jobs/${encodeURIComponent(id)}`);
export const cancelJob = (id: string): Promise<unknown> =>
  request(`api/jobs/${encodeURIComponent(id)}`, { method: "DELETE" });

async function* stream(response: Response): AsyncGenerator<Message> {
  if (response.body) yield* messages(response.body);
}

/** Send files and report the share that is sent; `fetch` cannot, so XMLHttpRequest does. */
export function upload(
  library: string,
  files: File[],
  sentShare: (share: number) => void,
): Promise<{ job: string }> {
  const form = new FormData();
  for (const file of files) form.append("files", file, file.name);
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", of(library, "files"));
    for (const [name, value] of Object.entries(headers())) sending.setRequestHeader(name, value);
    sending.upload.onprogress = (event) =>
      event.lengthComputable && sentShare(event.loaded / event.total);
    sending.onerror = () =>
      reject(
        new Failure({ title: "The files were not uploaded", detail: "the connection was lost" }, 0),
      );
    sending.onload = async () => {
      if (sending.status < 300) {
        return resolve(JSON.parse(sending.responseText) as { job: string });
      }
      const answer = new Response(sending.responseText, {
        status: sending.status,
        statusText: sending.statusText,
      });
      reject(new Failure(await problemOf(answer), sending.status));
    };
    sending.send(form);
  });
}
