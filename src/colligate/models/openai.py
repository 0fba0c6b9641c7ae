"""Any endpoint that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, Ollama, llama-server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from openai import AsyncOpenAI, AsyncStream

from colligate.concurrency import SingleFlight, gather
from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import MalformedOutput, MissingCapability, RequestRefused, WeightsUnavailable
from colligate.models.base import (
    Capability,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    TextKind,
    Usage,
    Vectors,
    encodable,
    find_embedder_prefix,
)
from colligate.models.dialect import Dialect
from colligate.models.label_odds import require_labels
from colligate.models.logprobs import PromptLogprobs, TopLogprobs
from colligate.models.openai_http import Endpoint, Garbled, Policy
from colligate.models.replies import (
    RESPONSES,
    ServerReply,
    estimate_prompt,
    read_reply,
    read_stream,
    to_responses,
)
from colligate.models.thinking import split_thinking

_BATCH = 64  # texts of a request for vectors
_BATCH_TOKENS = 16_000


class OpenAIChat:
    """A chat model behind an OpenAI-compatible endpoint.

    `base_url` defaults to `OPENAI_BASE_URL`, otherwise to OpenAI's own, which requires a key.
    `extra_body` is added to the body of every chat. A model that the server refuses at
    `/chat/completions` is asked at `/responses`.
    `Capability.STRUCTURED` is declared until the server refuses a JSON schema,
    `Capability.LABELS` and `Capability.LIKELIHOOD` after `probe`, or a first use, has seen that
    the server returns log-probabilities. An adapter is another model of the same server.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        context_tokens: int | None = None,
        policy: Policy | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._extra = dict(extra_body or {})
        # What is added changes the answers: it is a part of the key under which they are kept.
        self.version = json.dumps(self._extra, sort_keys=True) if self._extra else ""
        url = base_url or os.environ.get("OPENAI_BASE_URL")
        self._endpoint = Endpoint(url, api_key, policy=policy)
        self.context_tokens = context_tokens  # as given, or as the server reports (vLLM does)
        self._owns_endpoint = True  # an adapter's connections are its base's
        self._forget()

    def _forget(self) -> None:
        """Begin without knowledge about the model of this name."""
        self.name = _name(self._model, self._endpoint)
        self._dialect = Dialect(self._model, is_openai=self._endpoint.is_openai, extra=self._extra)
        self._top = TopLogprobs(self._endpoint, self._dialect, self._model, self.name)
        self._flight = SingleFlight()
        self._scorer: PromptLogprobs | MissingCapability | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities known so far."""
        known = {Capability.CHAT, Capability.ADAPTERS}
        if self._dialect.enforces_schemas:
            known.add(Capability.STRUCTURED)
        scorer = self._scorer if isinstance(self._scorer, PromptLogprobs) else None
        if self._top.seen or (scorer is not None and scorer.tokenizer.has_template):
            known.add(Capability.LABELS)
        if scorer is not None:
            known.add(Capability.LIKELIHOOD)
        return frozenset(known)

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r})"

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call; see `ChatModel.chat`. `usage` is an estimate if the server reports none.

        If a stream breaks off and is asked for again, `on_token` gets only what follows the text
        it already has.
        """
        display = _Display(on_token) if on_token else None
        options = {"stream": True, "stream_options": {"include_usage": True}} if display else {}

        spent = Usage()  # on answers that were not used
        async with self._endpoint.call(self._model) as client:
            while True:
                for attempt in self._endpoint.attempts(
                    lambda: self._dialect.body(request, **options), self._dialect.learn
                ):
                    with attempt as body:
                        room = self._dialect.thinking_room  # other calls may add to it meanwhile
                        reply = await self._ask(client, body, display)
                text, thinking = reply.content or "", ""
                # JSON's text may have marks of thinking.
                if request.schema is None or not text.lstrip().startswith("{"):
                    text, thinking = split_thinking(text)
                thinking = "\n\n".join(filter(None, (reply.thinking.strip(), thinking)))
                if room or text.strip() or not reply.was_cut_thinking(thinking):
                    break
                spent += reply.usage_for(request.messages)
                self._dialect.give_room_to_think()
        finish_reason = reply.finish_reason or "stop"
        enforced = "response_format" in body and finish_reason == "stop" and not reply.refused
        if request.schema is not None and enforced:
            self._dialect.notice(text, request.schema)
        warnings = self._dialect.take_warnings()
        if finish_reason == "content_filter":
            warnings += (f"the content filter of {self._endpoint.url} stopped an answer",)
        if display is not None and not display.show(text):
            warnings += ("the stream broke off and the answer differs from what was shown",)
        usage = spent + reply.usage_for(request.messages)
        return Completion(text, usage, self.name, finish_reason, thinking, warnings)

    async def _ask(
        self, client: AsyncOpenAI, body: Mapping[str, Any], display: _Display | None
    ) -> ServerReply:
        """Ask once, for a whole answer unless the body asks for a stream."""
        path = _CHAT
        if self._dialect.needs_responses:
            path, body = RESPONSES, to_responses(body)
        if display is None or "stream" not in body:
            return read_reply(await client.post(path, body=body, cast_to=object), path)
        stream = await client.post(
            path, body=body, cast_to=object, stream=True, stream_cls=AsyncStream[Any]
        )
        return await read_stream(stream, path, display.show)

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Return label odds.

        Labels of several tokens, and labels after `forced`, are scored whole where the server
        gives likelihoods and templates conversations (vLLM), one pass per label. Otherwise the
        odds are those of the first token, in one call (`odds_from_first_token`).
        """
        require_labels(labels)
        scorer = await self._whole_scorer(labels, forced)
        if scorer is None:
            return await self._top.labels(messages, labels, forced)
        return await scorer.labels(messages, labels, forced, self.context_tokens)

    async def _whole_scorer(self, labels: Sequence[str], forced: str) -> PromptLogprobs | None:
        """Return the scorer of whole labels; None if the first token suffices or it is missing."""
        try:
            scorer = await self._find_scorer()
        except MissingCapability:
            return None
        if not scorer.tokenizer.has_template:
            return None
        tokens = await scorer.label_ids(labels)
        if not all(tokens):
            raise ValueError("labels must not be empty to the model's tokenizer")
        return scorer if forced or any(len(ids) > 1 for ids in tokens) else None

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return likelihoods, in tokens of the server's own tokenizer.

        An empty prefix is the BOS token, or a line break if the model has no such token.
        """
        scorer = await self._find_scorer()
        return await scorer.likelihoods(pairs, self.context_tokens)

    async def _find_scorer(self) -> PromptLogprobs:
        """Ask the server once; that it gives no likelihoods is remembered too."""
        if self._scorer is None:
            self._scorer = await self._flight.run("scorer", self._ask_for_scorer)
        if isinstance(self._scorer, MissingCapability):
            raise MissingCapability(self._scorer.what, self._scorer.why, self._scorer.hint)
        return self._scorer

    async def _ask_for_scorer(self) -> PromptLogprobs | MissingCapability:
        if self._endpoint.is_openai:
            what, why = f"{self.name} gives no likelihoods", "OpenAI's models give none of a prompt"
            return MissingCapability(what, why, "use a gguf: or hf: model, or vLLM")
        try:
            template = {k: v for k, v in self._extra.items() if k == "chat_template_kwargs"}
            scorer = await PromptLogprobs.find(self._endpoint, self._model, template)
        except MissingCapability as missing:
            return missing
        self.context_tokens = self.context_tokens or scorer.tokenizer.window
        return scorer

    async def probe(self) -> frozenset[Capability]:
        """Find out by asking whether the server gives labels and likelihoods, and its window."""
        with contextlib.suppress(MissingCapability):
            await self._top.alternatives([Message("user", "Is water wet? Answer yes or no.")])
        with contextlib.suppress(MissingCapability):
            await self._find_scorer()
        with contextlib.suppress(RequestRefused, MalformedOutput):  # not every server lists models
            window = (await self.listed()).get("max_model_len")  # vLLM, SGLang
            if self.context_tokens is None and isinstance(window, int):
                self.context_tokens = window
        return self.capabilities

    async def listed(self) -> dict[str, Any]:
        """Return the server's entry for this model at `/models`; empty if it is not listed."""
        return (await self._endpoint.models()).get(self._model, {})

    async def with_adapter(self, adapter: str | Path) -> OpenAIChat:
        """Return the server's model of this name: vLLM and others list adapters as models."""
        name, listed = str(adapter), dict[str, Any]()
        with contextlib.suppress(RequestRefused, MalformedOutput):  # not every server lists
            listed = await self._endpoint.models()
        if listed and name not in listed:
            what = f"{self.name} has no adapter {name}"
            why = f"its server has {', '.join(list(listed)[:8])}"
            raise WeightsUnavailable(what, why, "name one of these, or start the server with it")
        view = copy(self)
        view._model, view._owns_endpoint = name, False
        view._forget()
        if Capability.LABELS in self.capabilities:  # it was probed
            await view.probe()
        return view

    async def count_tokens(self, text: str) -> int:
        """Estimate the tokens of a text: asking a server's tokenizer would cost a request."""
        return estimate_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        return estimate_prompt(messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return token_spans(text)

    async def aclose(self) -> None:
        if self._owns_endpoint:
            await self._endpoint.aclose()


_CHAT = "/chat/completions"


def _name(model: str, endpoint: Endpoint) -> str:
    return f"openai:{model}" + ("" if endpoint.is_openai else f"@{endpoint.url}")


class _Display:
    """Passes text on piece by piece, and continues where it was when a stream is asked again."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self._shown = ""

    def show(self, text: str) -> bool:
        """Show the rest of `text`; False when it does not begin with what was shown."""
        if not text.startswith(self._shown):
            return self._shown.startswith(text)
        if piece := text[len(self._shown) :]:
            self._shown = text
            self._on_token(piece)
        return True


class OpenAIEmbedder:
    """An embedder behind an OpenAI-compatible `/embeddings`.

    Requests hold at most 64 texts and about 16,000 tokens, several in flight at once. The
    protocol does not tell queries from passages: models that were trained to, and are known by
    name, get their prefixes (`find_embedder_prefix`).
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        policy: Policy | None = None,
    ) -> None:
        self._model = model
        url = base_url or os.environ.get("OPENAI_BASE_URL")
        self._endpoint = Endpoint(url, api_key, policy=policy)
        self.name = _name(model, self._endpoint)
        self._dimension: int | None = None

    @property
    def dimension(self) -> int:
        """As first seen; otherwise the server is asked now, which blocks."""
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

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        prefix = find_embedder_prefix(self._model, kind)
        given = [prefix + text for text in texts] if prefix else texts
        return np.concatenate(await gather(map(self._post, self._batches(given))))

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = estimate_tokens(text)
            if batch and (len(batch) == _BATCH or tokens + size > _BATCH_TOKENS):
                yield batch
                batch, tokens = [], 0
            batch.append(encodable(text) if text.strip() else " ")  # an empty input is refused
            tokens += size
        yield batch

    async def _post(self, batch: list[str]) -> Vectors:
        body = {"model": self._model, "input": batch}
        read = partial(self._read, count=len(batch))
        return await self._endpoint.post("/embeddings", body, read, model=self._model)

    def _read(self, answer: Any, count: int) -> Vectors:
        """Return the vectors in the order asked, checked and scaled to unit length."""
        try:
            entries = answer["data"]
            by_place = {
                int(entry.get("index", at)): np.asarray(entry["embedding"], np.float32)
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
        await self._endpoint.aclose()
