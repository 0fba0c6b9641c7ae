"""The built page: of the sources that are here, whole, and with nothing from elsewhere."""

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
PAGE = ROOT / "src" / "colligate" / "server" / "page"
ALONE = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_page_is_built_of_these_sources():
    """web/digest.mjs writes the digest; this works it out again, without node."""
    files = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    names = [path.relative_to(WEB).as_posix() for path in files if ".test." not in path.name]
    lines = [f"{sha256((WEB / name).read_bytes())}  {name}\n" for name in sorted(names + ALONE)]
    built = json.loads((PAGE / "manifest.json").read_text())
    told = "the page is stale: npm ci && npm run build, in web/"
    assert built["sources"] == sha256("".join(lines).encode()), told


def test_the_page_is_whole():
    """Every file is the one that was built, and there is no other."""
    built = json.loads((PAGE / "manifest.json").read_text())["assets"]
    here = {
        path.relative_to(PAGE).as_posix(): sha256(path.read_bytes())
        for path in PAGE.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert here == built


def test_the_page_needs_nothing_from_elsewhere():
    """It loads what the server has beside it, which its Content-Security-Policy holds it to."""
    html = (PAGE / "index.html").read_text()
    asked = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert len(asked) >= 3
    for address in asked:
        assert re.fullmatch(r"\./assets/[\w-]+-[\w-]{8}\.(js|css|svg)", address), address
        assert (PAGE / address).is_file()
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", html)
    for sheet in PAGE.glob("assets/*.css"):
        assert not re.search(r"url\(|@import", sheet.read_text())
