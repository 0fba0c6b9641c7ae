"""Take screenshots of the page for the README, of a running server with any model.

    colligate serve --library papers &
    python web/screenshots.py --out docs/images --upload examples/licences \\
        --question "How many days does a violator have to cure a first violation?"

It needs Pillow, Playwright (`pip install pillow playwright`) and Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, ViewportSize, sync_playwright

SIZE = ViewportSize(width=1360, height=860)
QUESTION = (
    "How many days does a violator have to cure a first violation under the GPL version 3, "
    "and how many under the Mozilla Public License 2.0?"
)
STRATEGIES = ["auto", "duquad", "rdr2", "dualrag", "spd-rag", "longrefiner"]
AN_HOUR = 3_600_000  # milliseconds: small models on small machines are slow


def main() -> None:
    """Take the pictures."""
    given = parse_arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        path = given.chromium or shutil.which("chromium") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        if given.upload:
            with open_page(browser, given) as page:
                upload(page, given.url, given.upload)
        for strategy in given.strategies:
            with open_page(browser, given) as page:
                ask(page, given.url, given.question, strategy)
                save(page, given.out / f"{strategy}.png")
                if page.locator("figure.picture").count():
                    picture = page.locator("figure.picture").first
                    save(picture, given.out / f"{strategy}-picture.png")
                if strategy == given.strategies[0]:
                    follow_citation(page)
                    save(page, given.out / "citation.png")
                    if page.get_by_role("button", name="Page of the PDF").count():
                        page.get_by_role("button", name="Page of the PDF").click()
                        page.locator(".box").first.wait_for()
                        settle(page)
                        save(page, given.out / "page.png")
        browser.close()


def upload(page: Page, url: str, folder: Path) -> None:
    """Add the files of a folder to the library, unless it has some."""
    page.goto(f"{url}#/library")
    page.get_by_label("Files to add").wait_for(state="attached")
    page.wait_for_timeout(500)  # for the list, which an empty library does not show
    if page.locator(".documents tbody tr").count():
        return
    files = sorted(path for path in folder.iterdir() if path.is_file())
    page.get_by_label("Files to add").set_input_files(files)
    page.locator(".arrival b", has_text="ready").wait_for()


def ask(page: Page, url: str, question: str, strategy: str) -> None:
    """Ask and wait for the answer."""
    page.goto(url)
    page.get_by_label("Question").fill(question)
    if strategy != "auto":  # which is chosen already
        page.get_by_text("More choices").click()
        page.get_by_label("Method").select_option(strategy)
    page.get_by_role("button", name="Ask").click()
    page.locator(".outcome[aria-busy=false]").wait_for()
    settle(page)


def follow_citation(page: Page) -> None:
    """Open the document of the first citation, if the answer has one."""
    if page.locator("a.cite").count():
        page.locator("a.cite").first.click()
        page.locator("mark.main").first.wait_for()
        settle(page)


def save(shown: Page | Locator, file: Path) -> None:
    """Save a screenshot with 256 colours, which takes about half of the bytes."""
    shown.screenshot(path=file)
    with Image.open(file) as picture:
        palette = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        palette.save(file, optimize=True)


def settle(page: Page) -> None:
    """Wait for excerpts and animations."""
    page.mouse.move(0, 0)
    page.locator(".excerpt.waiting").first.wait_for(state="detached")
    page.wait_for_timeout(1500)


@contextmanager
def open_page(browser: Browser, given: argparse.Namespace) -> Iterator[Page]:
    """Open a page with the token."""
    context = browser.new_context(viewport=SIZE, device_scale_factor=given.scale)
    page = context.new_page()
    page.set_default_timeout(AN_HOUR)
    if given.token:
        page.add_init_script(f"sessionStorage.setItem('colligate.token', {given.token!r})")
    yield page
    context.close()


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8420/")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--upload", type=Path, help="a folder whose files are added")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--scale", type=float, default=1.0, help="pixels per point")
    parser.add_argument("--token", default=os.environ.get("COLLIGATE_TOKEN"))
    parser.add_argument("--chromium", default=os.environ.get("COLLIGATE_CHROMIUM"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
