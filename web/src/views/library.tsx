import { useState } from "preact/hooks";
import * as api from "../api";
import { Drop } from "../parts/drop";
import { Grid, type Column } from "../parts/grid";
import { ProblemNote } from "../parts/problem";
import { InLibrary, SpanLink } from "../parts/spans";
import { Sure } from "../parts/sure";
import { compact, counted } from "../format";
import {
  asFailure,
  current,
  documentsOf,
  libraries,
  library,
  loadDocuments,
  loadLibraries,
} from "../state";
import type { DocumentInfo, Problem } from "../types";

const COLUMNS: Column<DocumentInfo>[] = [
  ["Document", (info) => info.title],
  ["Characters", (info) => info.characters],
  ["Pages", (info) => info.pages],
  ["Passages", (info) => info.passages],
  ["Language", (info) => info.language],
  [""],
];

export function LibraryView() {
  const list = documentsOf(library.value).value;
  const [problem, setProblem] = useState<Problem | null>(null);
  const attempt = async (work: Promise<unknown>) => {
    try {
      await work;
      setProblem(null);
    } catch (error) {
      setProblem(asFailure(error).problem);
    }
    await loadLibraries().catch(() => undefined); // if the server is gone, the next says so
    await loadDocuments(library.value); // another one by now, if the library in view was removed
  };
  return (
    <InLibrary.Provider value={library.value}>
      <div class="library">
        <header class="library-head">
          <h1>{library.value === "default" ? "Library" : library.value}</h1>
          <p class="quiet">
            {current.value &&
              `${counted(current.value.documents, "document")}, ${counted(current.value.passages, "passage")}`}
          </p>
        </header>
        <Drop />
        {problem && <ProblemNote problem={problem} />}
        {list && list.length > 0 && (
          <Grid
            label="Documents"
            search="Search documents"
            columns={COLUMNS}
            rows={list}
            text={(each) => `${each.title} ${each.source}`}
          >
            {(each) => (
              <Row
                key={each.id}
                info={each}
                remove={() => void attempt(api.removeDocument(library.value, each.id))}
              />
            )}
          </Grid>
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
      <td>{info.language === "und" ? "–" : info.language}</td>
      <td>
        <Sure what={`Remove ${info.title}`} act={remove} />
      </td>
    </tr>
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
            {each.name !== "default" && (
              <Sure
                what={`Remove the library ${each.name}`}
                act={() => void attempt(api.removeLibrary(each.name))}
              />
            )}
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
          <input
            value={name}
            pattern="[a-z0-9][a-z0-9_\-]{0,63}"
            title="lower-case letters, digits, - and _"
            autocapitalize="off"
            onInput={(event) => setName(event.currentTarget.value.trim())}
          />
        </label>
        <button disabled={!name}>Create</button>
      </form>
    </section>
  );
}
