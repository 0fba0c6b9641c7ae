import { useSignal } from "@preact/signals";
import * as api from "../api";
import { firstWords } from "../format";
import { link } from "../route";
import type { Run } from "../run";
import { asFailure } from "../state";
import type { Answer } from "../types";

const FILES = {
  answer: { md: "Markdown", html: "HTML", docx: "Word", bib: "BibTeX" },
  table: { xlsx: "Excel", csv: "CSV", json: "JSON", md: "Markdown" },
};

/** Whether a document cited says who wrote it, or when: others are not in a BibTeX file. */
const isDocumented = (answer: Answer | null): boolean =>
  !!answer?.citations.some((each) => each.authors || each.date);

/** What can be done with an answer or a table: copy, download or send it. */
export function After({ run, made }: { run: Run; made: keyof typeof FILES }) {
  const said = useSignal("");
  const act = (work: Promise<void>, done: string) =>
    void work.then(
      () => (said.value = done),
      (error: unknown) => (said.value = asFailure(error).problem.title),
    );
  const markdown = () => api.resultFile(run.id, made, "md").then((file) => file.text());
  const address = link(made === "table" ? "table" : "run", [run.id]);
  const files = Object.entries(FILES[made]).filter(
    ([ending]) => ending !== "bib" || isDocumented(run.answer.value),
  );
  return (
    <div class="quiet after">
      {/* Browsers offer the clipboard to pages of this machine, or over https, alone. */}
      {"clipboard" in navigator && (
        <>
          <button type="button" onClick={() => act(copy(markdown()), "Copied as Markdown")}>
            Copy
          </button>
          <button
            type="button"
            onClick={() =>
              act(copy(Promise.resolve(new URL(address, location.href).href)), "Link copied")
            }
          >
            Copy link
          </button>
        </>
      )}
      {files.map(([ending, name]) => (
        <button
          key={ending}
          type="button"
          aria-label={`Download as ${name}`}
          onClick={() =>
            act(
              download(
                api.resultFile(run.id, made, ending),
                `${firstWords(run.question)}.${ending}`,
              ),
              "Downloaded",
            )
          }
        >
          ↓ {name}
        </button>
      ))}
      <span role="status">{said.value}</span>
    </div>
  );
}

/** Copy a text that is still to come: Safari allows it only to the click itself. */
async function copy(text: Promise<string>): Promise<void> {
  const type = "text/plain";
  const blob = text.then((content) => new Blob([content], { type }));
  await navigator.clipboard.write([new ClipboardItem({ [type]: blob })]);
}

/** A link could not send the token, so the file is fetched and given to the browser. */
async function download(file: Promise<Response>, name: string): Promise<void> {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(await (await file).blob());
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}
