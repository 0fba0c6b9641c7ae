import { spent, type Run } from "../run";
import { compact, count, counted, dollars, seconds } from "../format";
import type { Usage } from "../types";

/** The cost of a run so far, or in total. */
export function Cost({ run }: { run: Run }) {
  const usage = (run.answer.value ?? run.table.value)?.usage;
  const now = spent(run.events.value);
  const { judgements, reading, writing } = now;
  if (usage) return <Spent usage={usage} judgements={judgements} took={run.seconds.value} />;
  return (
    <>
      <p class="cost" aria-hidden="true">
        <Figure value={seconds(run.seconds.value)} of={run.busy.value ? "so far" : "total"} />
        <Calls calls={now.calls} judgements={judgements} />
        <Figure value={compact(now.input)} of="tokens read" />
        <Figure value={compact(now.output)} of="written" />
      </p>
      {reading && run.busy.value && (
        <p class="quiet reading">
          {writing > 0
            ? `The model has written about ${counted(writing, "token")}`
            : `The model reads ${counted(reading.tokens, "token")}`}
        </p>
      )}
    </>
  );
}

function Spent({ usage, judgements, took }: { usage: Usage; judgements: number; took: number }) {
  const roles = Object.entries(usage.by_role).filter(
    ([, sums]) => sums["calls"] || sums["scoring_passes"],
  );
  return (
    <details class="cost-details">
      <summary class="cost">
        <Figure value={seconds(took)} of="total" />
        <Calls calls={usage.calls} judgements={judgements} />
        <Figure value={compact(usage.input_tokens)} of="tokens read" />
        <Figure value={compact(usage.output_tokens)} of="written" />
        <Figure value={dollars(usage.cost_usd)} of="" />
      </summary>
      <table>
        <thead>
          <tr>
            <th scope="col">Role</th>
            <th scope="col">Model calls</th>
            <th scope="col">Read</th>
            <th scope="col">Written</th>
          </tr>
        </thead>
        <tbody>
          {roles.map(([role, sums]) => (
            <tr key={role}>
              <th scope="row">{role}</th>
              <td>{count(sums["calls"] ?? 0)}</td>
              <td>{count(sums["input_tokens"] ?? 0)}</td>
              <td>{count(sums["output_tokens"] ?? 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        {counted(usage.retrieval_rounds, "search", "searches")},{" "}
        {counted(usage.scoring_passes, "scoring pass", "scoring passes")}
        {judgements > 0 && ". In a judgement a model scores texts and writes nothing."}
      </p>
      <Split usage={usage} />
    </details>
  );
}

/** What the time went into. */
function Split({ usage: { split, seconds: total } }: { usage: Usage }) {
  if (!split) return null;
  const rest = total - Object.values(split).reduce((sum, each) => sum + each, 0);
  const all = [...Object.entries(split), ["other work", rest] as const];
  return (
    <p class="quiet split">
      {all
        .filter(([, took]) => took >= 0.001)
        .map(([what, took]) => `${what} ${seconds(took)}`)
        .join(", ")}
    </p>
  );
}

/** Calls that write text, and those in which a model only judges. */
function Calls({ calls, judgements }: { calls: number; judgements: number }) {
  return (
    <>
      <Figure value={compact(calls)} of={calls === 1 ? "model call" : "model calls"} />
      {judgements > 0 && (
        <Figure value={compact(judgements)} of={judgements === 1 ? "judgement" : "judgements"} />
      )}
    </>
  );
}

function Figure({ value, of }: { value: string; of: string }) {
  return (
    <span class="figure">
      <b>{value}</b> {of}
    </span>
  );
}
