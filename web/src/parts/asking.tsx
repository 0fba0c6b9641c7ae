import type { Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { seconds } from "../format";
import { about, library } from "../state";
import type { Parameter, RunInfo, Strategy } from "../types";

const PAPERS = ["duquad", "dualrag", "spd-rag", "rdr2", "longrefiner"];
const FIRST = ["retrieve-read", "full-context"];
const AUTO = "auto";

/** A strategy to choose, the papers' before the baselines. */
export function StrategyChoice({ value, id }: { value: Signal<string>; id: string }) {
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
    <label class="field" for={id}>
      <span>Strategy</span>
      <select
        id={id}
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
      <span>Find evidence by</span>
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

const EFFORTS = [
  ["low", "Quick", "Reads the best passages once: usually 1 model call"],
  ["normal", "Normal", "Also looks for what is missing: usually 1 to 4 model calls"],
  ["high", "Thorough", "Tries all methods until one finds the answer"],
] as const;

/** How much `auto` may do, what that takes, and how long it took before. */
export function Efforts({ strategy, values }: { strategy: Signal<string>; values: Signal<Given> }) {
  const took = useTimes(library.value);
  const chosen = strategy.value === AUTO ? (values.value["effort"] ?? "normal") : null;
  return (
    <fieldset class="efforts">
      <legend class="unseen">Effort</legend>
      {EFFORTS.map(([name, said, takes]) => {
        const median = took[name];
        return (
          <label key={name}>
            <input
              type="radio"
              name="effort"
              checked={chosen === name}
              onChange={() => {
                strategy.value = AUTO;
                const { effort: _, ...others } = values.value;
                values.value = name === "normal" ? others : { ...others, effort: name };
              }}
            />
            <b>{said}</b>
            <small>
              {takes}
              {median !== undefined && `; here about ${seconds(median)}`}
            </small>
          </label>
        );
      })}
    </fieldset>
  );
}

/** The median seconds of the last runs of `auto` here, by effort. */
function useTimes(name: string): Record<string, number> {
  const [took, setTook] = useState<Record<string, number>>({});
  useEffect(() => {
    let wanted = true;
    const take = (runs: RunInfo[]) => {
      const done = runs.filter((run) => run.strategy === AUTO && run.state === "done");
      const medians = EFFORTS.flatMap(([effort]) => {
        const times = done
          .filter((run) => (run.parameters?.["effort"] ?? "normal") === effort)
          .map((run) => run.seconds ?? 0)
          .slice(0, 15)
          .sort((a, b) => a - b);
        return times.length ? [[effort, times[times.length >> 1]] as const] : [];
      });
      if (wanted) setTook(Object.fromEntries(medians) as Record<string, number>);
    };
    api.runs(name).then(take, () => undefined); // without it, no times are shown
    return () => void (wanted = false);
  }, [name]);
  return took;
}

export function summaryOf(name: string): string {
  return about.value?.strategies.find((each) => each.name === name)?.summary ?? "";
}

type Given = Record<string, string>;

const PRESET: Parameter = {
  name: "preset",
  type: "none|paper",
  default: "none",
  description: "take the paper's values for what is not set here",
};

/** What of a strategy can be set: where its paper has other values, these at once too. */
function parametersOf(strategy: string): Parameter[] {
  const all = about.value?.strategies.find((each) => each.name === strategy)?.parameters ?? [];
  const differs = all.some((each) => written(each.paper) !== written(each.default));
  return differs ? [PRESET, ...all] : all;
}

/** The parameters of a strategy; what is left empty keeps its default. */
export function Parameters({ strategy, values }: { strategy: string; values: Signal<Given> }) {
  const all = parametersOf(strategy).filter((each) => each.name !== "effort"); // it has its own choice
  if (!all.length) return <p class="quiet">This strategy has no parameters.</p>;
  return (
    <div class="parameters">
      {all.map((parameter) => (
        <Field
          key={`${strategy} ${parameter.name}`}
          parameter={parameter}
          value={values.value[parameter.name] ?? ""}
          set={(value) => {
            const { [parameter.name]: _, ...others } = values.value;
            values.value = value === "" ? others : { ...others, [parameter.name]: value };
          }}
        />
      ))}
    </div>
  );
}

function Field({
  parameter,
  value,
  set,
}: {
  parameter: Parameter;
  value: string;
  set: (value: string) => void;
}) {
  const { name, type, description } = parameter;
  const id = `parameter-${name}`;
  const usual = written(parameter.default);
  const choices =
    type === "bool"
      ? ["true", "false"]
      : /^[^,]+\|[^,]+$/.test(type) && !/^(int|float|str)\|/.test(type)
        ? type.split("|")
        : null;
  return (
    <div>
      <label class={value ? "field changed" : "field"}>
        <span>{name.replaceAll("_", " ")}</span>
        {choices ? (
          <select
            value={value}
            aria-describedby={id}
            onChange={(event) => set(event.currentTarget.value)}
          >
            <option value="">{usual} (default)</option>
            {choices
              .filter((choice) => choice !== usual)
              .map((choice) => (
                <option key={choice}>{choice}</option>
              ))}
          </select>
        ) : (
          <input
            value={value}
            aria-describedby={id}
            placeholder={usual || "none"}
            inputMode={
              type.startsWith("int") ? "numeric" : type.startsWith("float") ? "decimal" : "text"
            }
            onInput={(event) => set(event.currentTarget.value.trim())}
          />
        )}
      </label>
      <small id={id}>{description}</small>
    </div>
  );
}

function written(value: unknown): string {
  if (value === null || value === undefined) return "none";
  return Array.isArray(value) ? value.join(",") : String(value);
}

/** The values that were set, as JSON of the parameters' types. */
export function asValues(strategy: string, set: Given): Record<string, unknown> {
  return Object.fromEntries(
    parametersOf(strategy).flatMap(({ name, type }) => {
      const value = set[name];
      return value === undefined ? [] : [[name, asValue(type, value)]];
    }),
  );
}

function asValue(type: string, text: string): unknown {
  if (text === "none" && type.endsWith("|none")) return null;
  if (type === "bool") return text === "true";
  if (/^(int|float)(\|none)?$/.test(type))
    return Number.isFinite(Number(text)) ? Number(text) : text;
  if (type.endsWith(",..."))
    return text
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean);
  return text;
}
