"""Label odds from `top_logprobs`: the likeliest first tokens of a chat's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openai
from openai import AsyncOpenAI

from colligate.errors import MalformedOutput, MissingCapability, RequestRefused
from colligate.models.dialect import Dialect, refused_parameter
from colligate.models.failures import is_context_error
from colligate.models.found_once import FoundOnce
from colligate.models.label_odds import first_token, share
from colligate.models.openai_reply import post_chat
from colligate.models.protocols import LabelOdds, Message
from colligate.models.transport import Endpoint

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
