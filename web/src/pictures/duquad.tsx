import { Bar, shares } from "../parts/bar";
import { DocumentTitle, Excerpt, Few, SpanLink } from "../parts/spans";
import { lastOf, of } from "../run";
import { oneLine, score } from "../format";
import type { EventOf, TraceEvent } from "../types";

const SIGNALS = [
  ["similarity", "c2"],
  ["likelihood", "c4"],
  ["attention", "c3"],
] as const;
// A signal may be replaced by one made of it.
const MADE_OF: Record<string, string[]> = { attention: ["contrast", "attention"] };

/** DuQUAD: the signals of each document, who named it, and its score. */
export function DuquadPicture({ events }: { events: readonly TraceEvent[] }) {
  const weighted = lastOf(events, "weighted");
  const listed = lastOf(events, "listed") ?? {
    units: "passages", // of the retriever, which reports their signals alone
    spans: weighted?.spans ?? [],
    titles: [],
  };
  const views = of(events, "viewed");
  const gated = lastOf(events, "gated");
  const place = new Map(
    weighted?.spans.map((span, at) => [`${span.document_id}:${span.start}`, at]),
  );
  const signals = SIGNALS.map(([name, tone]) => {
    const from = (MADE_OF[name] ?? [name]).find((each) => weighted?.signals[each]);
    const values = from ? weighted?.signals[from] : undefined;
    return {
      name,
      tone,
      values,
      shares: values && shares(values),
      weight: weighted?.weights[name],
    };
  }).filter(
    ({ name, values }) =>
      // What was not asked for is not shown.
      !weighted || values || weighted.missing.includes(name),
  );
  const fused = weighted && shares(weighted.scores);
  const rows = listed.spans.map((span, at) => {
    const number = at + 1;
    return {
      number,
      span,
      title: listed.titles[at] ?? "",
      at: place.get(`${span.document_id}:${span.start}`),
    };
  });
  // Documents that an agent named come first, then the best scores.
  const isNamed = (number: number) => views.some((view) => view.important.includes(number));
  const rank = (row: (typeof rows)[number]) =>
    row.at === undefined ? 0 : (weighted?.scores[row.at] ?? 0);
  rows.sort(
    (a, b) =>
      Number(isNamed(b.number)) - Number(isNamed(a.number)) ||
      rank(b) - rank(a) ||
      a.number - b.number,
  );
  const named = rows.filter((row) => isNamed(row.number));
  const rest = rows.slice(named.length);
  const drawn = ({ number, span, title, at }: (typeof rows)[number], short: boolean) => (
    <li key={number} class={fate(number, views, gated).kind}>
      <div class="what">
        <span class="n">{number}</span>
        <div>
          <SpanLink span={span}>
            {title ? oneLine(title, 70) : <DocumentTitle id={span.document_id} />}
          </SpanLink>
          {!short && listed.units === "passages" && <Excerpt span={span} most={150} />}
        </div>
      </div>
      <div class="signals">
        {signals.map(({ name, tone, values, shares }) => {
          const value = at === undefined ? undefined : values?.[at];
          if (value === undefined || at === undefined) return <span key={name} class="bar none" />;
          return (
            <Bar
              key={name}
              share={shares?.[at] ?? 0}
              tone={tone}
              label={`${name} ${score(value)}`}
            />
          );
        })}
        {fused && at !== undefined && (
          <Bar
            share={fused[at] ?? 0}
            tone="c0 strong"
            label={`fused ${score(weighted?.scores[at] ?? 0)}`}
          />
        )}
      </div>
      {!short && <Verdict number={number} views={views} gated={gated} />}
    </li>
  );
  return (
    <figure class="picture duquad">
      <figcaption>
        <h2 class="cap">
          {lastOf(events, "listed") ? "Signals, two views, one judge" : "Fused signals"}
        </h2>
        <ul class="legend">
          {signals.map(({ name, tone, weight, values }) => (
            <li key={name} class={weighted && !values ? "missing" : undefined}>
              <i class={`swatch ${tone}`} />
              {name}{" "}
              {weight !== undefined && values && <small>× {Number(weight.toFixed(2))}</small>}
              {weighted && !values && <small>not available</small>}
            </li>
          ))}
          <li>
            <i class="swatch c0" /> fused
          </li>
        </ul>
      </figcaption>
      {named.length > 0 && <ol class="rows">{named.map((row) => drawn(row, false))}</ol>}
      {views.length > 0 && rest.length > 0 && <h3 class="divide">Not named by any agent</h3>}
      <ol class={views.length ? "rows rest" : "rows"}>
        <Few all={rest} most={20}>
          {(row) => drawn(row, views.length > 0)}
        </Few>
      </ol>
    </figure>
  );
}

function fate(number: number, views: EventOf<"viewed">[], gated: EventOf<"gated"> | undefined) {
  const by = views.filter((view) => view.important.includes(number)).map((view) => view.agent);
  const scored = gated?.scores.find((each) => each.number === number);
  const kind = !views.length
    ? ""
    : !by.length
      ? "unnamed"
      : scored && !scored.kept
        ? "pruned"
        : scored?.kept
          ? "kept"
          : "named";
  return { by, scored, kind };
}

function Verdict({
  number,
  views,
  gated,
}: {
  number: number;
  views: EventOf<"viewed">[];
  gated: EventOf<"gated"> | undefined;
}) {
  const { by, scored, kind } = fate(number, views, gated);
  if (!views.length) return <div class="verdict" />;
  return (
    <div class="verdict">
      {by.map((agent) => (
        <span key={agent} class={`agent ${agent}`} title={`named by the ${agent} agent`}>
          {agent}
        </span>
      ))}
      {scored && gated && (
        <span class="p">
          <Bar
            share={scored.p}
            mark={gated.threshold}
            tone={scored.kept ? "good" : "bad"}
            label={`score ${scored.p.toFixed(2)}, threshold ${gated.threshold}`}
          />
          <b>{scored.p.toFixed(2)}</b>
        </span>
      )}
      {kind === "pruned" && gated && <span class="why">pruned: below {gated.threshold}</span>}
      {gated?.missing.includes(number) && <span class="why">no score</span>}
    </div>
  );
}
