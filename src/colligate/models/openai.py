"""Any endpoint that speaks OpenAI's chat protocol: OpenAI, vLLM, SGLang, Ollama, llama-server.

What a server refuses is learnt (`dialect.py`), what fails is retried (`transport.py`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openai
from numpy.typing import NDArray
from openai import AsyncOpenAI

from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import MalformedOutput, MissingCapability, RequestRefused, WeightsUnavailable
from colligate.models.base import (
    Capability,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    Usage,
    encodable,
)
from colligate.models.cache import FoundOnce
from colligate.models.label_odds import require_labels
from colligate.models.logprobs import REFUSALS, PromptLogprobs, TopLogprobs
from colligate.models.openai_http import (
    Dialect,
    Endpoint,
    Garbled,
    Policy,
    Reply,
    ask,
    ask_streaming,
    count,
    estimate_prompt,
    is_context_error,
    usage_of,
)
from colligate.models.thinking import split_thinking

_ROOM_TO_THINK = 4096
_NAMED = 8  # of a server's models, in an error


class OpenAIChat:
    """A chat model behind an OpenAI-compatible endpoint.

    `base_url` defaults to `OPENAI_BASE_URL`, else OpenAI's own; only the latter must have a key.
    `Capability.STRUCTURED` is declared until the server refuses a JSON schema,
    `Capability.LABELS` and `Capability.LIKELIHOOD` once `probe`, or a first use, has seen that
    the server's log-probabilities can be had. An adapter is another model of the same server.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        context_tokens: int | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._model = model
        self._endpoint = Endpoint(
            base_url or os.environ.get("OPENAI_BASE_URL"), api_key, policy=policy
        )
        self._context_tokens = context_tokens
        self._base: OpenAIChat | None = None
        self._adapted: dict[str, OpenAIChat] = {}
        self._learn_anew()

    def _learn_anew(self) -> None:
        """Forget what is known of the model of this name."""
        self._dialect = Dialect(self._model, is_openai=self._endpoint.is_openai)
        self._top = TopLogprobs(self._endpoint, self._dialect, self._model, self.name)
        self._scorer = FoundOnce(self._find_scorer)

    @property
    def name(self) -> str:
        """`openai:MODEL`, with `@URL` where it is not OpenAI's own."""
        return f"openai:{self._model}" + (
            "" if self._endpoint.is_openai else f"@{self._endpoint.url}"
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do, as far as it is known by now."""
        known = {Capability.CHAT, Capability.ADAPTERS}
        if self._dialect.schema_form == "json_schema":
            known.add(Capability.STRUCTURED)
        scorer = self._scorer.known
        if self._top.seen or (scorer is not None and scorer.tokenizer.has_template):
            known.add(Capability.LABELS)
        if scorer is not None:
            known.add(Capability.LIKELIHOOD)
        return frozenset(known)

    @property
    def context_tokens(self) -> int | None:
        """As given, or as the server said when it was asked (vLLM does); else None."""
        return self._context_tokens

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r})"

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_token: OnToken | None = None,
    ) -> Completion:
        """One call; see `ChatModel.chat`. `usage` is an estimate where the server says none.

        Should a stream break off and be asked again, `on_token` is given only what goes on from
        the text it already has.
        """
        display = _Display(on_token) if on_token else None
        spent = Usage()  # on answers that were not used

        async def attempt(client: AsyncOpenAI) -> Reply:
            nonlocal spent
            while True:
                body = self._dialect.request(
                    messages,
                    max_tokens=max_tokens,
                    schema=schema,
                    temperature=temperature,
                    seed=seed,
                    stop=list(stop) or None,
                    stream_options={"include_usage": True} if display else None,
                )
                try:
                    if display is None:
                        reply = await ask(client, body)
                    else:
                        # Where the server does not stop by itself, only the end shows the cut.
                        live = not stop or self._dialect.takes("stop")
                        reply = await ask_streaming(client, body, display.show if live else None)
                except REFUSALS as error:
                    if is_context_error(error) or not self._dialect.learn(error, body):
                        raise
                    continue
                if not self._only_thought(reply):
                    return reply
                spent += usage_of(reply, messages)
                self._dialect.give_room_to_think(_ROOM_TO_THINK)

        reply = await self._endpoint.call(attempt, model=self._model)
        text, inline_thinking = split_thinking(reply.content or "")
        text = _cut(text, stop)
        warnings = self._dialect.take_warnings()
        if display is not None and not display.show(text):
            warnings += ("the stream broke off and the answer differs from what was shown",)
        return Completion(
            text=text,
            usage=spent + usage_of(reply, messages),
            model=self.name,
            finish_reason=reply.finish_reason or "stop",
            thinking="\n\n".join(filter(None, (reply.thinking.strip(), inline_thinking))),
            warnings=warnings,
        )

    def _only_thought(self, reply: Reply) -> bool:
        """Whether thinking ate the tokens meant for the answer, and more could help."""
        said = count(reply.usage, "completion_tokens_details", "reasoning_tokens")
        thought = bool(reply.thinking or said)
        return (
            reply.finish_reason == "length"
            and thought
            and not reply.content
            and self._dialect.thinking_room < _ROOM_TO_THINK
        )

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Odds of each label as the answer's beginning; see `LabelModel.labels`.

        Labels of several tokens, and labels after `forced`, are scored whole where the server
        gives likelihoods and templates conversations (vLLM), one pass a label. Else the odds are
        those of the first token, in one call: `label_odds.share` says how tokens count for
        labels and what those get that are not shown; a blank that ends `forced` may be lost.

        Raises:
            MissingCapability: the server returns no log-probabilities, does not continue a
                forced beginning, or cannot tell these labels apart.
            MalformedOutput: none of the labels is among the tokens it returns.
            ValueError: there are no labels, an empty or a doubled one.
        """
        require_labels(labels)
        scorer = await self._whole_scorer(labels, forced)
        if scorer is None:
            return await self._top.labels(messages, labels, forced)
        return await scorer.labels(messages, labels, forced, self.context_tokens)

    async def _whole_scorer(self, labels: Sequence[str], forced: str) -> PromptLogprobs | None:
        """What scores labels whole, where there is one and the first token is not enough."""
        try:
            scorer = await self._scorer.get()
        except MissingCapability:
            return None
        if not scorer.tokenizer.has_template:
            return None
        tokens = await scorer.label_ids(labels)
        if not all(tokens):
            raise ValueError("labels must not be empty to the model's tokenizer")
        return scorer if forced or any(len(ids) > 1 for ids in tokens) else None

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Log-probability of each token of `continuation`; see `LikelihoodModel.likelihood`.

        Tokens are those of the server's own tokenizer. An empty prefix is its BOS token, or a
        line break where it has none.

        Raises:
            MissingCapability: the server gives no log-probabilities of a prompt's tokens.
            ContextTooSmall: the two do not fit together.
        """
        return (await self.likelihoods([(prefix, continuation)]))[0]

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """`likelihood` of each pair, side by side within the endpoint's calls in flight."""
        scorer = await self._scorer.get()
        return await scorer.likelihoods(pairs, self.context_tokens)

    async def _find_scorer(self) -> PromptLogprobs:
        if self._endpoint.is_openai:
            raise MissingCapability(
                f"{self.name} gives no likelihoods",
                "OpenAI's models give none of a prompt",
                "use a gguf: or hf: model, or vLLM",
            )
        scorer = await PromptLogprobs.find(self._endpoint, self._model)
        self._context_tokens = self._context_tokens or scorer.tokenizer.window
        return scorer

    async def probe(self) -> frozenset[Capability]:
        """Ask the server what cannot be known otherwise: labels, likelihood, the window."""
        with contextlib.suppress(MissingCapability):
            await self._top.alternatives([Message("user", "Is water wet? Answer yes or no.")])
        with contextlib.suppress(MissingCapability):
            await self._scorer.get()
        with contextlib.suppress(RequestRefused, MalformedOutput):  # not every server lists models
            entry = (await self._endpoint.models()).get(self._model, {})
            window = entry.get("max_model_len")  # vLLM, SGLang
            if self._context_tokens is None and isinstance(window, int):
                self._context_tokens = window
        return self.capabilities

    async def listed(self) -> dict[str, Any]:
        """What the server lists of this model at `/models`; empty where it lists it not.

        Raises:
            ModelError: it lists nothing.
        """
        return (await self._endpoint.models()).get(self._model, {})

    async def with_adapter(self, adapter: str | Path) -> OpenAIChat:
        """The model of this name at the same endpoint: so vLLM and its like serve an adapter.

        Raises:
            WeightsUnavailable: the server lists its models, and none of that name.
        """
        base, name = self._base or self, str(adapter)
        if name not in base._adapted:
            listed: dict[str, Any] = {}
            with contextlib.suppress(RequestRefused, MalformedOutput):  # not every server lists
                listed = await self._endpoint.models()
            if listed and name not in listed:
                there = f"its server has {', '.join(list(listed)[:_NAMED])}"
                hint = "name one of these, or start the server with it"
                raise WeightsUnavailable(f"{base.name} has no adapter {name}", there, hint)
            view = copy(base)
            view._model, view._base = name, base
            view._learn_anew()
            if Capability.LABELS in base.capabilities:  # it was probed
                await view.probe()
            base._adapted.setdefault(name, view)
        return base._adapted[name]

    async def count_tokens(self, text: str) -> int:
        """An estimate (`token_estimate`): asking a server's tokenizer would cost a request."""
        return estimate_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """An estimate: `count_tokens` of each message and what a template puts around it."""
        return estimate_prompt(messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """About where the text's tokens would stand; as many as `count_tokens`."""
        return token_spans(text)

    async def aclose(self) -> None:
        """Close the connections; an adapter's are its base's to close. Safe to call twice."""
        if self._base is None:
            await self._endpoint.aclose()


class _Display:
    """Hands text on piece by piece, going on from where it was when a stream is asked again."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self._shown = ""

    def show(self, text: str) -> bool:
        """Show the rest of `text`; False when what was shown is not how it begins."""
        if not text.startswith(self._shown):
            return self._shown.startswith(text)
        if piece := text[len(self._shown) :]:
            self._shown = text
            self._on_token(piece)
        return True


def _cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string: not every server stops."""
    ends = [at for string in stop if string and (at := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text


# Embeddings from any OpenAI-compatible `/embeddings`.


class OpenAIEmbedder:
    """An embedder behind an OpenAI-compatible endpoint.

    Requests hold at most `batch` texts and about `batch_tokens` tokens, several in flight at
    once. Passages and queries are embedded alike: the protocol knows no difference.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        dimension: int | None = None,
        batch: int = 64,
        batch_tokens: int = 16_000,
        policy: Policy | None = None,
    ) -> None:
        self._model = model
        self._endpoint = Endpoint(
            base_url or os.environ.get("OPENAI_BASE_URL"), api_key, policy=policy
        )
        self._dimension = dimension
        self._batch = batch
        self._batch_tokens = batch_tokens
        self._encoding: str | None = "base64"  # a quarter of the bytes; None once refused

    @property
    def name(self) -> str:
        """`openai:MODEL`, with `@URL` where it is not OpenAI's own."""
        return f"openai:{self._model}" + (
            "" if self._endpoint.is_openai else f"@{self._endpoint.url}"
        )

    @property
    def dimension(self) -> int:
        """Length of each vector: as given, as first seen, else asked for now (this blocks)."""
        if self._dimension is None:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._discover()).result()
        assert self._dimension is not None
        return self._dimension

    async def _discover(self) -> None:
        try:
            await self.embed(["dimension"])
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.name!r})"

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """Vectors of unit length, (texts, dimension) float32, in the order of the texts.

        Raises:
            ModelError: one of its subclasses; ContextTooSmall for a text over the model's limit.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        asked = [
            asyncio.ensure_future(self._endpoint.call(self._attempt(batch), model=self._model))
            for batch in self._batches(texts)
        ]
        try:
            rows = np.concatenate(await asyncio.gather(*asked))
        finally:
            for call in asked:
                call.cancel()
        return rows

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = estimate_tokens(text)
            if batch and (len(batch) == self._batch or tokens + size > self._batch_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(encodable(text) if text.strip() else " ")  # an empty input is refused
            tokens += size
        yield batch

    def _attempt(self, batch: list[str]) -> Any:
        async def attempt(client: AsyncOpenAI) -> NDArray[np.float32]:
            while True:
                encoding = self._encoding
                body: dict[str, Any] = {"model": self._model, "input": batch}
                if encoding is not None:
                    body["encoding_format"] = encoding
                try:
                    answer = await client.post("/embeddings", body=body, cast_to=object)
                except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                    if encoding is None or is_context_error(error):
                        raise
                    self._encoding = None  # perhaps it was this; if not, it is refused again
                    continue
                return self._rows(answer, len(batch))

        return attempt

    def _rows(self, answer: Any, count: int) -> NDArray[np.float32]:
        """The vectors in the order asked, checked and scaled to unit length."""
        try:
            entries = answer["data"]
            by_place = {
                int(entry.get("index", at)): _vector(entry["embedding"])
                for at, entry in enumerate(entries)
            }
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise Garbled("it holds no embeddings") from None
        if len(entries) != count or sorted(by_place) != list(range(count)):
            raise Garbled(f"it has embeddings {sorted(by_place)} for {count} texts")
        vectors = [by_place[at] for at in range(count)]
        length = self._dimension or vectors[0].size
        if any(vector.shape != (length,) for vector in vectors):
            raise Garbled(f"its embeddings are not all of length {length}")
        rows = np.stack(vectors)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise Garbled("an embedding is zero or not finite")
        self._dimension = length
        rows /= norms
        return rows

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._endpoint.aclose()


def _vector(embedding: object) -> NDArray[np.float32]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return np.asarray(embedding, dtype=np.float32)
