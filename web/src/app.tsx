import type { FunctionComponent } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { locked } from "./api";
import { DocumentSheet } from "./parts/sheet";
import { Locked } from "./parts/locked";
import { Mark, Moon, Sun } from "./parts/icons";
import { ProblemNote } from "./parts/problem";
import { link, route } from "./route";
import { about, libraries, library, loadAll, theme, trouble } from "./state";
import { AskView, isInView } from "./views/ask";
import { DocumentView } from "./views/document";
import { LibraryView } from "./views/library";
import { RunView, RunsView } from "./views/runs";
import { TableView } from "./views/table";

const VIEWS: Record<string, [title: string, view: FunctionComponent]> = {
  ask: ["Ask", AskView],
  table: ["Table", TableView],
  library: ["Library", LibraryView],
  runs: ["Runs", RunsView],
  run: ["Run", RunView],
  document: ["Document", DocumentView],
};
const SHOWN = ["ask", "table", "library", "runs"];

export function App() {
  const { view } = route.value;
  const name = !(view in VIEWS) || (view === "run" && isInView(route.value)) ? "ask" : view;
  const [title, View] = VIEWS[name] ?? ["Ask", AskView];
  const main = useRef<HTMLElement>(null);
  const shown = useRef(name);
  useEffect(() => {
    document.title = `${title} · colligate`;
    if (shown.current !== name) {
      // A view is a new page to somebody who cannot see it change.
      main.current?.focus({ preventScroll: true });
      scrollTo({ top: 0, behavior: "instant" });
      shown.current = name;
    }
  }, [name, title]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => (event.preventDefault(), main.current?.focus())}
      >
        Skip to the content
      </a>
      <Header view={name} />
      <main id="main" ref={main} tabIndex={-1} class={`view-${name}`}>
        {trouble.value && (
          <ProblemNote problem={trouble.value.problem}>
            <button type="button" onClick={() => void loadAll()}>
              Try again
            </button>
          </ProblemNote>
        )}
        {!locked.value && <View />}
      </main>
      <footer class="foot">
        <span>colligate {about.value?.version}</span>
        <Models />
        <a href="api/openapi.json">API</a>
      </footer>
      <DocumentSheet />
      <Locked />
    </>
  );
}

function Header({ view }: { view: string }) {
  return (
    <header class="top">
      <a class="brand" href={link("ask")} aria-label="colligate: ask">
        <Mark />
        <span>colligate</span>
      </a>
      <nav aria-label="Views">
        {SHOWN.map((name) => (
          <a key={name} href={link(name)} aria-current={view === name ? "page" : undefined}>
            {VIEWS[name]?.[0]}
          </a>
        ))}
      </nav>
      <LibraryChoice />
      <ThemeSwitch />
    </header>
  );
}

function LibraryChoice() {
  const all = libraries.value ?? [];
  if (all.length < 2) return <span class="grow" />;
  return (
    <label class="library-choice grow">
      <span class="quiet">Library</span>
      <select
        aria-label="Library"
        value={library.value}
        onChange={(event) => (library.value = event.currentTarget.value)}
      >
        {all.map((each) => (
          <option key={each.name} value={each.name}>
            {each.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function ThemeSwitch() {
  const dark =
    theme.value === "system"
      ? matchMedia("(prefers-color-scheme: dark)").matches
      : theme.value === "dark";
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={dark ? "Use light colours" : "Use dark colours"}
      title={dark ? "Light" : "Dark"}
      onClick={() => (theme.value = dark ? "light" : "dark")}
    >
      {dark ? <Sun /> : <Moon />}
    </button>
  );
}

function Models() {
  const models = Object.entries(about.value?.models ?? {}).filter(([, name]) => name);
  return (
    <span class="models">
      {models.map(([role, name]) => (
        <span key={role}>
          {role} <b>{name}</b>
        </span>
      ))}
      {about.value?.advice}
    </span>
  );
}
