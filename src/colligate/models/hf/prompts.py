"""Turn messages and texts into token ids, with the tokenizer that came with the model.

The chat template's marks become control tokens; the text of a message never does.
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
        self._lock = Lock()  # encoding literal text changes a setting of the tokenizer meanwhile
        added = tokenizer.added_tokens_decoder.values()
        self._marks = {token.content for token in added if token.special}
        self._marks.update(self._template_marks())
        begun = tokenizer("", add_special_tokens=True).input_ids
        self._bos: list[int] = [i for i in begun[:1] if i == tokenizer.bos_token_id]

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template; messages are joined as plain paragraphs otherwise."""
        return bool(self.tokenizer.chat_template)

    def render(
        self,
        messages: Sequence[Message],
        *,
        think: bool = True,
        answer: bool = True,
    ) -> str:
        """Render messages as the model reads them, up to the beginning of its answer.

        Without `think`, thinking is disabled in templates that support it, and a block that a
        template opens is closed. Without `answer`, the generation prompt is left out.
        RequestRefused if the template does not accept the messages.
        """
        turns = [{"role": m.role, "content": self._neutralise(m.content)} for m in messages]
        if not self.has_template:
            text = "\n\n".join(turn["content"] for turn in turns)
            return text + "\n\n" if answer else text
        try:
            text = self._apply(turns, think, answer)
        except Exception as error:
            # Some templates have no system turn: its text then begins the user's.
            merged = _merge_system(turns)
            if merged == turns:
                raise self._refusal(error) from error
            try:
                text = self._apply(merged, think, answer)
            except Exception as again:
                raise self._refusal(again) from again
        if not think and self.opens_thinking(text):
            text = text.rstrip() + "\n\n</think>\n\n"
        return text

    def opens_thinking(self, rendered: str) -> bool:
        """Whether the answer begins inside a block of thinking that the template opened."""
        return rendered.rstrip().endswith(_THINK)

    def encode(self, rendered: str) -> list[int]:
        """Return the token ids of a rendered prompt; its marks are control tokens."""
        ids: list[int] = self._encode_rendered(rendered).ids
        return ids if self.has_template else self._bos + ids

    def encode_literal(self, text: str, *, beginning: bool = False) -> list[int]:
        """Return the token ids of a text, never a control token.

        `beginning` puts the BOS token before it, for models that use one; an empty text gets one
        in any case, since a token must come before the first one that is scored.
        """
        ids: list[int] = self._encode_text(text).ids
        if not beginning:
            return ids
        if not (self._bos or ids):
            first = self.tokenizer.bos_token_id
            return [self.tokenizer.eos_token_id if first is None else first]
        return self._bos + ids

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the half-open character ranges of a literal text's tokens."""
        return list(self._encode_text(text).offsets)

    def encode_question(
        self, prompt: str | Sequence[Message]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids up to the end of a text, or of the last message's content.

        With each, the characters of that text or content that it covers (an empty range for
        none). ModelError if the template changes the last message so that it cannot be found.
        """
        if isinstance(prompt, str):
            encoding = self._encode_text(prompt)
            return self._bos + encoding.ids, [(0, 0)] * len(self._bos) + list(encoding.offsets)
        # Without the generation prompt, the content comes last.
        rendered = self.render(prompt, answer=False)
        content = self._neutralise(prompt[-1].content)
        start = rendered.rfind(content.strip())
        if start < 0 or not content.strip():
            raise ModelError(
                f"{self._name}'s chat template hides where the question ends",
                "it changes the last message",
                "give the prompt as plain text",
            )
        lead = len(content) - len(content.lstrip())
        end = start + len(content.strip())
        encoding = self._encode_rendered(rendered)
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

    def _refusal(self, error: Exception) -> RequestRefused:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return RequestRefused(f"{self._name}'s chat template refuses the messages", why)

    def _template_marks(self) -> list[str]:
        """Return the marks that the template writes; some are ordinary letters, such as [INST]."""
        turns = [{"role": r, "content": "."} for r in ("system", "user", "assistant", "user")]
        for probe in (turns, turns[1:]) if self.has_template else ():
            with suppress(Exception):  # A template may not accept a system turn.
                return marks(self._apply(probe, think=True, answer=True))
        return []

    def _neutralise(self, text: str) -> str:
        return blunt(text, [mark for mark in self._marks if mark in text])

    def _encode_rendered(self, text: str) -> Any:
        with self._lock:
            return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    def _encode_text(self, text: str) -> Any:
        backend = self.tokenizer.backend_tokenizer
        with self._lock:
            backend.encode_special_tokens = True
            try:
                return backend.encode(encodable(text), add_special_tokens=False)
            finally:
                backend.encode_special_tokens = False


def _merge_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the same turns, the system's text put before the user's first."""
    system = [turn["content"] for turn in turns if turn["role"] == "system"]
    rest = [dict(turn) for turn in turns if turn["role"] != "system"]
    if system and rest and rest[0]["role"] == "user":
        rest[0]["content"] = "\n\n".join([*system, rest[0]["content"]])
        return rest
    return turns
