import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import * as api from "../api";
import { bytes, counted } from "../format";
import { about, asFailure, library, loadDocuments, loadLibraries } from "../state";
import type { Job, Problem } from "../types";
import { Up } from "./icons";
import { ProblemNote } from "./problem";
import { Few } from "./spans";

type Arrival = {
  text: string;
  share: number | null;
  busy: boolean;
  problem: Problem | null;
  left: Job["problems"];
};
const NONE: Arrival = { text: "", share: null, busy: false, problem: null, left: [] };
const arrival = signal<Arrival | null>(null);
const show = (change: Partial<Arrival>) =>
  (arrival.value = { ...(arrival.value ?? NONE), ...change });
let coming: { job: string; control: AbortController } | null = null;

async function send(files: File[]): Promise<void> {
  if (!files.length || arrival.value?.busy) return;
  const to = library.value;
  const size = files.reduce((sum, file) => sum + file.size, 0);
  arrival.value = null;
  show({ text: `Sending ${counted(files.length, "file")} (${bytes(size)})`, share: 0, busy: true });
  try {
    const { job } = await api.upload(to, files, (share) => show({ share }));
    const control = new AbortController();
    coming = { job, control };
    show({ text: "Reading", share: null });
    for await (const message of api.jobEvents(job, control.signal)) {
      const shown = JSON.parse(message.data) as Job;
      if (shown.total)
        show({
          text: `${shown.phase || "reading"} ${shown.done} of ${shown.total}`,
          share: shown.done / shown.total,
        });
      else if (shown.phase) show({ text: shown.phase });
      if (message.event === "done") break;
    }
    const end = await api.job(job);
    const added = counted(end.documents.length, "document");
    const outcome =
      { done: `${added} ready`, failed: "No file could be read", cancelled: "Stopped" }[
        end.state as string
      ] ?? end.state;
    show({ text: outcome, share: null, busy: false, left: end.problems });
  } catch (error) {
    show({ text: "", busy: false, share: null, problem: asFailure(error).problem });
  } finally {
    coming = null;
    await Promise.allSettled([loadDocuments(to), loadLibraries()]);
  }
}

/** Send what was dropped, the files of folders included. */
function drop({ items }: DataTransfer): void {
  const dropped = [...items].filter((item) => item.kind === "file");
  const coming = dropped.map((item) => {
    const entry = item.webkitGetAsEntry(); // later there is none
    return entry?.isDirectory ? filesOf(entry) : [item.getAsFile()];
  });
  Promise.all(coming).then(
    (all) => send(all.flat().filter((file) => file !== null)),
    (error: unknown) => show({ problem: asFailure(error).problem }),
  );
}

/** A file, or the files of a folder that are not hidden. */
async function filesOf(entry: FileSystemEntry): Promise<File[]> {
  if (entry.isFile)
    return [await new Promise<File>((...both) => (entry as FileSystemFileEntry).file(...both))];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: File[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((...both) => reader.readEntries(...both));
    if (!some.length) return found;
    for (const each of some) if (!each.name.startsWith(".")) found.push(...(await filesOf(each)));
  }
}

/** Where files are dropped or chosen, and their progress. */
export function Drop() {
  const [over, setOver] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const now = arrival.value;
  const limit = about.value?.limits["upload_bytes"];
  return (
    <div class="arrivals">
      <div
        class={over ? "drop over" : "drop"}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          if (event.dataTransfer) drop(event.dataTransfer);
        }}
      >
        <Up />
        <p>
          Drop files here, or{" "}
          <button
            type="button"
            class="link"
            onClick={() => field.current?.click()}
            disabled={now?.busy}
          >
            choose files
          </button>{" "}
          or{" "}
          <button
            type="button"
            class="link"
            onClick={() => folder.current?.click()}
            disabled={now?.busy}
          >
            a folder
          </button>
        </p>
        <p class="quiet">
          PDF, Word, PowerPoint, Excel, HTML, Markdown, text, e-mail, EPUB
          {limit ? `; up to ${bytes(limit)} at once` : ""}
        </p>
        <input
          ref={field}
          class="unseen"
          type="file"
          multiple
          tabIndex={-1}
          aria-label="Files to add"
          onChange={(event) => {
            void send([...(event.currentTarget.files ?? [])]);
            event.currentTarget.value = "";
          }}
        />
        <input
          ref={folder}
          class="unseen"
          type="file"
          {...{ webkitdirectory: true }}
          tabIndex={-1}
          aria-label="Folder to add"
          onChange={(event) => {
            const all = [...(event.currentTarget.files ?? [])];
            void send(all.filter((file) => !/(^|\/)\./.test(file.webkitRelativePath))); // hidden
            event.currentTarget.value = "";
          }}
        />
      </div>
      {now && (
        <div class="arrival" role="status">
          {now.text && (
            <p>
              <b>{now.text}</b>
              {now.busy && coming && (
                <button
                  type="button"
                  class="link"
                  onClick={() => coming && void api.cancelJob(coming.job)}
                >
                  Stop
                </button>
              )}
            </p>
          )}
          {now.busy && (
            <progress
              aria-label={now.text}
              max={1}
              {...(now.share === null ? {} : { value: now.share })}
            />
          )}
          {now.problem && <ProblemNote problem={now.problem} />}
          {now.left.length > 0 && (
            <ul class="left-out">
              <Few all={now.left} most={20}>
                {(each) => (
                  <li key={each.file}>
                    <b>{each.file}</b>: {each.why}
                    {each.hint && `; ${each.hint}`}
                  </li>
                )}
              </Few>
            </ul>
          )}
        </div>
      )}
    </div>
  );
}
