"""Turn messages and texts into token ids, with the tokenizer that came with the model.

The chat template's marks become control tokens; the text of a message never does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from colligate.errors import ContextTooSmall, RequestRefused
from colligate.models.base import Message, blunt, encodable, marks

_THINK = "<think>"

_BEGINNINGS: list[tuple[Message, ...]] = []


def keep_beginning(system: str, examples: Iterable[tuple[str, str]]) -> tuple[Message, ...]:
    """Return what prompts begin with in every run: an instruction, and examples as turns.

    A model in this process may keep on disk what it computed of it. It is a constant of a module:
    no text of a document or a user may be in it.
    """
    turns = (
        message
        for asked, reply in examples
        for message in (Message("user", asked), Message("assistant", reply))
    )
    _BEGINNINGS.append((Message("system", system), *turns))
    return _BEGINNINGS[-1]


class Prompts:
    """A tokenizer and its chat template. As many threads may use it as the tokenizer allows."""

    def __init__(self, tokenizer: PromptTokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._bos = list(tokenizer.beginning)
        self._marks = {*tokenizer.controls, *self._template_marks()}

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template; messages are joined as plain paragraphs otherwise."""
        return self._tokenizer.has_template

    def render(
        self, messages: Sequence[Message], *, think: bool = True, answer: bool = True
    ) -> str:
        """Render messages as the model reads them, up to the beginning of its answer.

        Without `think`, thinking is disabled in templates that support it, and a block that a
        template opens is closed. Without `answer`, the generation prompt is left out.
        RequestRefused if the template does not accept the messages.
        """
        turns = [{"role": m.role, "content": blunt(m.content, self._marks)} for m in messages]
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
        ids = self._tokenizer.encode(rendered, special=True)
        return ids if self.has_template else self._bos + ids

    def encode_beginnings(self) -> list[list[int]]:
        """Return the token ids of each beginning that `keep_beginning` declared."""
        found = []
        for messages in _BEGINNINGS:
            with suppress(RequestRefused):  # such a prompt is refused as a whole
                found.append(self.encode(self.render(messages, answer=False)))
        return found

    def encode_literal(self, text: str, *, beginning: bool = False) -> list[int]:
        """Return the token ids of a text, never a control token.

        `beginning` puts the BOS token before it, for models that use one; an empty text gets one
        in any case, since a token must come before the first one that is scored.
        """
        ids = self._tokenizer.encode(encodable(text), special=False)
        if not beginning:
            return ids
        if not (self._bos or ids):
            return [self._tokenizer.first]
        return self._bos + ids

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the half-open character ranges of a literal text's tokens."""
        return self._tokenizer.spans(encodable(text))

    def encode_whole(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of a literal text after the BOS token, for models that use one, and
        the characters of the text that each covers."""
        spans = [(0, 0)] * len(self._bos) + self.token_spans(text)
        return self._bos + self.encode_literal(text), spans

    def _apply(self, turns: list[dict[str, str]], think: bool, answer: bool) -> str:
        return self._tokenizer.apply_template(turns, answer=answer, think=think)

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


class PromptTokenizer(Protocol):
    """A tokenizer and its chat template, as a backend implements them.

    `controls` are the texts that are read as control tokens; `beginning` is what the model puts
    before a text (BOS, or nothing), `first` the token before an empty one (BOS, else EOS).
    """

    @property
    def controls(self) -> Collection[str]: ...
    @property
    def beginning(self) -> Sequence[int]: ...
    @property
    def first(self) -> int: ...
    @property
    def has_template(self) -> bool: ...

    def apply_template(self, turns: list[dict[str, str]], *, answer: bool, think: bool) -> str:
        """Render turns of `role` and `content`; raises what the template raises.

        With `answer` the generation prompt follows. Without `think` the template is given
        `enable_thinking=False`.
        """

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids; with `special` marks in the text become control tokens."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the half-open character range of each token of a text without control tokens."""


def check_fits(tokens: int, context: int, name: str) -> None:
    """Raise ContextTooSmall if a prompt of so many tokens does not fit a model's window."""
    if tokens > context:
        what = f"the prompt does not fit {name}"
        hint = "give fewer or shorter passages, or a model with a larger window"
        raise ContextTooSmall(what, f"it has {tokens} tokens and the window {context}", hint)


def _merge_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the same turns, the system's text put before the user's first."""
    system = [turn["content"] for turn in turns if turn["role"] == "system"]
    rest = [dict(turn) for turn in turns if turn["role"] != "system"]
    if system and rest and rest[0]["role"] == "user":
        rest[0]["content"] = "\n\n".join([*system, rest[0]["content"]])
        return rest
    return turns
