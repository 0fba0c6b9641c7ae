import { SpanLink, Few } from "../parts/spans";
import { lastOf, of } from "../run";
import { counted } from "../format";
import type { FoundThere, TraceEvent } from "../types";

const WHY: Record<string, string> = {
  enough: "nothing is missing",
  rounds: "the limit of rounds is reached",
  budget: "the rest of the token budget is reserved for the answer",
};

/** DualRAG: a thought, what it looks up, and the outline of knowledge that grows from it. */
export function OutlinePicture({ events }: { events: readonly TraceEvent[] }) {
  const rounds = [...new Set(of(events, "reasoned").map((event) => event.round))];
  const identified = of(events, "identified");
  if (!rounds.length) rounds.push(...new Set(identified.map((event) => event.round)));
  const outlines = of(events, "outlined");
  const latest = outlines.at(-1);
  const stopped = lastOf(events, "stopped");
  const since = new Map<string, number>();
  for (const outline of outlines) {
    for (const entity of outline.entities) {
      for (const fragment of entity.fragments) {
        const key = `${entity.name}\n${fragment.text}`;
        if (!since.has(key)) since.set(key, outline.round);
      }
    }
  }
  return (
    <figure class="picture outline">
      <figcaption>
        <h2 class="cap">Reasoning and the outline of knowledge</h2>
      </figcaption>
      <ol class="rounds">
        {rounds.map((round) => {
          const thought = of(events, "reasoned").find((event) => event.round === round);
          const looked = identified.find((event) => event.round === round);
          return (
            <li key={round} class="round">
              <span class="n">{round}</span>
              <div>
                {thought && <p class="thought">{thought.thought}</p>}
                {looked && (
                  <ul class="entities">
                    {looked.queries.map((queries, at) => {
                      const name = looked.links[at]?.name ?? "";
                      const read = of(events, "gathered").filter(
                        (event) => event.round === round && event.entity === name,
                      );
                      const fresh = read.reduce((sum, each) => sum + each.unseen.length, 0);
                      const summary = of(events, "summarised").find(
                        (event) => event.round === round && event.entity === name,
                      );
                      return (
                        <li key={at}>
                          <b>{name || "looked up"}</b>
                          <span class="queries">{queries.join(" · ")}</span>
                          <small>
                            {read.length > 0 &&
                              (fresh ? counted(fresh, "new passage") : "nothing new")}
                            {summary && `, ${counted(summary.fragments.length, "statement")}`}
                          </small>
                        </li>
                      );
                    })}
                  </ul>
                )}
              </div>
            </li>
          );
        })}
        {stopped && (
          <li class="round stopped">
            <span class="n">■</span>
            <p>Stopped: {WHY[stopped.reason] ?? stopped.reason}.</p>
          </li>
        )}
      </ol>
      {latest && latest.entities.length > 0 && (
        <div class="grown">
          <h3>Knowledge so far</h3>
          {latest.entities.map((entity) => (
            <section key={entity.name}>
              <h4>{entity.name}</h4>
              <ul>
                <Few all={entity.fragments} most={6}>
                  {(fragment) => (
                    <Fragment
                      key={fragment.text}
                      fragment={fragment}
                      since={since.get(`${entity.name}\n${fragment.text}`) ?? 0}
                      latest={latest.round}
                    />
                  )}
                </Few>
              </ul>
            </section>
          ))}
        </div>
      )}
    </figure>
  );
}

function Fragment({
  fragment,
  since,
  latest,
}: {
  fragment: FoundThere;
  since: number;
  latest: number;
}) {
  return (
    <li class={since === latest ? "fresh" : undefined}>
      {fragment.text} <Places spans={fragment.spans} />
      <small class="since">round {since}</small>
    </li>
  );
}

/** Small links to places in documents. */
export function Places({ spans }: { spans: FoundThere["spans"] }) {
  return (
    <span class="places">
      {spans.slice(0, 4).map((span, at) => (
        <SpanLink key={at} class="place" span={span} others={spans}>
          <span class="unseen">Place </span>
          {at + 1}
        </SpanLink>
      ))}
    </span>
  );
}
