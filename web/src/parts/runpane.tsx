import { Picture } from "../pictures/picture";
import { lastOf, type Run } from "../run";
import { Cost } from "./cost";
import { Stop } from "./icons";
import { InLibrary } from "./spans";
import { Steps } from "./steps";

const SAID: Record<string, string> = {
  starting: "Starting",
  running: "Working",
  done: "Answered",
  failed: "Failed",
  cancelled: "Stopped",
};

/** A run as it goes: its state, its cost, its picture, its steps. */
export function RunPane({ run, stoppable = true }: { run: Run; stoppable?: boolean }) {
  const events = run.events.value;
  const state = run.state.value;
  const retriever = (run.asked ?? run.kept)?.retriever;
  const progress = run.busy.value ? lastOf(events, "progressed") : undefined;
  const refused = state === "done" && run.answer.value?.found === false;
  const said =
    state === "queued"
      ? `In the queue, place ${run.place.value ?? "…"}`
      : refused
        ? "Not found"
        : (SAID[state] ?? state);
  return (
    <InLibrary.Provider value={run.library}>
      <section class="run" aria-label={`Run of ${run.strategy}`}>
        <header class="run-head">
          <span class={`state ${refused ? "refused" : state}`} role="status">
            <i aria-hidden="true" />
            {said}
          </span>
          <code>{[run.strategy, retriever].filter(Boolean).join(" + ")}</code>
          {stoppable && run.busy.value && (
            <button type="button" onClick={() => run.cancel()}>
              <Stop /> Stop
            </button>
          )}
        </header>
        <Cost run={run} />
        {progress && progress.total > 0 && progress.done < progress.total && (
          <label class="progress">
            <span>
              {progress.phase} {progress.done} of {progress.total}
            </span>
            <progress value={progress.done} max={progress.total} />
          </label>
        )}
        <Picture events={events} passages={!!run.answer.value || !lastOf(events, "located")} />
        {events.length > 0 && <Steps events={events} />}
      </section>
    </InLibrary.Provider>
  );
}
