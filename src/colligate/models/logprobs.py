"""Likelihoods from a server that gives log-probabilities of a prompt's own tokens.

The prompt is sent as token ids, so it is read as it was tokenised. Two forms are known: vLLM's
`prompt_logprobs`, and `echo` with `logprobs` as in OpenAI's first completions. Some servers take
either without a word and ignore it, so the first answer is checked, and every later one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import openai
from openai import AsyncOpenAI

from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingCapability,
    NotAuthorised,
    RequestRefused,
    ServerFailed,
    UnknownModel,
)
from colligate.models.base import LabelOdds, Message, blunt, encodable, marks
from colligate.models.cache import FoundOnce
from colligate.models.label_odds import first_token, odds_of, share
from colligate.models.openai_http import (
    Dialect,
    Endpoint,
    Garbled,
    is_context_error,
    post_chat,
    refused_parameter,
)

# The tokenizer of an OpenAI-compatible server, where it can be asked: vLLM, SGLang, llama-server.
#
# Their `/tokenize` stands beside `/v1`, not below it.

NOT_THERE = (RequestRefused, NotAuthorised, UnknownModel, ServerFailed, MalformedOutput)
"""What a first request for something is answered with where there is no such thing."""

_TOKENIZER_SAMPLE = "The capital of France is Paris."
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
                plain = await tokenizer._ask(tokenizer._text(_TOKENIZER_SAMPLE))
                if len(plain) < 2:  # a server that knows the other form finds no text in this one
                    continue
                marked = await tokenizer._ask(tokenizer._text(_TOKENIZER_SAMPLE, beginning=True))
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
            ids = await self.prompt_ids([Message("user", _TOKENIZER_SAMPLE)])
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


# Label odds from `top_logprobs`: the likeliest first tokens of a chat's answer.

REFUSALS = (openai.BadRequestError, openai.UnprocessableEntityError)

_MEND = "use a gguf: or hf: model, or one served by vLLM, as the scorer"
_DAYS = Message("user", "Write the days of the week, beginning with Monday.")


class TopLogprobs:
    """One call of one token for each set of labels.

    `seen` is true once the server gave log-probabilities.
    """

    def __init__(self, endpoint: Endpoint, dialect: Dialect, model: str, name: str) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._model = model
        self._name = name
        self._continues = FoundOnce(self._find_out_whether_it_continues)
        self.seen = False

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], forced: str
    ) -> LabelOdds:
        """Odds of the labels as `label_odds.share` reckons them, after how the answer begins.

        Raises:
            MissingCapability: the server gives no log-probabilities, does not continue what is
                forced, or the first token does not tell these labels apart.
            MalformedOutput: none of the labels is among the tokens it returns.
        """
        if forced:
            await self._continues.get()
        return share(await self.alternatives(messages, forced), labels, self._name)

    async def alternatives(
        self, messages: Sequence[Message], forced: str = ""
    ) -> list[tuple[str, float]]:
        """The likeliest first tokens and their probabilities: 20, or 5 where that is too many.

        Raises:
            MissingCapability: the server does not say.
        """
        extra: dict[str, Any] = {}
        if forced:
            messages = [*messages, Message("assistant", forced)]
            extra = {"continue_final_message": True, "add_generation_prompt": False}
        top = 20

        async def attempt(client: AsyncOpenAI) -> list[tuple[str, float]]:
            nonlocal top
            while True:
                # At temperature 1 the log-probabilities are the model's own on every server.
                body = self._dialect.request(
                    messages,
                    max_tokens=1,
                    temperature=1.0,
                    logprobs=True,
                    top_logprobs=top,
                    **extra,
                )
                try:
                    return first_token(await post_chat(client, body))
                except REFUSALS as error:
                    named = refused_parameter(error, ["top_logprobs", "logprobs"])
                    if named == "top_logprobs" and top > 5:
                        top = 5
                    elif named is not None:
                        return []
                    elif is_context_error(error) or not self._dialect.learn(error, body):
                        raise

        found = await self._endpoint.call(attempt, model=self._model)
        if not found:
            raise MissingCapability(
                f"{self._name} gives no label probabilities",
                "the server returns no top_logprobs",
                _MEND,
            )
        self.seen = True
        return found

    async def _find_out_whether_it_continues(self) -> None:
        # A server that takes no notice of the wish begins a new answer, and no answer begins
        # in the middle of a word.
        try:
            first = await self.alternatives([_DAYS], "Monday, Tuesday, Wednes")
        except (RequestRefused, MalformedOutput) as error:
            why = error.why
        else:
            token = max(first, key=lambda alternative: alternative[1])[0].casefold()
            if token.startswith("day") or token in ("d", "da"):
                return
            why = f"after 'Wednes' it goes on with {token!r}"
        raise MissingCapability(
            f"{self._name} does not continue an answer begun for it", why, _MEND
        )
