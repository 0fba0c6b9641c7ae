"""The tokenizer of an OpenAI-compatible server, where it can be asked: vLLM, SGLang, llama-server.

Their `/tokenize` stands beside `/v1`, not below it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import openai
from openai import AsyncOpenAI

from colligate.errors import (
    MalformedOutput,
    MissingCapability,
    NotAuthorised,
    RequestRefused,
    ServerFailed,
    UnknownModel,
)
from colligate.models.failures import Garbled
from colligate.models.protocols import Message
from colligate.models.text import blunt, encodable, marks
from colligate.models.transport import Endpoint

NOT_THERE = (RequestRefused, NotAuthorised, UnknownModel, ServerFailed, MalformedOutput)
"""What a first request for something is answered with where there is no such thing."""

_SAMPLE = "The capital of France is Paris."
_LONGEST_MARK = 32


class ServerTokenizer:
    """Token ids of texts, one request each. Made by `find`.

    `has_template` where it also knows the model's chat template; `window` is the model's context
    window, where the tokenizer says it.
    """

    def __init__(self, endpoint: Endpoint, model: str, *, llama: bool) -> None:
        self._endpoint = endpoint
        self._model = model
        self._llama = llama  # llama-server's form of the request, not vLLM's
        self._beginning: list[int] = []
        self._controls: dict[str, bool] = {}
        self.has_template = False
        self.window: int | None = None

    @classmethod
    async def find(cls, endpoint: Endpoint, model: str) -> ServerTokenizer:
        """The tokenizer of the model at the endpoint.

        Raises:
            MissingCapability: there is none.
        """
        why = "its /tokenize gives no tokens"
        for llama in (False, True):
            tokenizer = cls(endpoint, model, llama=llama)
            try:
                plain = await tokenizer._ask(tokenizer._text(_SAMPLE))
                if len(plain) < 2:  # a server that knows the other form finds no text in this one
                    continue
                marked = await tokenizer._ask(tokenizer._text(_SAMPLE, beginning=True))
            except NOT_THERE as error:
                why = f"its /tokenize cannot be used ({error.why or error.what})"
                continue
            tokenizer._beginning = _before(plain, marked)
            if not llama:
                await tokenizer._find_template()
            return tokenizer
        raise MissingCapability(f"{endpoint.url} has no tokenizer to ask", why)

    async def ids(self, text: str) -> list[int]:
        """The text's own tokens; what looks like a control token in it is letters."""
        text = encodable(text)
        if text and not self._llama:
            text = await self._disarmed(text)
        return await self._ask(self._text(text)) if text else []

    async def prefix_ids(self, text: str) -> list[int]:
        """The same with what the tokenizer puts before a text (BOS, for the models that have one).

        Never none, since something must come before the first token scored: an empty text is
        a line break where there is no BOS.
        """
        return [*self._beginning, *await self.ids(text)] or await self.ids("\n")

    async def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Messages in the model's chat template, up to where its answer begins.

        Only where there is a template (`has_template`).
        """
        turns = [{"role": m.role, "content": encodable(m.content)} for m in messages]
        return await self._ask({"messages": turns, "add_generation_prompt": True})

    async def _find_template(self) -> None:
        with contextlib.suppress(*NOT_THERE):
            ids = await self.prompt_ids([Message("user", _SAMPLE)])
            self.has_template = len(ids) > 1

    def _text(self, text: str, *, beginning: bool = False) -> dict[str, Any]:
        if self._llama:
            return {"content": text, "add_special": beginning, "parse_special": False}
        return {"prompt": text, "add_special_tokens": beginning}

    async def _disarmed(self, text: str) -> str:
        # vLLM reads control tokens in any text. What only has their form is several tokens, so
        # a mark that is one token is taken for a control token.
        for mark in marks(text):
            likely = len(mark) <= _LONGEST_MARK and not any(map(str.isspace, mark))
            if likely and mark not in self._controls and any(map(str.isalpha, mark)):
                self._controls[mark] = len(await self._ask(self._text(mark))) == 1
        return blunt(text, [mark for mark in marks(text) if self._controls.get(mark)])

    async def _ask(self, body: dict[str, Any]) -> list[int]:
        async def attempt(client: AsyncOpenAI) -> list[int]:
            try:
                answer = await client.post(
                    f"{self._endpoint.root}/tokenize",
                    body={"model": self._model, **body},
                    cast_to=object,
                )
            except openai.NotFoundError:
                raise RequestRefused(f"{self._endpoint.url} has no /tokenize") from None
            ids: Any = answer.get("tokens") if isinstance(answer, dict) else None
            if not isinstance(answer, dict) or not _are_ids(ids):
                raise Garbled("/tokenize gives no token ids")
            if isinstance(window := answer.get("max_model_len"), int) and window > 0:
                self.window = window
            return list(ids)

        return await self._endpoint.call(attempt, model=self._model)


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, list) and all(type(token) is int and token >= 0 for token in ids)


def _before(plain: list[int], marked: list[int]) -> list[int]:
    """What stands before the text's own tokens where the tokenizer marks its beginning."""
    places = range(len(marked) - len(plain) + 1)
    return marked[: next((at for at in places if marked[at : at + len(plain)] == plain), 0)]
