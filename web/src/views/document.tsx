import { Reader } from "../parts/reader";
import { link, route } from "../route";
import { titleOf } from "../state";

/** A document on its own page, whose address can be kept and sent. */
export function DocumentView() {
  const { parts, query } = route.value;
  const [library = "default", id = ""] = parts;
  const start = whole(query.get("start"));
  const end = whole(query.get("end"));
  if (!id)
    return (
      <p class="quiet">
        No document is named. <a href={link("library")}>See the library.</a>
      </p>
    );
  return (
    <article class="document-view">
      <h1>{titleOf(library, id)}</h1>
      <Reader library={library} id={id} start={start} end={Math.max(start, end)} />
    </article>
  );
}

function whole(text: string | null): number {
  const number = Number(text);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
