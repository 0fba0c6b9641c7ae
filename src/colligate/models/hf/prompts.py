"""From messages and texts to token ids, with the tokenizer that came with the model.

The chat template's marks become control tokens; what stands in a message never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from colligate.errors import ModelError, RequestRefused
from colligate.models.base import Message, blunt, encodable, marks

_THINK = "<think>"


class Prompts:
    """A tokenizer and its chat template. Several threads may use it."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer = tokenizer
        self._name = name
        self._lock = Lock()  # literal text changes a setting of the tokenizer for its time
        added = tokenizer.added_tokens_decoder.values()
        self._marks = {token.content for token in added if token.special}
        self._marks.update(self._of_template())
        begun = tokenizer("", add_special_tokens=True).input_ids
        self._bos: list[int] = [i for i in begun[:1] if i == tokenizer.bos_token_id]

    @property
    def has_template(self) -> bool:
        """Whether messages are templated; a base model's are joined as plain paragraphs."""
        return bool(self.tokenizer.chat_template)

    def render(
        self,
        messages: Sequence[Message],
        *,
        think: bool = True,
        answer: bool = True,
    ) -> str:
        """The messages as the model reads them, up to where its answer begins.

        Without `think`, templates that can are told to leave no room for thinking, and a block
        that a template opens is closed. Without `answer`, what calls for one is left out.

        Raises:
            RequestRefused: the template takes no such messages.
        """
        turns = [{"role": m.role, "content": self._harmless(m.content)} for m in messages]
        if not self.has_template:
            text = "\n\n".join(turn["content"] for turn in turns)
            return text + "\n\n" if answer else text
        try:
            text = self._apply(turns, think, answer)
        except Exception as error:
            # Some templates know no system turn: what it says then begins the user's.
            merged = _without_system(turns)
            if merged == turns:
                raise self._refused(error) from error
            try:
                text = self._apply(merged, think, answer)
            except Exception as again:
                raise self._refused(again) from again
        if not think and self.opens_thinking(text):
            text = text.rstrip() + "\n\n</think>\n\n"
        return text

    def opens_thinking(self, rendered: str) -> bool:
        """Whether the answer begins inside a block of thinking that the template opened."""
        return rendered.rstrip().endswith(_THINK)

    def encode(self, rendered: str) -> list[int]:
        """Token ids of a rendered prompt; its marks are control tokens."""
        ids: list[int] = self._encoding(rendered).ids
        return ids if self.has_template else self._bos + ids

    def literal(self, text: str, *, beginning: bool = False) -> list[int]:
        """Token ids of a text without any control token in it.

        `beginning` puts before it what begins a text: the BOS token for models that use one;
        an empty text gets one in any case, since something must come before the first token.
        """
        ids: list[int] = self._literal(encodable(text)).ids
        if not beginning:
            return ids
        if not (self._bos or ids):
            first = self.tokenizer.bos_token_id
            return [self.tokenizer.eos_token_id if first is None else first]
        return self._bos + ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The half-open character ranges of a literal text's tokens."""
        return list(self._literal(encodable(text)).offsets)

    def question(self, prompt: str | Sequence[Message]) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids up to the last one of a text, or of the last message's content; and, for
        each, which characters of that text or content it covers (an empty range for none).

        Raises:
            ModelError: the template changes the last message so that it cannot be found in it.
        """
        if isinstance(prompt, str):
            encoding = self._literal(encodable(prompt))
            return self._bos + encoding.ids, [(0, 0)] * len(self._bos) + list(encoding.offsets)
        # Without what calls for the answer, the content is the last thing in it.
        rendered = self.render(prompt, answer=False)
        content = self._harmless(prompt[-1].content)
        start = rendered.rfind(content.strip())
        if start < 0 or not content.strip():
            raise ModelError(
                f"{self._name}'s chat template hides where the question ends",
                "it changes the last message",
                "give the prompt as plain text",
            )
        lead = len(content) - len(content.lstrip())
        end = start + len(content.strip())
        encoding = self._encoding(rendered)
        bos = [] if self.has_template else self._bos
        ids, covered = list(bos), [(0, 0)] * len(bos)
        for token, (a, b) in zip(encoding.ids, encoding.offsets, strict=True):
            if a >= end:
                break
            ids.append(token)
            inside = (max(a, start) - start + lead, min(b, end) - start + lead)
            covered.append(inside if inside[0] < inside[1] else (0, 0))
        return ids, covered

    def _apply(self, turns: list[dict[str, str]], think: bool, answer: bool) -> str:
        options = {} if think else {"enable_thinking": False}
        rendered: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=answer, **options
        )
        return rendered

    def _refused(self, error: Exception) -> RequestRefused:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return RequestRefused(f"{self._name}'s chat template refuses the messages", why)

    def _of_template(self) -> list[str]:
        """The marks that the template writes: some are spelt in ordinary letters, as [INST]."""
        turns = [{"role": r, "content": "."} for r in ("system", "user", "assistant", "user")]
        for probe in (turns, turns[1:]) if self.has_template else ():
            with suppress(Exception):  # A template may have no place for a system's turn.
                return marks(self._apply(probe, think=True, answer=True))
        return []

    def _harmless(self, text: str) -> str:
        text = encodable(text)
        return blunt(text, [mark for mark in self._marks if mark in text])

    def _encoding(self, text: str) -> Any:
        with self._lock:
            return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    def _literal(self, text: str) -> Any:
        backend = self.tokenizer.backend_tokenizer
        with self._lock:
            backend.encode_special_tokens = True
            try:
                return backend.encode(text, add_special_tokens=False)
            finally:
                backend.encode_special_tokens = False


def _without_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same turns, what the system says put before what the user says first."""
    said = [turn["content"] for turn in turns if turn["role"] == "system"]
    rest = [dict(turn) for turn in turns if turn["role"] != "system"]
    if said and rest and rest[0]["role"] == "user":
        rest[0]["content"] = "\n\n".join([*said, rest[0]["content"]])
        return rest
    return turns
