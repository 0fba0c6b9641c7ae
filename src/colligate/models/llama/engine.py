"""Compute answers, likelihoods and attention of a GGUF model, for several requests together.

Requests of any thread join between two batches. A batch holds the next tokens of all answers in
progress, and the parts of prompts that are still to be read (continuous batching). What prompts
share at their beginning is read once: the cells of its keys and values are shared, and a recurrent
state is copied. The work is done in the model's thread, by any call that waits.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.errors import ServerFailed
from colligate.models.decoding import AnswerInProgress, GenerationRequest, PassStopped, Request
from colligate.models.download import hash_file
from colligate.models.llama.api import BATCH_TOKENS, Context, LlamaLibrary, Model, load_adapter
from colligate.models.llama.attention import AttentionContext, AttentionRequest
from colligate.models.llama.beginnings import Beginnings
from colligate.models.local import Tokens, count_shared
from colligate.models.prompts import check_fits

_MOST_OUTPUTS = 128  # of a batch's tokens: logits of a vocabulary of 150,000 take 600 KB each
_MOST_SEQUENCES = 64  # in progress or kept; llama.cpp's most is 256
_KEPT_STATES = 8  # of a recurrent model: each may take tens of megabytes
_STATES_APART = 32  # tokens from one that is kept to the next
_MOST_SCORED = 32  # likelihoods computed together
_WORTH_SHARING = 16  # tokens of a shared beginning


@dataclass(eq=False)
class ScoreRequest(Request[list[float]]):
    """A text of which the tokens from `first` on, at least 1, get log-probabilities."""

    ids: list[int]
    first: int


@dataclass(frozen=True)
class EngineLimits:
    """Up to `parallel` answers are computed together; `context` is the window of each request.

    Up to `draft` tokens of answers are guessed in each batch.
    """

    context: int
    parallel: int
    threads: int
    draft: int


class LlamaEngine:
    """Computes the requests of any thread together, within its limits.

    The keys and values of all requests, and of those before that may share a beginning with the
    next ones, are in as many cells as one window has; requests wait for free cells.
    """

    def __init__(
        self,
        library: LlamaLibrary,
        path: Path,
        name: str,
        beginnings: Beginnings,
        limits: EngineLimits,
    ) -> None:
        self.model = Model(library, path)
        self.name = name
        self._beginnings = beginnings
        self._parallel, slots = limits.parallel, _MOST_SEQUENCES
        if self.model.recurrent:
            self._parallel = min(self._parallel, slots - _KEPT_STATES)
            slots = self._parallel + _KEPT_STATES
        self._draft = 0 if self.model.recurrent else limits.draft
        self._limits = limits
        self._context = Context(
            self.model,
            cells=limits.context,
            sequences=slots,
            outputs=_MOST_OUTPUTS,
            threads=limits.threads,
        )
        self._ends = self.model.ends()
        self._controls = self.model.controls()
        self._submitted: deque[Any] = deque()  # the only state that other threads touch
        self._waiting: deque[_Sequence] = deque()
        self._active: list[_Sequence] = []
        self._kept: list[_Sequence] = []  # finished, for later requests; the next to go first
        self._free = list(range(slots))
        self._full = False  # requests in progress need all cells: none begins
        self._attention_requests: deque[tuple[AttentionRequest, Iterator[None]]] = deque()
        self._attention: AttentionContext | None = None
        self._adapters: dict[str, int] = {}
        self._adapter = ""  # the one that the context applies

    def submit(self, request: Request[Any]) -> None:
        """Queue a request; it joins the next batch. From any thread."""
        self._submitted.append(request)

    def add_adapter(self, path: Path) -> str:
        """Load a LoRA adapter in GGUF; return the digest of its content, its name for requests."""
        key = hash_file(path)[:16]
        if key not in self._adapters:
            self._adapters[key] = load_adapter(self.model, path)
        return key

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, control tokens left out, U+FFFD for incomplete characters."""
        pieces = (self.model.piece(token) for token in ids if token not in self._controls)
        return b"".join(pieces).decode(errors="replace")

    def close(self) -> None:
        """Free the memory. Safe to call twice."""
        if self._attention is not None:
            self._attention.context.close()
        self._context.close()
        self.model.close()

    def advance(self) -> None:
        """Begin the requests that fit, then compute one batch. In the model's thread.

        An outcome that is an error is PassStopped after `halt`, ContextTooSmall, RequestRefused,
        ServerFailed, or what the request's `on_piece` raised.
        """
        while self._submitted:
            self._receive(self._submitted.popleft())
        for sequence in [*self._waiting, *self._active]:
            if sequence.request.halt.is_set():
                self._finish(sequence, PassStopped())
        self._waiting = deque(s for s in self._waiting if s.request.outcome is None)
        for _ in range(0 if self._full and self._active else len(self._waiting)):
            sequence = self._waiting.popleft()
            if not self._begin(sequence):
                self._waiting.append(sequence)
        if self._active:
            self._compute(self._active[0].request.adapter)
        if self._attention_requests:
            self._advance_attention()

    def _receive(self, request: GenerationRequest | ScoreRequest | AttentionRequest) -> None:
        try:
            if isinstance(request, AttentionRequest):
                check_fits(len(request.ids), self._limits.context, self.name)
                self._attention_requests.append((request, self._attend(request)))
                return
            answer = None
            if isinstance(request, GenerationRequest):
                answer = AnswerInProgress(
                    request,
                    decode=self.decode,
                    ends=self._ends,
                    name=self.name,
                    context=self._limits.context,
                )
            else:
                check_fits(len(request.ids), self._limits.context, self.name)
            if request.outcome is None:
                sequence = _Sequence(request, answer)
                if self.model.recurrent:
                    self._note_ends(sequence)
                self._waiting.append(sequence)
        except Exception as error:  # of any class: it is for this request's caller only
            request.outcome = error

    def _begin(self, sequence: _Sequence) -> bool:
        """Give a sequence a slot, with what it shares with another; False if it must wait."""
        alike = sum((each.answer is None) == (sequence.answer is None) for each in self._active)
        if alike >= (_MOST_SCORED if sequence.answer is None else self._parallel):
            return False
        if self.model.recurrent and len(self._active) >= self._parallel:
            return False
        best, computed = self._find_longest_shared(sequence)
        reading = (s for s in self._active if s.request.adapter == sequence.request.adapter)
        if any(
            sequence.shared_with(other) > max(computed + _WORTH_SHARING, other.computed)
            for other in reading
        ):
            return False  # until the other one has read what both begin with
        if not self._free_slot([best]):
            return False
        sequence.slot = self._free.pop()
        if self._restore_beginning(sequence, computed):
            best, computed = None, sequence.constant
        if best is not None:
            self._context.copy(best.slot, sequence.slot, computed)
            if best in self._kept:  # it is of use
                self._kept.remove(best)
                self._kept.append(best)
        sequence.computed = sequence.kept = computed
        if computed in sequence.ends:
            self._keep_state(sequence)
        if sequence.answer is not None and not sequence.answer.written:
            sequence.answer.cached_tokens = computed
        self._active.append(sequence)
        return True

    def _restore_beginning(self, sequence: _Sequence, computed: int) -> bool:
        """Restore from disk what is the same in every run, if it is more than is computed."""
        if sequence.request.adapter:
            return False
        sequence.constant = self._beginnings.match(sequence.ids[: sequence.first_scored - 1])
        if sequence.constant <= computed + _WORTH_SHARING:
            return False
        if self.model.recurrent:
            sequence.ends.add(sequence.constant)
        data = self._beginnings.load(sequence.ids[: sequence.constant])
        return data is not None and self._context.restore(sequence.slot, data)

    def _find_longest_shared(self, sequence: _Sequence) -> tuple[_Sequence | None, int]:
        """Return the sequence that shares the longest computed beginning, and its tokens."""
        best, computed = None, 0
        for other in (*self._active, *self._kept):
            if other.request.adapter == sequence.request.adapter:
                shared = min(sequence.shared_with(other), other.computed)
                if shared > computed and (
                    shared == other.computed or self._context.holds(other.slot, shared)
                ):
                    best, computed = other, shared
        return best, computed

    def _finish(self, sequence: _Sequence, error: Exception | None = None) -> None:
        """Set the outcome if it failed, and keep what was computed for later requests."""
        if error is not None:
            sequence.request.outcome = error
        if sequence not in self._active:
            return
        self._active.remove(sequence)
        self._full = False
        if self.model.recurrent or (error is not None and not isinstance(error, PassStopped)):
            self._release(sequence)
            return
        self._context.cut(sequence.slot, sequence.computed)
        # Answers are continued by later turns; a scored text hardly ever is.
        self._kept.insert(len(self._kept) if sequence.answer else 0, sequence)

    # The states of a recurrent model: they cannot be cut, so copies are kept at some places

    def _note_ends(self, sequence: _Sequence) -> None:
        """Note where a prompt parts with others, and where later ones are likely to."""
        first_message = np.flatnonzero(np.isin(sequence.ids, [*self._ends]))[:1]
        sequence.ends.update(int(place) + 1 for place in first_message)
        for other in (*self._active, *self._waiting, *self._kept):
            if other.request.adapter == sequence.request.adapter:
                end = sequence.shared_with(other)
                sequence.ends.add(end)
                other.ends.add(end)
        if sequence.answer is not None:
            # A prompt that goes on after the last message differs before the end: there stand the
            # template's own tokens.
            sequence.ends.add(len(sequence.ids) - _WORTH_SHARING)

    def _keep_state(self, sequence: _Sequence) -> None:
        """Keep a copy of a sequence's state, unless all slots hold what it begins with."""
        sequence.kept = sequence.computed
        ids, adapter = sequence.ids[: sequence.computed], sequence.request.adapter
        begun = [
            each
            for each in self._kept
            if each.request.adapter == adapter and count_shared(each.ids, ids) == len(each.ids)
        ]
        if any(len(each.ids) == len(ids) for each in begun) or not self._free_slot(begun):
            return
        copy = _Sequence(ScoreRequest(ids.tolist(), 0, adapter=adapter), None)
        copy.slot, copy.computed = self._free.pop(), len(ids)
        self._context.copy(sequence.slot, copy.slot, len(ids))
        # What it begins with goes after it: more may begin so.
        rest = [each for each in self._kept if each not in begun]
        self._kept = [*rest, copy, *sorted(begun, key=lambda each: -len(each.ids))]

    def _free_slot(self, needed: Sequence[_Sequence | None]) -> bool:
        """Make a slot free, but none of those needed; False if there is none."""
        others = [each for each in self._kept if each not in needed]
        if not self._free and others:
            self._drop(others[0])
        return bool(self._free)

    def _drop(self, sequence: _Sequence) -> None:
        self._kept.remove(sequence)
        self._release(sequence)

    def _release(self, sequence: _Sequence) -> None:
        self._context.cut(sequence.slot)
        self._free.append(sequence.slot)
        sequence.computed = 0

    def _compute(self, adapter: str) -> None:
        chosen = [s for s in self._active if s.request.adapter == adapter]
        # The other adapters' turn is next.
        self._active = [s for s in self._active if s.request.adapter != adapter] + chosen
        try:
            if adapter != self._adapter:
                self._context.use_adapter(self._adapters[adapter] if adapter else None)
                self._adapter = adapter
            parts = self._plan(chosen)
            tokens = [int(token) for part in parts for token in part.tokens]
            positions = [p for part in parts for p in range(part.start, part.end)]
            slots = [part.sequence.slot for part in parts for _ in part.tokens]
            outputs = [p >= part.logits_from for part in parts for p in range(part.start, part.end)]
            while not self._context.decode(tokens, positions, slots, outputs):
                if self._kept:
                    self._drop(self._kept[0])
                    continue
                if len(self._active) == 1:
                    what = f"{self.name} has no room for a request"
                    raise ServerFailed(what, "its cells are full")
                # The last one to begin gives its cells to the others, and begins again when one of
                # them has ended: at once, it would take back what they need.
                last = chosen.pop()
                self._active.remove(last)
                self._release(last)
                last.scores.clear()
                self._waiting.appendleft(last)
                self._full = True
                return
        except Exception as error:  # Whatever it is: the whole batch is invalid.
            for sequence in chosen:
                self._finish(sequence, error)
            return
        row = 0
        for part in parts:
            try:
                self._use_logits(part, row)
            except Exception as error:  # from the caller's `on_piece`, of any class
                self._finish(part.sequence, error)
            row += len(part.tokens)
            if part.sequence.request.outcome is not None:
                self._finish(part.sequence)

    def _plan(self, sequences: Sequence[_Sequence]) -> list[_Part]:
        """Choose the tokens of the next batch: first of answers, then of prompts in their order."""
        parts, room, outputs = [], BATCH_TOKENS, _MOST_OUTPUTS
        writing = max(1, sum(s.is_writing for s in sequences))
        guesses = max(0, self._draft + 1 - writing) // writing
        for sequence in sorted(sequences, key=lambda each: not each.is_writing):
            start = sequence.computed
            if sequence.is_writing and sequence.answer is not None:
                draft = sequence.guess_next(guesses, self.model)
                part = _Part(sequence, start, (*sequence.ids[start:], *draft), start)
            else:
                end = min(start + room, sequence.to_compute)
                if start < sequence.constant:  # what is kept of it is not mixed with the rest
                    end = min(end, sequence.constant)
                end = min(end, sequence.next_end())
                # No more logits than there is room for.
                output = sequence.first_scored - 1
                if end > output:
                    end = min(end, max(start, output) + outputs)
                part = _Part(sequence, start, sequence.ids[start:end], output)
            if not len(part.tokens):
                continue
            parts.append(part)
            room -= len(part.tokens)
            outputs -= max(0, part.end - max(part.start, part.logits_from))
            if room <= 0 or outputs <= 0:
                break
        return parts

    def _use_logits(self, part: _Part, row: int) -> None:
        """Take a part's logits, which begin at a row of the batch."""
        sequence, answer = part.sequence, part.sequence.answer
        sequence.computed = part.end
        if part.end == sequence.constant:
            beginning = sequence.ids[: sequence.constant]
            self._beginnings.save(beginning, self._context.save(sequence.slot))
        if part.end in sequence.ends:
            self._keep_state(sequence)
        if answer is None:
            for place in range(max(part.start, part.logits_from), part.end):
                logits = self._context.logits(row + place - part.start)
                sequence.scores.append(log_probability(logits, int(sequence.ids[place + 1])))
            if sequence.computed == sequence.to_compute:
                sequence.request.outcome = sequence.scores
            return
        if part.end <= part.logits_from:
            return  # the prompt has more
        # Each drafted token that the model would have written too is kept; the next one is its own.
        size = len(sequence.ids)
        for place in range(max(part.start, part.logits_from), part.end):
            token = answer.choose(self._context.logits(row + place - part.start))
            sequence.append(token)
            answer.add(token)
            following = place + 1 - part.start
            if sequence.request.outcome is not None or following >= len(part.tokens):
                break
            if token != part.tokens[following]:
                break
        sequence.adjust_guesses(len(sequence.ids) - size - 1, part.end - size)
        computed = len(sequence.ids) - 1
        if computed < part.end:
            self._context.cut(sequence.slot, computed)
        sequence.computed = computed

    def _advance_attention(self) -> None:
        """Compute one more batch of the first request of attention."""
        request, work = self._attention_requests[0]
        try:
            if request.halt.is_set():
                raise PassStopped
            next(work, None)
        except Exception as error:  # of any class: it is for this request's caller only
            request.outcome = error
        if request.outcome is not None:
            self._attention_requests.popleft()

    def _attend(self, request: AttentionRequest) -> Iterator[None]:
        if self._attention is None:
            limits = self._limits
            self._attention = AttentionContext(self.model, limits.context, limits.threads)
        yield from self._attention.attend(request, self._adapters.get(request.adapter))


def log_probability(logits: NDArray[np.float32], token: int) -> float:
    """Return the natural log-probability of a token by the logits [vocabulary]."""
    best = float(logits.max())
    if not math.isfinite(best):
        raise ServerFailed("the model could not compute", "its logits are not finite")
    # The sum in float64: 150,000 small numbers in float32 would lose digits.
    total = np.exp(logits - np.float32(best)).sum(dtype=np.float64)
    return float(logits[token]) - best - math.log(total)


@dataclass(frozen=True)
class _Part:
    """Tokens of a sequence in a batch, from position `start`; logits from `logits_from` on."""

    sequence: _Sequence
    start: int
    tokens: Tokens
    logits_from: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


# With the token before them, guesses fill a batch of 4 or 8: the processor multiplies four rows at
# a time. 4 cost as much as 2.1 single tokens, 8 as 3.6, 16 as 6.
_FEWEST_GUESSES = 3
_SHORTEST_MATCH, _LONGEST_MATCH = 3, 8  # tokens that must be equal for what follows to be a guess
_NEAR = 8  # tokens


class _Sequence:
    """A request in progress: its tokens; the first `computed` have keys and values under `slot`.

    An answer's tokens are appended to those of its prompt.
    """

    def __init__(
        self, request: GenerationRequest | ScoreRequest, answer: AnswerInProgress | None
    ) -> None:
        self.request = request
        self.answer = answer
        self.slot = -1
        self.computed = 0
        self.constant = 0  # tokens at its beginning that are the same in every run
        self.ends: set[int] = set()  # of beginnings, where a recurrent state is to be kept
        self.kept = 0  # tokens of the last state that was
        self.scores: list[float] = []
        self._size = len(request.ids)
        room = 0 if answer is None else answer.max_tokens + 1
        self._ids = np.empty(self._size + room, np.int32)
        self._ids[: self._size] = request.ids
        self._guesses = _FEWEST_GUESSES  # at most so many next time
        self._match = _SHORTEST_MATCH
        self._source: int | None = None  # what comes next in the text that is copied
        self._copied = 0  # tokens when something was last copied
        self._is_copy = False  # the last guess

    @property
    def ids(self) -> NDArray[np.int32]:
        return self._ids[: self._size]

    @property
    def first_scored(self) -> int:
        """The place of the first token that logits are needed for."""
        return self.request.first if isinstance(self.request, ScoreRequest) else self._size

    @property
    def to_compute(self) -> int:
        """How many tokens must be computed before the outcome, or the next token, is known."""
        return self._size - (self.answer is None)

    @property
    def is_writing(self) -> bool:
        """Whether the prompt is read and the next token of the answer is due."""
        return self.answer is not None and self.computed == self._size - 1 and self.computed > 0

    def append(self, token: int) -> None:
        self._ids[self._size] = token
        self._size += 1

    def shared_with(self, other: _Sequence) -> int:
        """Return how many tokens at the beginning of both need to be computed only once."""
        # The token that predicts the first one is computed.
        return count_shared(self._ids[: self.first_scored - 1], other.ids)

    def next_end(self) -> int:
        """Return where reading stops for a state to be kept."""
        least = max(self.computed, self.kept + _STATES_APART - 1)
        return min((end for end in self.ends if end > least), default=self._size)

    def guess_next(self, most: int, model: Model) -> tuple[int, ...]:
        """Guess the next tokens: what the grammar forces, or what followed the last ones before.

        A quotation is a copy of the prompt. The model's own choice decides about each guess.
        """
        if self.answer is None:
            return ()
        most = min(most, self._guesses, self.answer.max_tokens - len(self.answer.written) - 1)
        if most <= 0:
            return ()
        self._is_copy = False
        if forced := self.answer.forced_tokens():
            return tuple(forced[:most])
        place = self._find_copied()
        if place is None:
            return ()
        self._source, self._is_copy = place, True
        guess = [int(token) for token in self.ids[place : place + most + 1]]
        text = b"".join(model.piece(token) for token in guess)
        if b"\n" in text:  # models quote a wrapped line without its line breaks
            guess = model.tokenize(re.sub(rb"\s*\n\s*", b" ", text).decode(errors="ignore"))
        return tuple(guess[:most])

    def _find_copied(self) -> int | None:
        """Return the place in the tokens of what should come next, None if nothing is copied."""
        ids, match = self.ids, self._match
        starts = np.ones(max(0, len(ids) - match), np.bool_)
        for offset in range(match):
            starts &= ids[offset : offset - match] == ids[offset - match]
        if len(found := np.flatnonzero(starts)):
            return int(found[-1]) + match
        if self._source is None or self._size > self._copied + _NEAR:
            return None
        # A copy goes on after a line break or a quotation mark that the model writes otherwise.
        start = max(0, self._source - 2)
        near = np.flatnonzero(ids[start : start + _NEAR] == ids[-1])
        return start + int(near[0]) + 1 if len(near) else None

    def adjust_guesses(self, accepted: int, guessed: int) -> None:
        """Guess more after a guess was right; ask for a longer match after it was wrong."""
        if not guessed or not self._is_copy or self._source is None:
            return
        whole = accepted == guessed
        self._guesses = 2 * self._guesses + 1 if whole else _FEWEST_GUESSES
        if accepted:
            self._source, self._copied = self._source + accepted, self._size
            self._match = _SHORTEST_MATCH
        else:
            self._source = None
            self._match = min(self._match + 1, _LONGEST_MATCH)
