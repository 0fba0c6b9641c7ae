import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { median, roughly } from "../format";
import { about, library } from "../state";
import type { RunInfo, Strategy } from "../types";

/** The one text that a form asks for; Enter sends it. It grows with what is written. */
export function Box(of: {
  id: string;
  label: string;
  value: Signal<string>;
  placeholder: string;
  help?: string;
}) {
  const field = useRef<HTMLTextAreaElement>(null);
  const fit = () => {
    const box = field.current;
    if (!box) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  };
  useEffect(fit); // the form is narrower next to a run
  return (
    <>
      <label class="unseen" for={of.id}>
        {of.label}
      </label>
      <textarea
        id={of.id}
        ref={field}
        rows={2}
        value={of.value.value}
        maxLength={about.value?.limits["question_characters"] ?? undefined}
        placeholder={of.placeholder}
        aria-describedby={of.help}
        onInput={(event) => (of.value.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          if (!event.repeat) event.currentTarget.form?.requestSubmit();
        }}
      />
    </>
  );
}

/** What need not be chosen, folded; `set` of it is chosen. */
export function MoreChoices({ set, children }: { set: number; children: ComponentChildren }) {
  return (
    <details class="settings">
      <summary>
        More choices
        {set > 0 && <b class="count">{set}</b>}
      </summary>
      {children}
    </details>
  );
}

const PAPERS = ["duquad", "dualrag", "spd-rag", "rdr2", "longrefiner"];
const FIRST = ["retrieve-read", "full-context"];
export const AUTO = "auto";

/** A strategy to choose, the papers' before the baselines. */
export function StrategyChoice({ value }: { value: Signal<string> }) {
  const all = about.value?.strategies ?? [];
  const papers = all.filter((each) => PAPERS.includes(each.name));
  const others = all.filter((each) => ![AUTO, ...PAPERS].includes(each.name));
  others.sort((a, b) => Number(FIRST.includes(b.name)) - Number(FIRST.includes(a.name)));
  const option = (each: Strategy) => (
    <option key={each.name} value={each.name} disabled={each.runs === false}>
      {each.name}
      {each.runs === false ? ` (cannot run here: ${each.why_not})` : ""}
    </option>
  );
  return (
    <>
      <label class="field">
        <span>method</span>
        <select
          id="strategy"
          aria-describedby="summary"
          value={value.value}
          onChange={(event) => (value.value = event.currentTarget.value)}
        >
          {all.filter((each) => each.name === AUTO).map(option)}
          {papers.length > 0 && <optgroup label="From papers">{papers.map(option)}</optgroup>}
          {others.length > 0 && (
            <optgroup label="Baselines and others">{others.map(option)}</optgroup>
          )}
          {!all.length && <option>{value.value}</option>}
        </select>
      </label>
      <small id="summary">{all.find((each) => each.name === value.value)?.summary}</small>
    </>
  );
}

const RETRIEVERS = [
  ["", "search (default)"],
  ["dense", "meaning only"],
  ["sparse", "words only"],
  ["sfs", "fused scores (DuQUAD)"],
  ["rdr2", "routed sections (RDR2)"],
  ["longrefiner", "refined parts (LongRefiner)"],
] as const;

/** What finds the evidence, whichever strategy asks for it; "" is the server's own choice. */
export function RetrieverChoice({ value }: { value: Signal<string> }) {
  return (
    <label class="field">
      <span>find evidence by</span>
      <select value={value.value} onChange={(event) => (value.value = event.currentTarget.value)}>
        {RETRIEVERS.map(([name, said]) => (
          <option key={name} value={name}>
            {said}
          </option>
        ))}
      </select>
    </label>
  );
}

export const NORMAL = "normal";
const DEPTHS: [string, string, string][] = [
  ["low", "Quick", "Reads the best passages once, usually 1 model call"],
  [NORMAL, "Normal", "Also looks for what is missing, usually 1 to 4 model calls"],
  ["high", "Thorough", "Tries all methods until one finds the answer"],
];

/** How much `auto` may do, what that takes, and how long it took before; `ended` ran last. */
export function Depth({ value, ended }: { value: Signal<string>; ended: string }) {
  const took = useTimes(library.value, ended);
  const at = DEPTHS.findIndex(([name]) => name === value.value);
  const [name, said, takes] = DEPTHS[at]!;
  const time = took[name] === undefined ? "" : `about ${roughly(took[name])}`;
  return (
    <div class="depth grow">
      <input
        type="range"
        max={DEPTHS.length - 1}
        value={at}
        aria-label="Depth"
        aria-valuetext={[said, time].filter(Boolean).join(", ")}
        aria-describedby="takes"
        onInput={(event) => (value.value = DEPTHS[event.currentTarget.valueAsNumber]![0])}
      />
      <b>{said}</b>
      {time && <span class="time">{time}</span>}
      <small id="takes">{takes}</small>
    </div>
  );
}

/** The median seconds of the last runs of `auto` here, by effort. */
function useTimes(name: string, ended: string): Record<string, number> {
  const [took, setTook] = useState<Record<string, number>>({});
  useEffect(() => {
    let wanted = true;
    const take = (runs: RunInfo[]) => {
      const done = runs.filter((run) => run.strategy === AUTO && run.state === "done");
      const all = DEPTHS.flatMap(([effort]) => {
        const alike = done.filter((run) => (run.parameters?.["effort"] ?? NORMAL) === effort);
        const middle = median(alike.slice(0, 15).map((run) => run.seconds ?? 0));
        return middle === undefined ? [] : [[effort, middle]];
      });
      if (wanted) setTook(Object.fromEntries(all) as Record<string, number>);
    };
    api.runs(name).then(take, () => undefined); // without it, no times are shown
    return () => void (wanted = false);
  }, [name, ended]);
  return took;
}
