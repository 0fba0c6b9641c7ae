import { useSignal } from "@preact/signals";
import * as api from "../api";
import type { Run } from "../run";
import { asFailure } from "../state";

const VERDICTS = [
  [true, "Right"],
  [false, "Wrong"],
] as const;

/** Whether an answer is right, and why, as a person says it; the server keeps it with the run. */
export function Verdict({ run }: { run: Run }) {
  const given = run.feedback.value;
  const note = useSignal(given?.note ?? "");
  const said = useSignal("");
  const rate = (good: boolean) => {
    const feedback = { good, note: note.value.trim() };
    said.value = ""; // so that it is read out again
    void api.rate(run.id, feedback).then(
      () => {
        run.feedback.value = feedback;
        said.value = "Saved";
      },
      (error: unknown) => (said.value = asFailure(error).problem.title),
    );
  };
  return (
    <form
      class="quiet verdict"
      aria-labelledby="verdict"
      onSubmit={(event) => {
        event.preventDefault();
        if (given) rate(given.good);
      }}
    >
      <span id="verdict">Is this answer right?</span>
      {VERDICTS.map(([good, name]) => (
        <button
          key={name}
          type="button"
          aria-pressed={given?.good === good}
          onClick={() => rate(good)}
        >
          {name}
        </button>
      ))}
      {given && (
        <>
          <input
            aria-label="Note on the answer"
            placeholder="Why? You may add a note"
            maxLength={2000}
            value={note.value}
            onInput={(event) => {
              note.value = event.currentTarget.value;
              said.value = "";
            }}
          />
          <button>Save the note</button>
        </>
      )}
      <span role="status">{said.value}</span>
    </form>
  );
}
