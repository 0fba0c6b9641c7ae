import { Bar } from "../parts/bar";
import { Few, SpanLink } from "../parts/spans";
import { lastOf, of } from "../run";
import { counted, oneLine } from "../format";
import { is, type EventOf, type TraceEvent } from "../types";
import { Places } from "./outline";

type Agent = {
  id: string;
  title: string;
  turns: EventOf<"agentturn">[];
  ended: EventOf<"agentended"> | undefined;
};

/** SPD-RAG: the plan, a card for each document's agent, and the levels of the synthesis. */
export function AgentsPicture({ events }: { events: readonly TraceEvent[] }) {
  const planned = lastOf(events, "planned");
  const agents = new Map<string, Agent>();
  for (const event of events) {
    if (!is(event, "agentturn") && !is(event, "agentended")) continue;
    const agent = agents.get(event.document) ?? {
      id: event.document,
      title: event.title,
      turns: [],
      ended: undefined,
    };
    if (is(event, "agentturn")) agent.turns.push(event);
    else agent.ended = event;
    agents.set(event.document, agent);
  }
  const all = [...agents.values()].sort((a, b) => worth(b) - worth(a));
  const empty = all.filter(isEmpty);
  const waiting = Math.max(0, (planned?.documents ?? 0) - all.length);
  return (
    <figure class="picture agents">
      <figcaption>
        <h2 class="cap">An agent for every document</h2>
      </figcaption>
      {planned && (
        <div class="plan">
          <ol>
            {planned.tasks.map((task) => (
              <li key={task}>{task}</li>
            ))}
          </ol>
          {planned.directive && (
            <p class="quiet">
              <b>For the synthesis:</b> {planned.directive}
            </p>
          )}
        </div>
      )}
      <ul class="board">
        <Few all={all.filter((agent) => !isEmpty(agent))} most={24}>
          {(agent) => <Card key={agent.id} agent={agent} />}
        </Few>
        {Array.from({ length: Math.min(waiting, 24) }, (_, at) => (
          <li key={`waiting ${at}`} class="card waiting" aria-hidden="true" />
        ))}
      </ul>
      {empty.length > 0 && (
        <div class="empty">
          <p>Nothing found in {counted(empty.length, "document")}:</p>
          <ul>
            <Few all={empty} most={20}>
              {({ id, title, turns }) => (
                <li key={id}>
                  <SpanLink span={{ document_id: id, start: 0, end: 0 }}>
                    {oneLine(title, 60)}
                  </SpanLink>{" "}
                  <small>{counted(turns.length, "turn")}</small>
                </li>
              )}
            </Few>
          </ul>
        </div>
      )}
      <Levels events={events} />
    </figure>
  );
}

/** The order of cards: findings by relevance, then agents at work, then those that failed. */
function worth({ ended }: Agent): number {
  if (!ended) return 0.5;
  return ended.problem ? 0 : 1 + ended.relevance;
}

const isEmpty = ({ ended }: Agent): boolean =>
  ended !== undefined && !ended.problem && !ended.findings.length && !ended.relevance;

function Card({ agent: { id, title, turns, ended } }: { agent: Agent }) {
  const last = turns.at(-1);
  const state = !ended ? "working" : ended.problem ? "failed" : "found";
  const said = {
    working: last?.query ? `searching “${oneLine(last.query, 60)}”` : "reading",
    failed: ended?.problem ?? "",
    found: counted(ended?.findings.length ?? 0, "finding"),
  }[state];
  return (
    <li class={`card ${state}`}>
      <header>
        <SpanLink span={{ document_id: id, start: 0, end: 0 }}>{oneLine(title, 60)}</SpanLink>
        <span class="dots" title={counted(turns.length, "turn")}>
          <span class="unseen">{counted(turns.length, "turn")}</span>
          {turns.slice(0, 8).map((turn) => (
            <i key={turn.turn} class={turn.shown?.length ? "full" : undefined} />
          ))}
        </span>
      </header>
      {ended && state === "found" && (
        <Bar share={ended.relevance} tone="c2" label={`relevance ${ended.relevance.toFixed(2)}`} />
      )}
      {ended && state === "found" ? (
        <details>
          <summary>{said}</summary>
          {!ended.findings.length && <p>{ended.report}</p>}
          <ul>
            {ended.findings.map((finding) => (
              <li key={finding.text}>
                {finding.text} <Places spans={finding.spans} />
              </li>
            ))}
          </ul>
        </details>
      ) : (
        <p class="quiet">{said}</p>
      )}
      {ended && ended.dropped > 0 && (
        <p class="quiet why">
          {counted(ended.dropped, "quoted line")} not found in what the agent read
        </p>
      )}
    </li>
  );
}

function Levels({ events }: { events: readonly TraceEvent[] }) {
  const levels = of(events, "grouped");
  if (!levels.length) return null;
  return (
    <div class="levels">
      <h3>Synthesis</h3>
      {levels.map((level) => (
        <div key={level.level} class="level">
          <span class="n">{level.level}</span>
          {level.groups.map((group, at) => (
            <span
              key={at}
              class="group"
              style={{ flexGrow: group.length }}
              title={`${group.length} texts, ${group.reduce((sum, text) => sum + (level.tokens[text] ?? 0), 0)} tokens of ${level.budget}`}
            >
              {group.map((text) => (
                <i key={text} style={{ flexGrow: Math.max(1, level.tokens[text] ?? 1) }} />
              ))}
              <small>{counted(group.length, "text")}</small>
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}
