"""The page in a real browser, over a real server: what a person does with it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route, expect

from colligate import Settings
from colligate.server.tokens import Right, TokenFile
from colligate.settings import Named
from colligate.testing import ScriptedModel
from support.http_server import RULES, quoting, threaded
from support.models import one_by_one
from support.plugins import TOY_ENTRY_POINTS, TOY_STRATEGY, installed

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]

Do = Callable[..., Awaitable[Any]]
DAYS = "How many days to cure a violation after notice?"
PHONE = {"width": 390, "height": 844}
LIMITS = {"most_documents": 1, "tokens": 500}
TOKEN = "open-sesame-open-sesame"


def squeezed(text: str | None) -> str:
    return " ".join((text or "").split())


async def test_files_and_libraries_are_added_listed_and_removed(page, served, upload):
    files = {"yard.md": b"# Yard\n\nBicycles stand in the yard.\n", "broken.pdf": b"%PDF-1.7 no"}
    await upload(page, served, "house", files)
    await expect(page.locator(".arrival b").first).to_have_text("1 document ready")
    await expect(page.locator(".left-out")).to_contain_text("broken.pdf")
    row = page.get_by_role("row", name="Yard")
    await expect(row).to_contain_text("yard.md")
    await row.get_by_role("button", name="Remove Yard").dblclick()  # confirms nothing
    await row.get_by_role("button", name="Confirm").click()
    await expect(page.get_by_role("row", name="Yard")).to_have_count(0)
    await page.get_by_role("button", name="Remove the library house").click()
    await page.get_by_role("button", name="Confirm").click()
    await expect(page.get_by_role("heading", name="Library", exact=True)).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_the_first_screen_suggests_questions_and_takes_files(page, served, upload, tmp_path):
    files = {
        "yard.md": b"# Yard\n\n## Bicycles\n\nThey stand in the yard, in two rows.\n",
        "hall.md": b"# Hall\n\n## Shoes\n\nThey stand in the hall.\n",
    }
    await upload(page, served, "start", files)
    await page.goto(f"{served}#/ask")
    await expect(page.locator(".welcome")).to_contain_text("2 documents")
    newest = page.locator(".latest a").first
    title = await newest.inner_text()
    heading = {"Hall": "Shoes", "Yard": "Bicycles"}[title]
    sample = f"What does “{title}” say about “{heading}”?"
    await page.get_by_role("button", name=sample).click()
    await expect(page.get_by_label("Question")).to_have_value(sample)
    await page.evaluate(
        """() => {
            const moved = new DataTransfer();
            moved.items.add(new File(["# Attic\\n\\nDust lies in the attic.\\n"], "attic.md"));
            const drop = new DragEvent("drop", { dataTransfer: moved, bubbles: true });
            document.querySelector(".drop").dispatchEvent(drop);
        }"""
    )
    await expect(page.locator(".arrival b").first).to_have_text("1 document ready")
    await expect(newest).to_have_text("Attic")
    await newest.click()
    await expect(page.get_by_role("dialog").locator(".text")).to_contain_text("Dust lies")
    await page.keyboard.press("Escape")
    (tmp_path / "under").mkdir()
    (tmp_path / "under" / "cellar.md").write_text("# Cellar\n\nWine lies in the cellar.\n")
    (tmp_path / ".hidden.md").write_text("# Hidden\n\nIt is not for the library.\n")
    await page.get_by_label("Folder to add").set_input_files(tmp_path)
    await expect(newest).to_have_text("Cellar")
    await expect(page.locator(".welcome")).to_contain_text("4 documents")


async def test_a_citation_leads_to_its_highlight(page, filled, ask):
    await ask(page, filled)
    quote = squeezed(await page.locator(".source q").first.text_content()).rstrip("…")
    chip = page.locator("a.cite").first
    await chip.click()
    sheet = page.get_by_role("dialog")
    marked = sheet.locator("mark.main")
    await expect(marked).to_be_in_viewport()
    assert squeezed(await marked.text_content()).startswith(quote)
    await expect(sheet.locator(".headings .lit.last")).to_be_in_viewport()
    section = await sheet.locator(".headings .lit.last").text_content()
    assert section in (await page.locator(".source small").first.text_content() or "")
    await page.keyboard.press("ArrowRight")
    await expect(sheet.locator(".stepper")).to_contain_text("Source 2")
    await expect(marked).not_to_contain_text(quote)
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog.sheet")).not_to_be_visible()
    await expect(chip).to_be_focused()
    await page.goto(f"{filled}{await chip.get_attribute('href')}")
    await expect(page.locator("mark.main")).to_be_in_viewport()
    await page.locator(".headings button").first.click()
    await expect(page.locator("mark.main")).not_to_be_in_viewport()


async def test_a_follow_up_keeps_its_history_and_what_it_may_read(page, filled):
    field, earlier = page.get_by_label("Follow-up"), page.locator(".earlier details")

    async def sent_by(act: Awaitable[None]) -> dict[str, Any]:
        async with page.expect_request("**/libraries/default/ask") as waiting:
            await act
        return (await waiting.value).post_data_json

    await page.goto(f"{filled}#/ask")
    await page.get_by_text("More choices").click()
    await page.locator(".documents-choice").get_by_label("Mozilla").check()
    conditions = page.get_by_label("only documents that meet")
    await conditions.fill("title!=rent; costs; größe!=1;language=en;")
    await expect(page.locator(".settings .count")).to_have_text("2")
    await page.get_by_label("Question").fill(DAYS)
    first = await sent_by(page.get_by_role("button", name="Ask").click())
    assert len(first["documents"]) == 1
    assert first["where"] == ["title!=rent; costs", "größe!=1", "language=en"]
    stopped = "And do you never reply about Mozilla?"
    await field.fill(stopped)
    sent = [await sent_by(field.press("Enter"))]
    await page.get_by_role("button", name="Stop").click()
    await expect(field).to_have_value(stopped)
    await field.fill("And under the Mozilla Public License?")
    sent.append(await sent_by(field.press("Enter")))
    for each in sent:
        assert [turn["question"] for turn in each["history"]] == [DAYS]
        assert (each["documents"], each["where"]) == (first["documents"], first["where"])
    whole = f"{DAYS} And under the Mozilla Public License?"
    await expect(page.locator(".asked-as")).to_contain_text(f"Asked as: {whole}")
    await expect(earlier).to_have_count(1)
    await earlier.get_by_text(DAYS).click()
    await expect(earlier.locator(".said")).to_be_visible()
    # A question in the box at the top begins another conversation.
    await page.get_by_role("button", name="Ask").first.click()
    await expect(earlier).to_have_count(0)


async def test_an_answer_is_copied_downloaded_and_sent(look, filled, ask):
    page = (await look(permissions=["clipboard-read", "clipboard-write"])).page
    await ask(page, filled)
    quote = squeezed(await page.locator(".source q").first.text_content()).rstrip("…")
    await page.get_by_role("button", name="Copy", exact=True).click()
    await expect(page.locator(".after [role=status]")).to_have_text("Copied as Markdown")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("# How many days does a violator have")
    assert "(GPL-3.txt)" in copied
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download as HTML").click()
    download = await waiting.value
    assert download.suggested_filename == "how-many-days-does-a-violator-have-to.html"
    written = html.unescape((await download.path()).read_text("utf-8"))
    assert quote in squeezed(written)
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download as BibTeX").click()
    assert "2007" in (await (await waiting.value).path()).read_text("utf-8")
    await page.get_by_role("button", name="Copy link").click()
    await expect(page.locator(".after [role=status]")).to_have_text("Link copied")
    address = await page.evaluate("navigator.clipboard.readText()")
    assert address.startswith(f"{filled}#/run/")
    assert page.url == address
    said = await page.locator(".said").text_content()
    await page.reload()
    await expect(page.locator(".said")).to_have_text(said or "")


async def test_pages_and_characters_beyond_the_basic_plane(page, served, upload):
    text = "# Signs\n\n" + "\U0001f6b2 " * 40 + "\n\nThe bell \U0001f514 rings at nine.\n"
    await page.set_content("<p>The yard.</p><p style='break-before: page'>The hall.</p>")
    files = {"signs.md": text.encode(), "two.pdf": await page.pdf()}
    await upload(page, served, "signs", files)
    found = await page.evaluate(
        """async () => {
            const get = async (path) => (await fetch(`api/libraries/signs/${path}`)).json();
            const all = await get("documents");
            return Promise.all(all.map((each) => get(`documents/${each.id}`)));
        }"""
    )
    signs = next(each for each in found if not each["pages"])
    start = signs["text"].index("rings at nine")  # code points, as Python counts
    await page.goto(f"{served}#/document/signs/{signs['id']}?start={start}&end={start + 13}")
    await expect(page.locator("mark.main")).to_have_text("rings at nine")
    paged = next(each for each in found if each["pages"])
    await page.goto(f"{served}#/document/signs/{paged['id']}")
    await expect(page.locator(".page-mark")).to_have_text(["page 1", "page 2"])


async def test_later_text_of_a_document_is_shown_once(page, served, upload):
    lines = [f"Line {n:04} of the record." for n in range(200)]
    await upload(page, served, "record", {"record.txt": "\n\n".join(lines).encode()})
    (record,) = await page.evaluate(
        "async () => (await fetch('api/libraries/record/documents')).json()"
    )

    async def shorten(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("end=160000", "end=2000"))

    await page.route("**/documents/*?start=0&end=160000", shorten)
    await page.goto(f"{served}#/document/record/{record['id']}")
    button = page.locator(".more-text")
    await button.dblclick()
    await expect(button).to_have_count(0)
    assert await page.locator(".text p").all_text_contents() == lines


async def test_html_in_documents_is_text(page, served, upload, ask):
    attack = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
    text = f"# Bells {attack}\n\nThe bell of the {attack} tower rings at nine in the morning.\n"
    await upload(page, served, "hostile", {'<img src=x onerror="harmed=1">.md': text.encode()})
    await ask(page, served, f"When does the bell of the {attack} tower ring in the morning?")
    await expect(page.locator(".said")).to_contain_text("onerror")
    await page.locator(".source").first.click()
    shown = page.locator("dialog p mark.main").first
    await expect(shown).to_contain_text("<script>window.harmed=1")
    await page.goto(f"{served}#/runs")
    await expect(page.locator(".run-list li").first).to_contain_text("onerror")
    assert await page.evaluate("window.harmed") is None
    assert await page.locator("main img, main script, dialog img, dialog script").count() == 0


async def test_markdown_and_tables_are_rendered_and_highlighted_exactly(page, served, upload):
    text = (
        "# Fees\n\nA *late* return costs **nine dollars** a day, "
        "see [rules](javascript:alert(1)).\n\n"
        "- first step\n- second step\n\n"
        "| Year | Fee |\n|---|---:|\n"
        "| 2023 | 7 \\| 8 dollars |\n| 2024 | **9** dollars <b>net</b> |\n"
    )
    await upload(page, served, "fees", {"fees.md": text.encode()})
    (fees,) = await page.evaluate(
        "async () => (await fetch('api/libraries/fees/documents')).json()"
    )
    start = text.index("late* return")
    await page.goto(
        f"{served}#/document/fees/{fees['id']}?start={start}&end={text.index(' a day')}"
    )
    shown = page.locator(".text")
    await expect(shown.locator("p").first).to_have_text(
        "A late return costs nine dollars a day, see rules."
    )
    marked = await shown.locator("mark.main").all_text_contents()
    assert "".join(marked) == "late return costs nine dollars"
    await expect(shown.locator("td")).to_have_text(
        ["Year", "Fee", "2023", "7 | 8 dollars", "2024", "9 dollars <b>net</b>"]
    )
    await expect(shown.locator("p.list_item")).to_have_text(["first step", "second step"])
    assert await shown.locator("a, b").count() == 0


PICTURES = {
    "retrieve-read": (".passages .tag.cited", 1),
    "duquad": (".duquad .kept .bar", 5),
    "rdr2": (".routed .accepted.block", 1),
    "dualrag": (".outline .grown li .place", 1),
    "spd-rag": (".agents .card.found .bar", 1),
    "longrefiner": (".refined .parts .paragraph.kept", 1),
}


@pytest.mark.parametrize("strategy", PICTURES)
async def test_a_strategy_shows_how_it_works(page, filled, ask, strategy):
    await ask(page, filled, strategy=strategy)
    await expect(page.locator(".said")).to_contain_text("prior to")
    sign, least = PICTURES[strategy]
    assert await page.locator(f".picture{sign}").count() >= least
    await expect(page.locator(".cost")).to_contain_text("tokens read")
    await page.locator(".cost").click()
    # An agent of SPD-RAG reads a short document at once, without a search.
    part = "files" if strategy == "spd-rag" else "search"
    await expect(page.locator(".split")).to_contain_text(part)
    await expect(page.locator(".step.end")).to_contain_text("Answered with")


@pytest.mark.parametrize(
    ("name", "said", "sign"),
    [
        ("sfs", "fused scores (DuQUAD)", ".duquad .rows a"),
        ("rdr2", "routed sections (RDR2)", ".routed .accepted.block"),
        ("longrefiner", "refined parts (LongRefiner)", ".refined .parts .paragraph.kept"),
    ],
)
async def test_a_retriever_shows_how_it_finds(page, filled, name, said, sign):
    await page.goto(filled)
    await page.get_by_label("Question").fill(DAYS)
    await page.get_by_text("More choices").click()
    await page.get_by_label("Method").select_option("retrieve-read")
    await page.get_by_label("Find evidence by").select_option(label=said)
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator(".said")).to_contain_text("prior to")
    assert await page.locator(f".picture{sign}").count() >= 1
    await expect(page.locator(".run-head code")).to_have_text(f"retrieve-read + {name}")


async def test_a_source_outside_the_library_is_quoted_and_no_link(
    page, ask, upload, tmp_path, openai_server
):
    text = "Bicycles of guests stand in the shed."
    found = {"result": [[{"document": {"id": "7", "text": text}, "score": 0.9}]]}
    openai_server.garble(json.dumps(found).encode(), times=9)
    named = Settings(retriever=Named(f"http:{openai_server.address}"))
    with threaded(tmp_path, ScriptedModel(quoting), named) as url:
        await upload(page, url, "own", {"rules.md": RULES["rules.md"].encode()})
        await ask(page, f"{url}#/ask", "Where do bicycles stand? shed")
        await expect(page.locator(".source q")).to_have_text(text)
        await expect(page.locator(".picture .tag.cited")).to_have_count(1)
        await expect(page.locator(".cite")).to_have_count(1)
        assert await page.locator("a:is(.cite, .source), .picture a, .step a").count() == 0


async def test_a_strategy_from_outside_is_shown_with_its_lines(page, ask, upload, tmp_path):
    with (
        installed(tmp_path / "site", TOY_STRATEGY, TOY_ENTRY_POINTS),
        threaded(tmp_path) as url,
    ):
        await upload(page, url, "own", {"rules.md": RULES["rules.md"].encode()})
        await ask(page, f"{url}#/ask", "Which is first?", "toy")
        await expect(page.locator(".said")).to_have_text("Rules")
        # Nothing cited says who wrote it, or when.
        await expect(page.get_by_role("button", name="Download as BibTeX")).to_have_count(0)
        step = page.locator(".step").first
        await expect(step).to_contain_text("Titles in order: 1")
        await step.locator("summary").click()
        await expect(step.get_by_role("link")).to_have_text("Rules")


async def test_one_slider_says_how_deep_and_how_long_and_a_method_replaces_it(page, filled):
    await page.goto(filled)
    depth, shown = page.get_by_role("slider", name="Depth"), page.locator(".depth")
    await expect(shown).to_have_text(re.compile("^Normal.*Also looks"))
    await expect(page.get_by_label("Method")).not_to_be_visible()
    await depth.press("ArrowLeft")
    await expect(shown).to_have_text(re.compile("^QuickReads the best passages once"))
    await page.get_by_label("Question").fill(DAYS)
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator(".said")).to_contain_text("prior to")
    await expect(page.locator(".how")).to_have_text(
        re.compile(r"^read \d+ of \d+ passages of \d documents?$")
    )
    # A run of this depth is kept, so its time is known; of another there is none.
    await expect(shown).to_have_text(re.compile(r"^Quickabout \d+ sReads"))
    await expect(depth).to_have_attribute("aria-valuetext", re.compile(r"^Quick, about \d+ s$"))
    await depth.press("End")
    await expect(shown).to_have_text(re.compile("^ThoroughTries"))
    await page.get_by_text("More choices").click()
    await page.get_by_label("Method").select_option("duquad")
    await expect(depth).to_have_count(0)
    await expect(page.locator(".question")).to_contain_text("Method: duquad")


async def test_all_documents_are_read_once_the_person_consents(page, ask, upload, tmp_path):
    with threaded(tmp_path, ScriptedModel(one_by_one)) as url:
        text = "Bicycles stand here. " * 500
        names = ("yard", "hall", "shed", "barn", "mews")  # more than are read at once
        files = {f"{name}.md": f"# {name}\n\n{text}" for name in names}
        await upload(page, url, "house", {name: text.encode() for name, text in files.items()})

        async def with_small_limits(route: Route) -> None:
            body = {**route.request.post_data_json, "parameters": LIMITS}
            await route.continue_(post_data=json.dumps(body))

        await page.route("**/ask", with_small_limits)
        await ask(page, url, "Where do all bicycles stand?", "auto")
        warnings = page.get_by_role("list", name="Warnings")
        await expect(page.locator(".how")).to_contain_text("read the documents one by one")
        await expect(warnings).to_contain_text("takes many model calls")
        await expect(page.locator("main")).not_to_contain_text("--yes")
        await warnings.get_by_role("button", name="Read all 5 documents").click()
        await expect(warnings.get_by_role("button")).to_have_count(0)
        await expect(page.locator(".how")).to_contain_text("read the documents one by one")
        await page.locator(".outcome[aria-busy=false]").wait_for()
        await expect(warnings.get_by_role("button")).to_have_count(0)
        await page.goto("about:blank")  # it asks for nothing while the server ends


async def test_what_an_answer_rests_on_is_said(page, filled, ask):
    await ask(page, filled)
    await expect(page.locator(".ground")).to_contain_text("From the documents")
    said = {
        "documents": "From the documents",
        "computed": "Computed from figures in the documents",
        "none": "Nothing in the documents supports this",
    }
    told = {"ground": "documents", "table_head": "Licence; in days"}

    async def change(route: Route) -> None:
        events = await (await route.fetch()).text()
        for name, value in told.items():
            events = re.sub(f'"{name}": "[a-z]*"', f'"{name}": "{value}"', events)
        events = re.sub('"probability": [^,]*', '"probability": 0.874', events)
        await route.fulfill(body=events)

    await page.route("**/api/runs/*/events", change)
    for told["ground"], line in said.items():
        await page.reload()
        await expect(page.locator(".ground")).to_have_text(f"{line}; likely right: 87%")
        await expect(page.locator(".source .head").first).to_have_text("Licence; in days")


async def test_what_was_located_is_shown_until_the_run_is_stopped(look, filled):
    page = (await look(viewport=PHONE)).page
    await page.goto(filled)
    await page.get_by_label("Question").fill("Please never reply about a violation")
    await page.get_by_text("More choices").click()
    await page.get_by_label("when to answer").select_option("careful")
    async with page.expect_request("**/ask") as sent:
        await page.get_by_role("button", name="Ask").click()
    assert (await sent.value).post_data_json["risk"] == "careful"
    located = page.locator(".located li")
    await expect(located.first).to_contain_text("iolat")
    await located.first.get_by_role("link").click()
    await expect(page.get_by_role("dialog").locator("mark.main").first).to_be_in_viewport()
    await page.keyboard.press("Escape")
    await page.locator(".outcome").get_by_role("button", name="Stop").click()
    await expect(page.locator(".outcome")).to_contain_text("The run was stopped.Found before")
    await page.goto(f"{filled}#/runs")
    await page.reload()
    stopped = page.locator(".run-list li", has_text="Please never reply")
    await expect(stopped).to_contain_text("cancelled")

    async def add_likely(route: Route) -> None:
        events = await (await route.fetch()).text()
        (first,) = re.findall(r'"passages": \[({"span": .*?"folder": ""})', events)
        passage = json.loads(first)
        words = {**passage["span"], "end": passage["span"]["start"] + 9}
        likely = {"event": "likely", "at": 1, "sentence": passage, "answer": words}
        said.append(passage["text"][:9])
        await route.fulfill(body=f"event: event\ndata: {json.dumps(likely)}\n\n{events}")

    said: list[str] = []
    await page.route("**/api/runs/*/events", add_likely)
    await stopped.get_by_role("link").click()
    await expect(page.locator(".run-head")).to_contain_text("Stopped")
    await expect(page.locator(".likely mark")).to_have_text(said[0])
    await page.locator(".likely").get_by_role("link").click()
    await expect(page.get_by_role("dialog").locator("mark.main").first).to_be_in_viewport()


async def test_a_kept_run_is_opened_and_followed_up(page, filled, ask):
    await ask(page, filled, "What is the kept violation of a copyright holder?")
    said = await page.locator(".said").text_content()
    await page.goto(f"{filled}#/runs")
    today = page.get_by_role("region", name="Today")
    await page.get_by_label("Search questions").fill("the kept")
    await expect(today.locator(".run-list li")).to_have_count(1)
    await page.get_by_role("link", name="the kept violation").click()
    await expect(page.locator(".run-head")).to_contain_text("Answered")
    await page.reload()
    await expect(page.locator(".said")).to_have_text(said or "")
    await page.get_by_label("Follow-up").fill("And under the Mozilla Public License?")
    await page.keyboard.press("Enter")
    await expect(page.locator(".asked-as")).to_contain_text("kept violation")
    await page.locator(".outcome[aria-busy=false] .said").wait_for()
    await page.go_back()
    await expect(page.locator(".opened .said")).to_have_text(said or "")


async def test_an_answer_is_called_right_or_wrong_with_a_note(look, filled, ask):
    page = (await look(viewport=PHONE)).page
    await ask(page, filled)
    asked = page.get_by_role("form", name="Is this answer right?")
    note = asked.get_by_label("Note on the answer")

    async def shows(verdict: str) -> None:
        for name in ("Right", "Wrong"):
            button = asked.get_by_role("button", name=name, exact=True)
            await expect(button).to_have_attribute("aria-pressed", str(name == verdict).lower())

    await shows("neither")
    await expect(note).to_have_count(0)
    await asked.get_by_role("button", name="Right").press("Enter")
    await shows("Right")
    await asked.get_by_role("button", name="Wrong").press("Space")
    await shows("Wrong")
    await note.fill("which notice?")
    await note.press("Enter")
    await expect(asked.get_by_role("status")).to_have_text("Saved")
    await page.reload()
    await shows("Wrong")
    await expect(note).to_have_value("which notice?")


async def test_a_connection_that_breaks_during_the_answer_is_reported(page, filled):
    await page.add_init_script(
        """const real = window.fetch;
        window.fetch = async (...given) => {
            const response = await real(...given);
            if (!given[0].endsWith("/ask")) return response;
            const reader = response.body.getReader();
            const start = async (body) => {
                body.enqueue((await reader.read()).value);
                body.error(new TypeError("network error"));
            };
            return new Response(new ReadableStream({ start }));
        };"""
    )
    await page.goto(filled)
    await page.get_by_label("Question").fill("May you never reply about violations?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("The run was interrupted")


async def test_a_long_library_is_folded_sorted_and_searched(look, served, upload):
    page = (await look(viewport=PHONE)).page
    files = {f"note-{n:03}.md": f"# Note {n:03}\n\nIt is short.\n".encode() for n in range(60)}
    await upload(page, served, "long", files)
    rows = page.locator(".documents tbody tr th")
    await expect(rows).to_have_count(5)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await page.get_by_role("button", name="Show 55 more").click()
    await expect(rows).to_have_count(60)
    head = page.get_by_role("columnheader", name="Document")
    for order, first in (("ascending", "Note 000"), ("descending", "Note 059")):
        await head.get_by_role("button").click()
        await expect(head).to_have_attribute("aria-sort", order)
        await expect(rows.first).to_contain_text(first)
    for words, told in (("note-05", "10 of 60"), ("xylophone", "Nothing found")):
        await page.get_by_label("Search documents").fill(words)
        status = page.locator(".library").get_by_role("status").last
        await expect(status).to_have_text(told)


async def test_an_answer_in_no_document_and_an_error_are_shown(look, filled, ask):
    looked = await look()
    page = looked.page
    await ask(page, filled, "Who discovered xylophonic zirconium?")
    await expect(page.locator(".answer.not-found")).to_contain_text("Not in these documents")
    await expect(page.locator(".sources")).to_have_count(0)
    await page.get_by_text("More choices").click()
    await page.get_by_label("only documents that meet").fill("costs")
    await page.get_by_role("button", name="Ask").first.click()
    await expect(page.get_by_role("alert")).to_contain_text("costs")
    assert "Failed to load resource" in looked.complaints.pop()  # Chromium says so of any 4xx


async def test_a_server_that_is_gone_is_reported(look, filled):
    looked = await look()
    page = looked.page

    async def gone(route: Route) -> None:
        await route.abort()

    await page.route("**/api/**", gone)
    await page.goto(filled)
    await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    await page.unroute("**/api/**")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(page.locator(".welcome")).to_contain_text("documents")
    looked.complaints.clear()  # the requests that went nowhere


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    with threaded(tmp_path, token=TOKEN) as url:
        yield url


async def test_the_token_is_asked_for_once(look, guarded):
    looked = await look()
    page = looked.page
    await page.goto(guarded)
    dialog = page.get_by_role("dialog", name="This server needs a token")
    await dialog.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
    await dialog.get_by_role("button").click()
    await expect(dialog.get_by_role("alert")).to_have_text("This is not the token of this server.")
    await dialog.get_by_label("Token").fill(TOKEN)
    await dialog.get_by_role("button").click()
    await expect(dialog).not_to_be_visible()
    await expect(page.locator(".welcome")).to_contain_text("The library is empty")
    await page.reload()
    await expect(page.locator(".welcome")).to_contain_text("The library is empty")
    kept = await page.evaluate("[JSON.stringify(localStorage), document.cookie]")
    assert not any(TOKEN in each for each in kept)
    assert ["401" in each for each in looked.complaints] == [True, True]  # no token, a wrong one
    looked.complaints.clear()


async def test_a_token_for_one_library_asks_for_no_other(look, tmp_path):
    (tmp_path / "papers.libraries" / "house").mkdir(parents=True)
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.make("ana", [Right.READ, Right.ASK], ["house"])
    with threaded(tmp_path, tokens=tokens.path) as url:
        for view in ("ask", "table", "library", "runs"):
            page = (await look()).page  # a 404 would be in its console
            await page.add_init_script(f"sessionStorage.setItem('colligate.token', '{token}')")
            await page.goto(f"{url}#/{view}")
            await page.get_by_role("link", name="Library", exact=True).click()
            await expect(page.get_by_role("heading", name="house")).to_be_visible()
            await page.wait_for_load_state("networkidle")


async def test_everything_is_reached_by_keyboard(page, filled):
    await page.goto(filled)
    await page.locator("#question").wait_for()
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Question")).to_be_focused()
    await page.keyboard.type(DAYS)
    await page.keyboard.press("Enter")
    await page.locator("a.cite").first.wait_for()
    for _ in range(12):
        if await page.evaluate("document.activeElement.matches('a.cite')"):
            break
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog mark.main")).to_be_in_viewport()
