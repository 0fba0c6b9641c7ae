// Writes page/manifest.json: the digest of the sources that the page was built from, and of what
// was built. tests/server/test_page.py works both out again, so that a stale build is found
// without node.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, posix, relative, sep } from "node:path";

const here = import.meta.dirname;
const page = join(here, "../src/colligate/server/page");
const alone = [
  "index.html",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vite.config.ts",
];

const sha256 = (data) => createHash("sha256").update(data).digest("hex");

function filesUnder(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) =>
      relative(folder, join(entry.parentPath, entry.name)).split(sep).join(posix.sep),
    );
}

const sources = filesUnder(join(here, "src"))
  .filter((name) => !name.includes(".test."))
  .map((name) => `src/${name}`)
  .concat(alone)
  .sort();
const lines = sources
  .map((name) => `${sha256(readFileSync(join(here, name)))}  ${name}\n`)
  .join("");
const assets = Object.fromEntries(
  filesUnder(page)
    .filter((name) => name !== "manifest.json")
    .sort()
    .map((name) => [name, sha256(readFileSync(join(page, name)))]),
);
writeFileSync(
  join(page, "manifest.json"),
  JSON.stringify({ sources: sha256(lines), assets }, null, 2) + "\n",
);
