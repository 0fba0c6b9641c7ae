"""Log-probabilities from a server: of a prompt's own tokens, and of an answer's first token.

A module of its own because it hides how they are found: servers differ in the request, some accept
it and silently ignore it, and only a check of each answer shows whether its numbers can be used.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from openai import APIStatusError

from colligate.concurrency import gather
from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingCapability,
    NotAuthorised,
    RequestRefused,
    ServerFailed,
    UnknownModel,
)
from colligate.models.base import ChatRequest, LabelOdds, Message, blunt, encodable, marks
from colligate.models.dialect import Dialect, find_refused_parameter
from colligate.models.label_odds import odds_from_first_token, odds_of
from colligate.models.openai_http import Endpoint, Garbled

T = TypeVar("T")

NOT_THERE = (RequestRefused, NotAuthorised, UnknownModel, ServerFailed, MalformedOutput)
"""The errors of a first request for something that the server does not have."""

_SAMPLE = "Water boils at one hundred degrees"
_KEPT = 1000
_ROUNDING = 1e-3  # how far above 0 the log-probability of a certain token may come out


class PromptLogprobs:
    """Likelihoods from a server that returns log-probabilities of a prompt's tokens.

    Made by `find`. The prompt is sent as token ids, so it is read as it was tokenised. Asked for by
    vLLM's `prompt_logprobs`; some servers accept it and silently ignore it, so every answer is
    checked.
    """

    def __init__(self, endpoint: Endpoint, model: str, tokenizer: ServerTokenizer) -> None:
        self._endpoint = endpoint
        self._model = model
        self._label_ids: dict[str, list[int]] = {}
        self.tokenizer = tokenizer

    @classmethod
    async def find(
        cls, endpoint: Endpoint, model: str, template: Mapping[str, Any] | None = None
    ) -> PromptLogprobs:
        """Find out whether the server returns them; MissingCapability if it does not.

        `template` are parameters of the chat template.
        """
        try:
            tokenizer = await ServerTokenizer.find(endpoint, model, template or {})
            scorer = cls(endpoint, model, tokenizer)
            ids = await scorer.tokenizer.prefix_ids(_SAMPLE)
            # Checked here, where an answer that ignores the form is not asked for again.
            read_prompt_logprobs(await scorer._post(ids, lambda answer: answer), ids)
            return scorer
        except (MissingCapability, *NOT_THERE) as error:
            why = error.why or error.what
        except Garbled as error:
            why = str(error)
        what = f"{endpoint.url} gives no likelihoods"
        raise MissingCapability(what, why, "use a gguf: or hf: model, or vLLM")

    async def likelihoods(
        self, pairs: Sequence[tuple[str, str]], window: int | None
    ) -> list[list[float]]:
        """Return log-probabilities of the continuations' tokens; each text is tokenised once."""
        prefixes = dict.fromkeys(prefix for prefix, _ in pairs)
        continuations = dict.fromkeys(continuation for _, continuation in pairs)
        tokenizer = self.tokenizer
        ids = await gather(
            [*map(tokenizer.prefix_ids, prefixes), *map(tokenizer.ids, continuations)]
        )
        before = dict(zip(prefixes, ids[: len(prefixes)], strict=True))
        after = dict(zip(continuations, ids[len(prefixes) :], strict=True))
        return await gather(
            self._score(before[prefix], after[continuation], window)
            for prefix, continuation in pairs
        )

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], forced: str, window: int | None
    ) -> LabelOdds:
        """Return label odds by all tokens of each, after the messages in the template."""
        prompt = await self.tokenizer.prompt_ids(messages)
        [begun, *answers] = await self.label_ids([forced, *labels])
        scores = await gather(self._score(prompt + begun, ids, window) for ids in answers)
        return odds_of({label: sum(score) for label, score in zip(labels, scores, strict=True)})

    async def label_ids(self, labels: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each label; kept, because the same few labels come often."""
        if len(self._label_ids) > _KEPT:
            self._label_ids.clear()
        new = [label for label in dict.fromkeys(labels) if label not in self._label_ids]
        ids = await gather(map(self.tokenizer.ids, new))
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
            what = f"the prompt does not fit the model at {self._endpoint.url}"
            hint = "ask over less text, or use a model with a larger window"
            raise ContextTooSmall(what, f"it has {len(ids)} tokens and the window {window}", hint)
        scores = await self._post(ids, partial(read_prompt_logprobs, ids=ids))
        return scores[len(prefix) :]

    async def _post(self, ids: list[int], read: Callable[[Any], T]) -> T:
        # At temperature 1 the log-probabilities are the model's own on every server.
        body = {"model": self._model, "prompt": ids, "max_tokens": 1, "temperature": 1.0}
        body["prompt_logprobs"] = 1
        return await self._endpoint.post("/completions", body, read, model=self._model)


def read_prompt_logprobs(answer: Any, ids: Sequence[int]) -> list[float]:
    """Return the log-probability of each prompt token; 0 for the first one."""
    try:
        values: list[Any] = [
            None if entry is None else entry[str(token)]["logprob"]
            for entry, token in zip(answer["choices"][0]["prompt_logprobs"], ids, strict=True)
        ]
        counted = (answer.get("usage") or {}).get("prompt_tokens", len(ids))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise Garbled("it has no log-probabilities of the prompt's tokens") from None
    if not len(values) == len(ids) == counted or values[0] is not None:
        raise Garbled(f"its log-probabilities are not those of a prompt of {len(ids)} tokens")
    if not all(map(_is_logprob, values[1:])):
        raise Garbled("its log-probabilities are not numbers up to 0")
    return [0.0, *(min(0.0, value) for value in values[1:])]


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value <= _ROUNDING


_TOKENIZER_SAMPLE = "The capital of France is Paris."
_LONGEST_MARK = 32


class ServerTokenizer:
    """Token ids of texts from a server that can be asked: vLLM, SGLang.

    Made by `find`. Their `/tokenize` is next to `/v1`, not below it. `has_template` is true where
    the server also knows the model's chat template; `window` is the model's context window, where
    the tokenizer reports it.
    """

    def __init__(self, endpoint: Endpoint, model: str, template: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._model = model
        self._template = template
        self._beginning: list[int] = []
        self._controls: dict[str, bool] = {}
        self.has_template = False
        self.window: int | None = None

    @classmethod
    async def find(
        cls, endpoint: Endpoint, model: str, template: Mapping[str, Any]
    ) -> ServerTokenizer:
        """Find the server's tokenizer; MissingCapability if it has none to ask."""
        tokenizer, why = cls(endpoint, model, template), "its /tokenize gives no tokens"
        try:
            plain = await tokenizer._ask(tokenizer._text(_TOKENIZER_SAMPLE))
            marked = await tokenizer._ask(tokenizer._text(_TOKENIZER_SAMPLE, beginning=True))
        except NOT_THERE as error:
            plain, why = [], f"its /tokenize cannot be used ({error.why or error.what})"
        if len(plain) < 2:  # a server of another form finds no text
            raise MissingCapability(f"{endpoint.url} has no tokenizer to ask", why)
        tokenizer._beginning = _before(plain, marked)
        with contextlib.suppress(*NOT_THERE):
            ids = await tokenizer.prompt_ids([Message("user", _TOKENIZER_SAMPLE)])
            tokenizer.has_template = len(ids) > 1
        return tokenizer

    async def ids(self, text: str) -> list[int]:
        """Return the text's own tokens; control tokens in it are read as letters."""
        text = await self._disarm(encodable(text))
        return await self._ask(self._text(text)) if text else []

    async def prefix_ids(self, text: str) -> list[int]:
        """Return the text's tokens after the BOS token, for models that have one.

        Never empty, because something must come before the first token that is scored: an empty
        text is a line break where there is no BOS.
        """
        return [*self._beginning, *await self.ids(text)] or await self.ids("\n")

    async def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of messages in the chat template, up to where the answer begins.

        Only where there is a template (`has_template`).
        """
        turns = [{"role": m.role, "content": m.content} for m in messages]
        return await self._ask({"messages": turns, "add_generation_prompt": True, **self._template})

    def _text(self, text: str, *, beginning: bool = False) -> dict[str, Any]:
        return {"prompt": text, "add_special_tokens": beginning}

    async def _disarm(self, text: str) -> str:
        # vLLM reads control tokens in any text. What only has their form is several tokens, so
        # a mark that is one token is taken for a control token.
        for mark in marks(text):
            likely = len(mark) <= _LONGEST_MARK and not any(map(str.isspace, mark))
            if likely and mark not in self._controls and any(map(str.isalpha, mark)):
                self._controls[mark] = len(await self._ask(self._text(mark))) == 1
        return blunt(text, [mark for mark in marks(text) if self._controls.get(mark)])

    async def _ask(self, body: dict[str, Any]) -> list[int]:
        url = f"{self._endpoint.root}/tokenize"
        return await self._endpoint.post(url, {"model": self._model, **body}, self._read)

    def _read(self, answer: Any) -> list[int]:
        ids: Any = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(type(id_) is int and id_ >= 0 for id_ in ids):
            raise Garbled("/tokenize gives no token ids")
        if isinstance(window := answer.get("max_model_len"), int) and window > 0:
            self.window = window
        return ids


def _before(plain: list[int], marked: list[int]) -> list[int]:
    """Return the tokens that mark the beginning of a text, before its own."""
    places = range(len(marked) - len(plain) + 1)
    return marked[: next((at for at in places if marked[at : at + len(plain)] == plain), 0)]


_HINT = "use a gguf: or hf: model, or one served by vLLM, as the scorer"


class TopLogprobs:
    """Label odds from `top_logprobs`: one call of one token for each set of labels.

    `seen` is true after the server has returned log-probabilities.
    """

    def __init__(self, endpoint: Endpoint, dialect: Dialect, model: str, name: str) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._model = model
        self._name = name
        self.seen = False

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], forced: str
    ) -> LabelOdds:
        """Return the odds of the labels; see `odds_from_first_token`."""
        if forced:
            what, why = f"{self._name} gives no odds after a beginning", "it gives no likelihoods"
            raise MissingCapability(what, why, _HINT)
        return odds_from_first_token(await self.alternatives(messages), labels, self._name)

    async def alternatives(self, messages: Sequence[Message]) -> list[tuple[str, float]]:
        """Return the likeliest first tokens with their probabilities: 20, or 5 if 20 is refused."""
        extra: dict[str, Any] = {"logprobs": True, "top_logprobs": 20}
        # At temperature 1 the log-probabilities are the model's own on every server.
        request = ChatRequest(messages, max_tokens=1, temperature=1.0)
        what = f"{self._name} gives no label probabilities"
        missing = MissingCapability(what, "the server returns no top_logprobs", _HINT)

        def learn(error: APIStatusError, sent: Mapping[str, Any]) -> bool:
            named = find_refused_parameter(error, ["top_logprobs", "logprobs"])
            if named == "top_logprobs" and extra["top_logprobs"] > 5:
                extra["top_logprobs"] = 5
                return True
            if named is not None:
                raise missing
            learnt = self._dialect.learn(error, sent)
            if self._dialect.needs_responses:
                raise missing
            return learnt

        def read(answer: Any) -> list[tuple[str, float]]:
            found = read_first_token(answer)
            if not found and self.seen:  # what a server has once given is asked for again
                raise Garbled("it has no top_logprobs")
            return found

        found = await self._endpoint.post(
            "/chat/completions",
            lambda: self._dialect.body(request, **extra),
            read,
            model=self._model,
            learn=learn,
        )
        if not found:
            raise missing
        self.seen = True
        return found


def read_first_token(completion: Any) -> list[tuple[str, float]]:
    """Return the first token's alternatives with their probabilities; [] if there are none."""
    try:
        choice = completion["choices"][0]
    except (LookupError, TypeError):
        raise Garbled("it has no choices") from None
    try:
        entries = choice["logprobs"]["content"][0]["top_logprobs"]
        first = [(str(entry["token"]), math.exp(entry["logprob"])) for entry in entries]
    except (LookupError, TypeError, OverflowError):
        return []
    return first if all(math.isfinite(probability) for _, probability in first) else []
