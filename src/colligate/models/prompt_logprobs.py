"""Likelihoods from a server that gives log-probabilities of a prompt's own tokens.

The prompt is sent as token ids, so it is read as it was tokenised. Two forms are known: vLLM's
`prompt_logprobs`, and `echo` with `logprobs` as in OpenAI's first completions. Some servers take
either without a word and ignore it, so the first answer is checked, and every later one again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from openai import AsyncOpenAI

from colligate.errors import ContextTooSmall, MissingCapability
from colligate.models.failures import Garbled
from colligate.models.label_odds import odds_of
from colligate.models.protocols import LabelOdds, Message
from colligate.models.server_tokenizer import NOT_THERE, ServerTokenizer
from colligate.models.transport import Endpoint

T = TypeVar("T")

_SAMPLE = "Water boils at one hundred degrees"
_FORMS: tuple[Mapping[str, Any], ...] = ({"prompt_logprobs": 1}, {"echo": True, "logprobs": 1})
_KEPT = 1000
_ROUNDING = 1e-3  # how far above 0 the log-probability of a certain token may come out


class PromptLogprobs:
    """Scores continuations by their tokens' log-probabilities. Made by `find`."""

    def __init__(
        self, endpoint: Endpoint, model: str, tokenizer: ServerTokenizer, form: Mapping[str, Any]
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._form = form
        self._label_ids: dict[str, list[int]] = {}
        self.tokenizer = tokenizer

    @classmethod
    async def find(cls, endpoint: Endpoint, model: str) -> PromptLogprobs:
        """The form in which the server gives them, found by asking.

        Raises:
            MissingCapability: it gives none, or none that cover the prompt.
        """
        try:
            tokenizer = await ServerTokenizer.find(endpoint, model)
            ids = await tokenizer.prefix_ids(_SAMPLE)
            for form in _FORMS:
                scorer = cls(endpoint, model, tokenizer, form)
                try:
                    read(await endpoint.call(partial(scorer._send, ids=ids), model=model), ids)
                except NOT_THERE as error:
                    why = error.why or error.what
                except Garbled as error:
                    why = str(error)
                else:
                    return scorer
        except MissingCapability as missing:
            why = missing.why
        raise MissingCapability(
            f"{endpoint.url} gives no likelihoods", why, "use a gguf: or hf: model, or vLLM"
        )

    async def likelihoods(
        self, pairs: Sequence[tuple[str, str]], window: int | None
    ) -> list[list[float]]:
        """Log-probabilities of the continuations' tokens; each text is tokenised once.

        Raises:
            ContextTooSmall: a pair does not fit the window.
        """
        prefixes = dict.fromkeys(prefix for prefix, _ in pairs)
        continuations = dict.fromkeys(continuation for _, continuation in pairs)
        ids = await together(
            [
                *map(self.tokenizer.prefix_ids, prefixes),
                *map(self.tokenizer.ids, continuations),
            ]
        )
        before = dict(zip(prefixes, ids[: len(prefixes)], strict=True))
        after = dict(zip(continuations, ids[len(prefixes) :], strict=True))
        return await together(
            self._score(before[prefix], after[continuation], window)
            for prefix, continuation in pairs
        )

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], forced: str, window: int | None
    ) -> LabelOdds:
        """Odds of the labels, all tokens of each, after the templated messages and `forced`."""
        prompt = await self.tokenizer.prompt_ids(messages)
        [begun, *answers] = await self.label_ids([forced, *labels])
        scores = await together(self._score(prompt + begun, ids, window) for ids in answers)
        return odds_of({label: sum(score) for label, score in zip(labels, scores, strict=True)})

    async def label_ids(self, labels: Sequence[str]) -> list[list[int]]:
        """The tokens of each label; kept, since the same few are asked for again and again."""
        if len(self._label_ids) > _KEPT:
            self._label_ids.clear()
        new = [label for label in dict.fromkeys(labels) if label not in self._label_ids]
        ids = await together(map(self.tokenizer.ids, new))
        known = self._label_ids | dict(zip(new, ids, strict=True))
        self._label_ids |= known
        return [known[label] for label in labels]

    async def _score(
        self, prefix: list[int], continuation: list[int], window: int | None
    ) -> list[float]:
        if not continuation:
            return []
        ids = prefix + continuation
        if window is not None and len(ids) >= window:  # the server wants to write a token too
            raise ContextTooSmall(
                f"the prompt does not fit the model at {self._endpoint.url}",
                f"it has {len(ids)} tokens and the window {window}",
                "ask over less text, or use a model with a larger window",
            )

        async def attempt(client: AsyncOpenAI) -> list[float]:
            return read(await self._send(client, ids), ids)

        scores = await self._endpoint.call(attempt, model=self._model)
        return scores[len(prefix) :]

    async def _send(self, client: AsyncOpenAI, ids: list[int]) -> Any:
        # At temperature 1 the log-probabilities are the model's own on every server.
        body = {"model": self._model, "prompt": ids, "max_tokens": 1, "temperature": 1.0}
        return await client.post("/completions", body={**body, **self._form}, cast_to=object)


def read(answer: Any, ids: Sequence[int]) -> list[float]:
    """The log-probability of each of the prompt's tokens; 0 for the first, which has none.

    Raises:
        Garbled: the answer does not cover the prompt.
    """
    try:
        choice = answer["choices"][0]
        by_id = choice.get("prompt_logprobs")
        if by_id is not None:
            values: list[Any] = [
                None if entry is None else entry[str(token)]["logprob"]
                for entry, token in zip(by_id, ids, strict=True)
            ]
        else:  # of the prompt, then of the token written
            values = choice["logprobs"]["token_logprobs"]
            values = values[: len(ids)] if len(values) == len(ids) + 1 else values
        counted = (answer.get("usage") or {}).get("prompt_tokens", len(ids))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise Garbled("it has no log-probabilities of the prompt's tokens") from None
    if not len(values) == len(ids) == counted or values[0] is not None:
        raise Garbled(f"its log-probabilities are not those of a prompt of {len(ids)} tokens")
    if not all(map(_is_logprob, values[1:])):
        raise Garbled("what it gives as log-probabilities are none")
    return [0.0, *(min(0.0, value) for value in values[1:])]


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value <= _ROUNDING


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, side by side; the first failure ends the others and is raised."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
