import type { Events, TraceEvent } from "../types";
import { DuquadPicture } from "./duquad";
import { OutlinePicture } from "./outline";
import { AgentsPicture } from "./agents";
import { PassagesPicture } from "./passages";
import { RefinedPicture } from "./refined";
import { RoutedPicture } from "./routed";

type Shown = { events: readonly TraceEvent[] };

// The events decide, not the name of the strategy: other packages have strategies too.
const PICTURES: [signs: (keyof Events)[], picture: (shown: Shown) => preact.JSX.Element | null][] =
  [
    [["planned", "agentturn", "agentended"], AgentsPicture],
    [["listed", "weighted", "viewed"], DuquadPicture],
    [["identified", "reasoned", "outlined"], OutlinePicture],
    [["routed"], RoutedPicture],
    [["weighed", "structured"], RefinedPicture],
  ];
const PASSAGES: (keyof Events)[] = ["retrieved", "scored", "shortened"];

/** How the strategy and the retriever work, drawn from their events; of those without a picture
 * the `passages` found, unless they are shown beside it. */
export function Picture({ events, passages }: Shown & { passages: boolean }) {
  const kinds = new Set(events.map((event) => event.event));
  const has = (signs: (keyof Events)[]) => signs.some((sign) => kinds.has(sign));
  const found = PICTURES.filter(([signs]) => has(signs));
  if (!found.length) return passages && has(PASSAGES) ? <PassagesPicture events={events} /> : null;
  return (
    <>
      {found.map(([[sign], Drawn]) => (
        <Drawn key={sign} events={events} />
      ))}
    </>
  );
}
