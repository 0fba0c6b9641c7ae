import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import * as api from "../api";
import { Close, Up } from "../parts/icons";
import { ProblemNote } from "../parts/problem";
import { InLibrary, SpanLink } from "../parts/spans";
import { bytes, compact, counted } from "../say";
import { about, asFailure, current, documentsOf, libraries, library, loadDocuments, loadLibraries } from "../state";
import type { DocumentInfo, Job, Problem } from "../types";

type Arrival = { library: string; said: string; share: number | null; busy: boolean; problem: Problem | null; left: Job["problems"] };
const arrival = signal<Arrival | null>(null);
let coming: { job: string; control: AbortController } | null = null;

async function send(files: File[]): Promise<void> {
  if (!files.length || arrival.value?.busy) return;
  const to = library.value;
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const show = (change: Partial<Arrival>) => {
    const before = arrival.value ?? { library: to, said: "", share: null, busy: true, problem: null, left: [] };
    arrival.value = { ...before, ...change };
  };
  arrival.value = null;
  show({ said: `Sending ${counted(files.length, "file")} (${bytes(size)})`, share: 0 });
  try {
    const { job } = await api.upload(to, files, (share) => show({ share }));
    const control = new AbortController();
    coming = { job, control };
    show({ said: "Reading", share: null });
    for await (const message of api.jobEvents(job, control.signal)) {
      const said = JSON.parse(message.data) as Job;
      if (said.total) show({ said: `${said.phase || "reading"} ${said.done} of ${said.total}`, share: said.done / said.total });
      else if (said.phase) show({ said: said.phase });
      if (message.event === "done") break;
    }
    const end = await api.job(job);
    const added = counted(end.documents.length, "document");
    const outcome = { done: `${added} ready`, failed: "Nothing could be read", cancelled: "Stopped" }[end.state as string] ?? end.state;
    show({ said: outcome, share: null, busy: false, left: end.problems });
  } catch (error) {
    show({ said: "", busy: false, share: null, problem: asFailure(error).problem });
  } finally {
    coming = null;
    await Promise.allSettled([loadDocuments(to), loadLibraries()]);
  }
}

/** Where files are dropped or chosen, and how far they have come. */
export function Drop() {
  const [over, setOver] = useState(false);
  const field = useRef<HTMLInputElement>(null);
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
          void send([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <Up />
        <p>
          Drop files here, or{" "}
          <button type="button" class="link" onClick={() => field.current?.click()} disabled={now?.busy}>
            choose them
          </button>
        </p>
        <p class="quiet">PDF, Word, PowerPoint, Excel, HTML, Markdown, text, e-mail, EPUB{limit ? `; up to ${bytes(limit)} at once` : ""}</p>
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
      </div>
      {now && (
        <div class="arrival" role="status">
          {now.said && (
            <p>
              <b>{now.said}</b>
              {now.busy && coming && (
                <button type="button" class="link" onClick={() => coming && void api.cancelJob(coming.job)}>
                  Stop
                </button>
              )}
            </p>
          )}
          {now.busy && <progress aria-label={now.said} max={1} {...(now.share === null ? {} : { value: now.share })} />}
          {now.problem && <ProblemNote problem={now.problem} />}
          {now.left.length > 0 && (
            <ul class="left-out">
              {now.left.map((each) => (
                <li key={each.file}>
                  <b>{each.file}</b> {each.why}
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </div>
  );
}

export function LibraryView() {
  const list = documentsOf(library.value).value;
  const [wanted, setWanted] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const words = wanted.toLowerCase().trim();
  const shown = (list ?? []).filter((each) => `${each.title} ${each.source}`.toLowerCase().includes(words));
  const attempt = async (work: Promise<unknown>) => {
    try {
      await work;
      setProblem(null);
    } catch (error) {
      setProblem(asFailure(error).problem);
    }
    await Promise.allSettled([loadDocuments(library.value), loadLibraries()]);
  };
  return (
    <InLibrary.Provider value={library.value}>
      <div class="library">
        <header class="library-head">
          <h1>{library.value === "default" ? "Library" : library.value}</h1>
          <p class="quiet">{current.value && `${counted(current.value.documents, "document")}, ${counted(current.value.passages, "passage")}`}</p>
        </header>
        <Drop />
        {problem && <ProblemNote problem={problem} />}
        {list && list.length > 8 && (
          <label class="field filter">
            <span>Filter</span>
            <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
          </label>
        )}
        {list && list.length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Documents">
            <table class="documents">
              <thead>
                <tr>
                  <th scope="col">Document</th>
                  <th scope="col">Characters</th>
                  <th scope="col">Pages</th>
                  <th scope="col">Passages</th>
                  <th scope="col">Language</th>
                  <td />
                </tr>
              </thead>
              <tbody>
                {shown.map((each) => (
                  <Row key={each.id} info={each} remove={() => void attempt(api.removeDocument(library.value, each.id))} />
                ))}
              </tbody>
            </table>
          </div>
        )}
        <Libraries attempt={attempt} />
      </div>
    </InLibrary.Provider>
  );
}

function Row({ info, remove }: { info: DocumentInfo; remove: () => void }) {
  const source = info.source.split("/").at(-1) ?? "";
  return (
    <tr>
      <th scope="row">
        <SpanLink span={{ document_id: info.id, start: 0, end: 0 }}>{info.title}</SpanLink>
        {source && source !== info.title && <small>{source}</small>}
      </th>
      <td>{compact(info.characters)}</td>
      <td>{info.pages || "–"}</td>
      <td>{compact(info.passages)}</td>
      <td>{info.language}</td>
      <td>
        <Sure what={`Remove ${info.title}`} act={remove} />
      </td>
    </tr>
  );
}

/** A button that asks once more before it acts. */
export function Sure({ what, act }: { what: string; act: () => void }) {
  const [asked, setAsked] = useState(false);
  if (asked)
    return (
      <button
        type="button"
        class="danger"
        autoFocus
        onBlur={() => setAsked(false)}
        onClick={() => {
          setAsked(false);
          act();
        }}
      >
        Really?<span class="unseen"> {what}</span>
      </button>
    );
  return (
    <button type="button" class="icon-button" aria-label={what} title={what} onClick={() => setAsked(true)}>
      <Close />
    </button>
  );
}

function Libraries({ attempt }: { attempt: (work: Promise<unknown>) => Promise<void> }) {
  const [name, setName] = useState("");
  const all = libraries.value ?? [];
  const create = async () => {
    await attempt(api.createLibrary(name));
    if (libraries.value?.some((each) => each.name === name)) {
      library.value = name;
      setName("");
    }
  };
  return (
    <section class="libraries" aria-label="Libraries">
      <h2 class="cap">Libraries</h2>
      <ul>
        {all.map((each) => (
          <li key={each.name} class={each.name === library.value ? "current" : undefined}>
            <button type="button" class="link" onClick={() => (library.value = each.name)}>
              {each.name}
            </button>
            <span class="quiet">{counted(each.documents, "document")}</span>
            {each.name !== "default" && <Sure what={`Remove the library ${each.name}`} act={() => void attempt(api.removeLibrary(each.name))} />}
          </li>
        ))}
      </ul>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          if (name) void create();
        }}
      >
        <label class="field">
          <span>New library</span>
          <input value={name} onInput={(event) => setName(event.currentTarget.value.trim())} />
        </label>
        <button disabled={!name}>Create</button>
      </form>
    </section>
  );
}
