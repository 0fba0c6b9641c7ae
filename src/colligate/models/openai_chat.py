"""Any endpoint that speaks OpenAI's chat protocol: OpenAI, vLLM, SGLang, Ollama, llama-server.

What a server refuses is learnt (`dialect.py`), what fails is retried (`transport.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import openai
from openai import AsyncOpenAI

from colligate.errors import MalformedOutput, MissingCapability, RequestRefused
from colligate.models.dialect import Dialect, refused_parameter
from colligate.models.failures import is_context_error
from colligate.models.label_odds import first_token, require_labels, share
from colligate.models.openai_reply import Reply, ask, ask_streaming, usage_of
from colligate.models.protocols import Capability, Completion, Message, OnToken, Usage
from colligate.models.thinking import split_thinking
from colligate.models.tokens import estimate_tokens
from colligate.models.transport import Endpoint, Policy

_REFUSALS = (openai.BadRequestError, openai.UnprocessableEntityError)
_ROOM_TO_THINK = 4096


class OpenAIChat:
    """A chat model behind an OpenAI-compatible endpoint.

    `base_url` defaults to `OPENAI_BASE_URL`, else OpenAI's own; only the latter must have a key.
    `Capability.STRUCTURED` is declared until the server refuses a JSON schema,
    `Capability.LABELS` once `probe` or `labels` has seen the server return log-probabilities.
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
        self._dialect = Dialect(model, is_openai=self._endpoint.is_openai)
        self._has_labels = False

    @property
    def name(self) -> str:
        """`openai:MODEL`, with `@URL` where it is not OpenAI's own."""
        return f"openai:{self._model}" + (
            "" if self._endpoint.is_openai else f"@{self._endpoint.url}"
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do, as far as it is known by now."""
        known = {Capability.CHAT}
        if self._dialect.schema_form == "json_schema":
            known.add(Capability.STRUCTURED)
        if self._has_labels:
            known.add(Capability.LABELS)
        return frozenset(known)

    @property
    def context_tokens(self) -> int | None:
        """As given, or as `probe` found it (vLLM says); else None."""
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
                except _REFUSALS as error:
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
        details = getattr(reply.usage, "completion_tokens_details", None)
        thought = bool(reply.thinking or getattr(details, "reasoning_tokens", None))
        return (
            reply.finish_reason == "length"
            and thought
            and not reply.content
            and self._dialect.thinking_room < _ROOM_TO_THINK
        )

    async def labels(self, prefix: Sequence[Message], labels: Sequence[str]) -> dict[str, float]:
        """Probability of each label as the answer's beginning, from `top_logprobs` of one token.

        How tokens count for labels, and what labels get that are not among them, is said in
        `label_odds.share`.

        Raises:
            MissingCapability: the server returns no log-probabilities.
            MalformedOutput: none of the labels is among the tokens it returns.
            ValueError: there are no labels, or an empty one.
        """
        require_labels(labels)
        top = 20

        async def attempt(client: AsyncOpenAI) -> list[tuple[str, float]]:
            nonlocal top
            while True:
                # At temperature 1 the log-probabilities are the model's own on every server.
                body = self._dialect.request(
                    prefix, max_tokens=1, temperature=1.0, logprobs=True, top_logprobs=top
                )
                try:
                    return first_token(await client.chat.completions.create(**body))
                except _REFUSALS as error:
                    named = refused_parameter(error, ["top_logprobs", "logprobs"])
                    if named == "top_logprobs" and top > 5:
                        top = 5
                    elif named is not None:
                        return []
                    elif is_context_error(error) or not self._dialect.learn(error, body):
                        raise

        alternatives = await self._endpoint.call(attempt, model=self._model)
        if not alternatives:
            raise MissingCapability(
                f"{self.name} gives no label probabilities",
                "the server returns no top_logprobs",
                "use another scorer, such as vLLM or a gguf: model",
            )
        self._has_labels = True
        return share(alternatives, labels, self.name)

    async def probe(self) -> frozenset[Capability]:
        """Ask the server what cannot be known otherwise: label odds and the context window."""
        with contextlib.suppress(MissingCapability, MalformedOutput):
            await self.labels([Message("user", "Answer with yes or no: is water wet?")], ["yes"])
        with contextlib.suppress(RequestRefused, MalformedOutput):  # not every server lists models
            entry = (await self._endpoint.models()).get(self._model, {})
            window = entry.get("max_model_len")  # vLLM, SGLang
            if self._context_tokens is None and isinstance(window, int):
                self._context_tokens = window
        return self.capabilities

    async def count_tokens(self, text: str) -> int:
        """An estimate (`estimate_tokens`): the protocol has no way to ask the tokenizer."""
        return estimate_tokens(text)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
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
