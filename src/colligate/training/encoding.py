"""Samples as the tokens a model learns from.

The prompt's are those that `hf:` models are given at inference, by the same code; the reply's
follow as they would if the model wrote them, with the token that ends its turn. Only the reply is
learnt.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from colligate.errors import RequestRefused, WeightsUnavailable
from colligate.models import Message
from colligate.models.hf.prompts import Prompts
from colligate.training.samples import Sample

IGNORED = -100
"""The label of a token that is not learnt, as torch has it."""

# Asked with a schema, or for the odds of labels: their prompts leave no room for thinking.
_HELD = frozenset({"scope", "reasoner", "identifier", "summarizer"})
_PROBE = "REPLY"


@dataclass(frozen=True)
class Encoded:
    """A sample's tokens; the first `prompt` of them are the prompt's."""

    ids: list[int]
    prompt: int

    @property
    def labels(self) -> list[int]:
        """For each token what is to be learnt there: itself, or nothing (`IGNORED`)."""
        return [IGNORED] * self.prompt + self.ids[self.prompt :]


@dataclass
class Encodings:
    """Samples that fit, in order, and the ids of those that were too long, with their tokens."""

    fitting: list[Encoded] = field(default_factory=list)
    too_long: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of all that fit."""
        return sum(len(each.ids) for each in self.fitting)


class Encoder:
    """From samples to tokens, for one model.

    Raises:
        WeightsUnavailable: nothing would end a reply: the model could not learn to stop.
    """

    def __init__(self, prompts: Prompts, name: str) -> None:
        self._prompts = prompts
        self._end = _end_of_turn(prompts, name)

    def encode(self, sample: Sample) -> Encoded:
        """The tokens of a sample, whole.

        Raises:
            RequestRefused: the chat template takes no such messages.
        """
        prompts = self._prompts
        rendered = prompts.render(sample.prompt, think=sample.task not in _HELD)
        # Where a template opens the thinking by itself, the reply begins by closing it.
        closing = "\n</think>\n\n" if prompts.opens_thinking(rendered) else ""
        asked = prompts.encode(rendered)
        return Encoded([*asked, *prompts.literal(closing + sample.target), self._end], len(asked))

    def encode_all(self, samples: Iterable[Sample], cutoff: int) -> Encodings:
        """The tokens of all samples of at most `cutoff`.

        A prompt cut short is none that inference sends, and a reply cut short teaches never to
        end; so what is longer is left out whole.
        """
        made = Encodings()
        for sample in samples:
            encoded = self.encode(sample)
            if len(encoded.ids) > cutoff:
                made.too_long[sample.id] = len(encoded.ids)
            else:
                made.fitting.append(encoded)
        return made


def _end_of_turn(prompts: Prompts, name: str) -> int:
    """The token that the template puts after a reply; inference stops at it."""
    turns = [Message("user", "."), Message("assistant", _PROBE)]
    if prompts.has_template:
        special = {i for i, t in prompts.tokenizer.added_tokens_decoder.items() if t.special}
        with suppress(RequestRefused):
            after = prompts.render(turns, answer=False).rpartition(_PROBE)[2]
            for token in prompts.encode(after):
                if token in special:
                    return token
    end: int | None = prompts.tokenizer.eos_token_id
    if end is None:
        why = "neither its chat template nor its tokenizer has a token that ends a reply"
        raise WeightsUnavailable(f"cannot train {name}", why, "take an instruction-tuned model")
    return end
