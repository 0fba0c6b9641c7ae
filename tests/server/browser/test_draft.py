"""The answer on the page while it is written."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from playwright.async_api import expect

from colligate.testing import ScriptedModel
from support.http_server import QUESTION, RULES, threaded

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]

YARD = ("Bicycles stand in the yard", "They stand in the yard.")
HALL = ("Nine bicycles fit", "<b>Nine</b> fit into the hall.")


class Writer(ScriptedModel):
    """Writes two statements, and ends its reply when `end` is set."""

    def __init__(self) -> None:
        rows = [{"passage": 1, "quote": quote, "sentence": said} for quote, said in (YARD, HALL)]
        said = {"statements": rows, "short_answer": "", "found": True}
        judged = {"judgements": [{"number": 1, "reason": "", "verdict": "supports"}]}
        super().__init__(list(map(json.dumps, (said, judged))))
        self.end = threading.Event()

    async def chat(self, request: Any, on_token: Any = None) -> Any:
        reply = await super().chat(request, on_token)
        await asyncio.to_thread(self.end.wait, 60)
        return reply


async def test_the_answer_is_read_and_its_sources_opened_while_it_is_written(
    page, upload, tmp_path
):
    model = Writer()
    with threaded(tmp_path, model) as url:
        await upload(page, url, "house", {name: text.encode() for name, text in RULES.items()})
        await page.goto(f"{url}#/ask")
        await page.get_by_label("Question").fill(QUESTION)
        await page.get_by_text("More choices").click()
        await page.get_by_label("Method").select_option("retrieve-read")
        await page.get_by_role("button", name="Ask").click()
        draft = page.locator(".draft")
        await expect(draft).to_contain_text(YARD[1])
        await expect(draft.locator("s")).to_have_text(HALL[1])
        await expect(draft).to_contain_text("struck out: no single passage has its quote")
        await draft.get_by_role("link", name="Source 1").click()
        await expect(page.locator("dialog mark.main")).to_contain_text(YARD[0])
        await page.keyboard.press("Escape")
        model.end.set()
        await expect(page.locator(".answer:not(.draft)")).to_contain_text(YARD[1])
        await expect(draft).to_have_count(0)
