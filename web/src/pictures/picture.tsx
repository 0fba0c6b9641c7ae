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
    [["retrieved", "scored", "shortened"], PassagesPicture],
  ];

/** How a strategy works, drawn from its events; without `passages`, which are shown beside it, if so. */
export function Picture({ events, passages }: Shown & { passages: boolean }) {
  const kinds = new Set(events.map((event) => event.event));
  const found = PICTURES.find(([signs]) => signs.some((sign) => kinds.has(sign)));
  const Drawn = found?.[1];
  if (!Drawn || (Drawn === PassagesPicture && !passages)) return null;
  return <Drawn events={events} />;
}
