import { Bar, shares } from "../parts/bar";
import { DocumentTitle, Excerpt, Few, Place, SpanLink, overlaps, spanKey } from "../parts/spans";
import { lastOf, of } from "../run";
import { counted, oneLine, score, seconds } from "../format";
import type { EventOf, Span, TraceEvent } from "../types";

/** What each search found, how it was scored, and what was left out. */
export function PassagesPicture({ events }: { events: readonly TraceEvent[] }) {
  const searches = of(events, "retrieved");
  const answered = lastOf(events, "answered");
  const shortened = new Map(
    of(events, "shortened").flatMap((event) =>
      event.spans.map((span, at) => [
        spanKey(span),
        { text: event.texts[at] ?? "", share: event.shares[at] ?? 0 },
      ]),
    ),
  );
  const pruned = of(events, "pruned");
  const scored = of(events, "scored");
  return (
    <figure class="picture passages">
      <figcaption>
        <h2 class="cap">Passages found</h2>
      </figcaption>
      {searches.map((search, at) => (
        <section key={at}>
          <h3>
            {oneLine(search.query, 160)}
            <small>
              {search.how} search, {counted(search.spans.length, "passage")},{" "}
              {seconds(search.seconds)}
              {scored.length > 0 &&
                ". The order and the bars are of this search, the numbers of a later step."}
            </small>
          </h3>
          <ol>
            <Rows
              search={search}
              scored={scored}
              pruned={pruned}
              cited={answered?.citations ?? []}
              shortened={shortened}
            />
          </ol>
        </section>
      ))}
      {!searches.length && scored[0] && (
        <ol>
          <Rows
            search={scored[0]}
            scored={[]}
            pruned={pruned}
            cited={answered?.citations ?? []}
            shortened={shortened}
          />
        </ol>
      )}
      {!searches.length && !scored.length && (
        <ol>
          {of(events, "shortened")
            .slice(-1)
            .map((event) => (
              <Rows
                key="shortened"
                search={{ spans: event.spans, scores: event.shares }}
                scored={[]}
                pruned={pruned}
                cited={answered?.citations ?? []}
                shortened={shortened}
              />
            ))}
        </ol>
      )}
    </figure>
  );
}

type Made = {
  search: { spans: Span[]; scores: number[] };
  scored: EventOf<"scored">[];
  pruned: EventOf<"pruned">[];
  cited: Span[];
  shortened: Map<string, { text: string; share: number }>;
};

function Rows({ search, scored, pruned, cited, shortened }: Made) {
  const bars = shares(search.scores);
  return (
    <Few all={search.spans} most={10}>
      {(span, at) => {
        const left = pruned.find((event) => event.spans.some((each) => overlaps(each, span)));
        const behind = cited.find((each) => overlaps(each, span));
        const short = shortened.get(spanKey(span));
        return (
          <li key={spanKey(span)} class={behind ? "cited" : left ? "pruned" : undefined}>
            <Bar share={bars[at] ?? 0} tone="c0" label={`score ${score(search.scores[at] ?? 0)}`} />
            <div>
              <SpanLink span={span}>
                <DocumentTitle id={span.document_id} />
              </SpanLink>
              {behind && <span class="tag cited">cited</span>}
              {left && <span class="tag pruned">left out: {left.reason}</span>}
              {scored.map((event, nth) => {
                const place = event.spans.findIndex((each) => spanKey(each) === spanKey(span));
                return place < 0 ? null : (
                  <span key={nth} class="tag">
                    {event.signal} {score(event.scores[place] ?? 0)}
                  </span>
                );
              })}
              {short && <span class="tag">{Math.round(100 * short.share)}% kept</span>}
              <Place span={behind ?? span} />
              {short ? (
                <span class="excerpt">{oneLine(short.text, 260)}</span>
              ) : (
                <Excerpt span={behind ?? span} />
              )}
            </div>
          </li>
        );
      }}
    </Few>
  );
}
