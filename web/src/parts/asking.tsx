import type { Signal } from "@preact/signals";
import { about } from "../state";
import type { Parameter, Strategy } from "../types";

const PAPERS = ["duquad", "dualrag", "spd-rag", "rdr2", "longrefiner"];
const FIRST = ["retrieve-read", "full-context"];
const AUTO = "auto";

/** A strategy to choose, the papers' before the baselines. */
export function StrategyChoice({
  value,
  label = "Strategy",
  id,
}: {
  value: Signal<string>;
  label?: string;
  id: string;
}) {
  const all = about.value?.strategies ?? [];
  const papers = all.filter((each) => PAPERS.includes(each.name));
  const others = all.filter((each) => ![AUTO, ...PAPERS].includes(each.name));
  others.sort((a, b) => Number(FIRST.includes(b.name)) - Number(FIRST.includes(a.name)));
  const option = (each: Strategy) => (
    <option key={each.name} value={each.name} disabled={each.runs === false}>
      {each.name}
      {each.runs === false ? " (cannot run here)" : ""}
    </option>
  );
  return (
    <label class="field" for={id}>
      <span>{label}</span>
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

const EFFORTS = [
  ["low", "reads once: 1 call"],
  ["normal", "one method more where something is missing: usually 1 to 4 calls"],
  ["high", "up to four methods, until one finds the answer"],
] as const;

/** How much `auto` may do, and what that takes. */
export function Effort({ values }: { values: Signal<Given> }) {
  const at = EFFORTS.findIndex(([name]) => name === (values.value["effort"] ?? "normal"));
  const [name, takes] = EFFORTS[at] ?? EFFORTS[1];
  return (
    <label class="field effort" for="effort">
      <span>Effort</span>
      <input
        id="effort"
        type="range"
        min="0"
        max="2"
        step="1"
        value={at}
        aria-valuetext={`${name}: ${takes}`}
        onInput={(event) => {
          const chosen = EFFORTS[Number(event.currentTarget.value)]?.[0] ?? "normal";
          const { effort: _, ...others } = values.value;
          values.value = chosen === "normal" ? others : { ...others, effort: chosen };
        }}
      />
      <small>
        {name}: {takes}
      </small>
    </label>
  );
}

export function summaryOf(name: string): string {
  return about.value?.strategies.find((each) => each.name === name)?.summary ?? "";
}

type Given = Record<string, string>;

/** The parameters of a strategy; what is left empty keeps its default. */
export function Parameters({ strategy, values }: { strategy: string; values: Signal<Given> }) {
  const every = about.value?.strategies.find((each) => each.name === strategy)?.parameters ?? [];
  const all = every.filter((each) => each.name !== "effort"); // it has a slider
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
  const { name, type } = parameter;
  const usual = written(parameter.default);
  const choices =
    type === "bool"
      ? ["true", "false"]
      : /^[^,]+\|[^,]+$/.test(type) && !/^(int|float|str)\|/.test(type)
        ? type.split("|")
        : null;
  return (
    <label class={value ? "field changed" : "field"}>
      <span>{name.replaceAll("_", " ")}</span>
      {choices ? (
        <select value={value} onChange={(event) => set(event.currentTarget.value)}>
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
          placeholder={usual || "none"}
          inputMode={
            type.startsWith("int") ? "numeric" : type.startsWith("float") ? "decimal" : "text"
          }
          onInput={(event) => set(event.currentTarget.value.trim())}
        />
      )}
    </label>
  );
}

function written(value: unknown): string {
  if (value === null || value === undefined) return "none";
  return Array.isArray(value) ? value.join(",") : String(value);
}

/** The values that were set, as JSON of the parameters' types. */
export function asValues(strategy: string, set: Given): Record<string, unknown> {
  const all = about.value?.strategies.find((each) => each.name === strategy)?.parameters ?? [];
  return Object.fromEntries(
    all.flatMap(({ name, type }) => {
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
