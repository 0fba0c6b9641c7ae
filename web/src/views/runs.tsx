import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { ProblemNote } from "../parts/problem";
import { RunPane } from "../parts/runpane";
import { Few, useSearch } from "../parts/spans";
import { link, route } from "../route";
import { Sure } from "../parts/sure";
import { Run } from "../run";
import { day, seconds, timeOf } from "../format";
import { asFailure, current, library } from "../state";
import type { Problem, RunInfo } from "../types";
import { FollowUp, Outcome } from "./ask";

export function RunsView() {
  const [list, setList] = useState<RunInfo[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const name = current.value?.name; // none before the libraries are listed
  const [shown, search] = useSearch(
    list ?? [],
    "Search questions",
    (run) => `${run.question} ${run.strategy} ${outcome(run)}`,
    0,
  );
  const days = [...new Set(shown.map((run) => day(run.began)))];
  const load = async () =>
    name &&
    api.runs(name).then(
      (found) => (setList(found), setProblem(null)),
      (error: unknown) => setProblem(asFailure(error).problem),
    );
  useEffect(() => void load(), [name]);
  return (
    <div class="runs">
      <h1>Runs</h1>
      <p class="quiet">
        Questions asked of this server, and its tables. Those of <code>colligate ask</code> and{" "}
        <code>colligate table</code> without it are not listed.
      </p>
      {problem && <ProblemNote problem={problem} />}
      {list?.length === 0 && (
        <p class="quiet">
          No questions were asked yet. <a href={link("ask")}>Ask one.</a>
        </p>
      )}
      {search}
      {days.map((each) => (
        <section key={each} aria-label={each}>
          <h2 class="cap">{each}</h2>
          <ul class="run-list">
            <Few all={shown.filter((run) => day(run.began) === each)} most={50}>
              {(run) => (
                <li key={run.id} class={outcome(run)}>
                  <a href={link(run.strategy === "table" ? "table" : "run", [run.id])}>
                    <span class="asked">{run.question}</span>
                    <span class="facts">
                      <span class="state">
                        <i aria-hidden="true" />
                        {outcome(run)}
                      </span>
                      <code>{run.strategy}</code>
                      {run.seconds !== null && <span>{seconds(run.seconds)}</span>}
                      <span>{timeOf(run.began)}</span>
                    </span>
                  </a>
                  <Sure
                    what={`Delete the run “${run.question}”`}
                    act={() =>
                      void api
                        .forgetRun(run.id)
                        .then(load, (error: unknown) => setProblem(asFailure(error).problem))
                    }
                  />
                </li>
              )}
            </Few>
          </ul>
        </section>
      ))}
    </div>
  );
}

function outcome(run: RunInfo): string {
  if (run.state !== "done") return run.state;
  return run.found === false ? "not found" : "answered";
}

const opened = signal<Run | null>(null);

export function RunView() {
  const id = route.value.parts[0] ?? "";
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    let run: Run | null = null;
    setProblem(null);
    api.runById(id).then(
      (info) => {
        run = new Run(info.library ?? library.value, info.question, info.strategy);
        opened.value = run;
        void run.open(id, info);
      },
      (error: unknown) => setProblem(asFailure(error).problem),
    );
    return () => run?.cancel();
  }, [id]);
  const run = opened.value?.id === id ? opened.value : null;
  return (
    <div class="ask asked opened">
      <div class="left">
        <p class="quiet">
          <a href={link("runs")}>‹ All runs</a>
        </p>
        {problem && <ProblemNote problem={problem} />}
        {run && (
          <>
            <h1>{run.question}</h1>
            <Outcome run={run} />
            {run.answer.value && <FollowUp before={[run]} />}
          </>
        )}
      </div>
      {run && <RunPane run={run} stoppable={false} />}
    </div>
  );
}
