"""Self-RAG: one continuation per passage, each criticised by the model itself.

Asai et al., "Self-RAG: Learning to Retrieve, Generate, and Critique through Self-Reflection",
2024:

1. Retrieve: decide whether to look anything up (`always_retrieve` skips this), then search.
2. Generate: from each passage d write the next segment y, a sentence.
3. Critique: f(y, d) = exp(mean log p(y)) + w_rel s_rel + w_sup s_sup + w_use s_use, where s_rel =
   p(Relevant), s_sup = p(Fully) + 0.5 p(Partially), s_use = sum_i w_i p(Utility = i) with w_i from
   -1 to 1, each over the sum of its group.
4. Keep the best `beam` answers, by the product of their segments' scores, and continue those that
   need more up to `depth` segments: 1 is the short form, 6 the long form for ASQA.

Steps 2 and 3 are the paper's model's, which judges what it writes by reflection tokens. The best
segments are the reader's notes; in the paper they are the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import ClassVar

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.events import Noted
from colligate.core.prompts import enclose
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.documents.tokens import estimate_tokens
from colligate.errors import WeightsUnavailable
from colligate.lab.baselines.encoders import TransformersModel
from colligate.lab.baselines.shared import LookupMethod, meter_passes, require_weights
from colligate.models import Role, Usage
from colligate.models.base import blunt
from colligate.readers.lookup import reserve_for_answer
from colligate.strategies.direct import Direct


@dataclass(frozen=True)
class SelfRAG(LookupMethod):
    """One sentence from each passage, scored by the model's own judgements; the best beam stays.

    The paper's `reflection` is selfrag/selfrag_llama2_7b. Something is looked up where the odds of
    it plus `bonus` exceed `threshold`: after each sentence, and with `always_retrieve` off before
    the first, without which the answer is given from memory and cites nothing.

    Attributes:
        k: passages of the search; each continues the answer
        depth: most sentences of the answer
        beam: answers that are kept after each sentence, the best
        relevance: weight of whether the passage is relevant
        support: weight of whether the passage supports the sentence
        utility: weight of whether the answer is useful
        always_retrieve: search without asking the model first whether it has to
        threshold: probability from which something is looked up
        bonus: added to that probability, so that more is looked up
        segment_tokens: most tokens of a sentence
        reflection: model with reflection tokens that writes and judges, a folder or a hub name;
            must be given
    """

    name: ClassVar[str] = "self-rag"
    LEAST: ClassVar[Mapping[str, float]] = dict.fromkeys(
        ("relevance", "support", "utility", "bonus"), -math.inf
    )

    k: int = 5  # the paper
    depth: int = 1
    beam: int = 2
    relevance: float = 1.0  # w_rel; weights of the released code
    support: float = 1.0  # w_sup
    utility: float = 0.5  # w_use
    always_retrieve: bool = True  # as in its long-form runs
    threshold: float = 0.2
    bonus: float = 0.0  # 0.2 in RDR2's Self-RAG*, which promotes going on
    segment_tokens: int = 100
    reflection: str | None = None

    async def answer(self, question: str, run: Run) -> Answer:
        """Retrieve if need be, write and criticise, read the best."""
        hint = "set reflection=selfrag/selfrag_llama2_7b, or a folder"
        name = require_weights(self.reflection, self.name, "model with reflection tokens", hint)
        model = get_reflective_model(name)
        if not self.always_retrieve and not await self._wants_retrieval(question, model, run):
            return await Direct(form=self.form).answer(question, run)
        found, best = self.look_up(run), _Beam()
        if passages := await found.search(question):
            with reserve_for_answer(run, lambda: passages):
                best = await self._search_beams(question, passages, model, run)
        # If no sentence was written, only the search is left to read.
        chosen = list(dict.fromkeys(best.passages)) or passages
        notes = enclose("log", best.text) if best.sentences else ""
        return await run.read(question, found.of(chosen), form=self.form, notes=notes)

    # 1. Retrieve

    async def _wants_retrieval(self, question: str, model: ReflectiveModel, run: Run) -> bool:
        """Return whether the odds of "retrieve" are high enough."""
        with meter_passes(model.name, run, usage=Usage(estimate_tokens(question))):
            odds = await model.run(model.wants_retrieval, question)
        run.emit(Noted(f"retrieval is worth it with odds of {odds:.2f}"))
        return odds + self.bonus > self.threshold

    # 2. and 4. Generate, and search for the best beam

    async def _search_beams(
        self, question: str, passages: Sequence[Passage], model: ReflectiveModel, run: Run
    ) -> _Beam:
        """Return the best of the longest answers; as released, a finished one does not compete."""
        beams = [_Beam()]
        for depth in range(self.depth):
            going = [b for b in beams if not depth or b.more + self.bonus > self.threshold]
            grown = await gather(
                self._grow(question, beam, passage, model, run)
                for beam in going
                for passage in passages
            )
            longer = dict.fromkeys(beam for beam in grown if len(beam.sentences) > depth)
            if not longer:
                break
            beams = sorted(longer, key=lambda beam: -beam.score)[: self.beam]
        return beams[0]

    async def _grow(
        self, question: str, beam: _Beam, passage: Passage, model: ReflectiveModel, run: Run
    ) -> _Beam:
        """Add a sentence from a passage; return the beam itself if it is complete."""
        made = await self._continue(question, beam, passage, model, run)
        sentence, score = made.text, self._score(made)
        if not sentence or sentence in beam.sentences:
            return beam
        if beam.sentences:  # two negative scores must not make a good one
            score = max(0.0, beam.score) * max(0.0, score)
        return _Beam((*beam.sentences, sentence), (*beam.passages, passage), score, made.more)

    # 3. Critique

    async def _continue(
        self, question: str, beam: _Beam, passage: Passage, model: ReflectiveModel, run: Run
    ) -> ReflectedText:
        """Return the next sentence from a passage, judged."""
        text = f"{passage.title}\n{passage.text.strip()}"
        most = estimate_tokens(question + text + beam.text) + self.segment_tokens
        async with run.tokens.hold(most):
            began = time.perf_counter()
            asked = (question, text, beam.text, self.segment_tokens)
            made = await model.run(model.continue_answer, *asked)
            seconds = time.perf_counter() - began
            usage = Usage(made.input_tokens, made.output_tokens)
            run.meter.scoring(Role.SCORER, model.name, passes=1, seconds=seconds, usage=usage)
        return made

    def _score(self, made: ReflectedText) -> float:
        """Return f(y, d)."""
        judged = self.relevance * made.relevant + self.support * made.supported
        return made.likely + judged + self.utility * made.useful


@dataclass(frozen=True)
class _Beam:
    """An answer so far: sentences, their passages, product of scores, odds of looking up `more`."""

    sentences: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    score: float = 0.0
    more: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


# The model that the paper trained. Prompt and arithmetic are those of the released code, and each
# judgement is the share of a token's probability among its kind, where the model writes such a
# token.

RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY = tuple(f"[Utility:{number}]" for number in range(1, 6))
SUPPORT_WEIGHTS = (1.0, 0.5, 0.0)
UTILITY_WEIGHTS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of the utilities 1 to 5, as in the paper."""
_ENDS = (*RETRIEVAL, "[Continue to Use Evidence]")
_PARAGRAPH = ("<paragraph>", "</paragraph>")
TOKENS = (*_ENDS, *RELEVANCE, *SUPPORT, *UTILITY, *_PARAGRAPH)
"""All the special tokens that such a model must have."""

_WINDOW = 4096  # of Llama 2


@dataclass(frozen=True)
class ReflectedText:
    """Text written after a passage, and the model's judgement of it.

    `likely` is the exponential of the mean log-probability, `relevant` and `supported` are in
    [0, 1], `useful` in [-1, 1]; a judgement that the model does not make is 0. `more` is the share
    of looking up or reading on among the tokens that end a segment; 0 if the answer ended.
    """

    text: str
    likely: float = 0.0
    relevant: float = 0.0
    supported: float = 0.0
    useful: float = 0.0
    more: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class ReflectiveModel(TransformersModel):
    """A model trained as Self-RAG's, by folder or hub name; ask it in its thread (`run`)."""

    auto_class = "AutoModelForCausalLM"
    dtype = "auto"

    @cached_property
    def ids_of(self) -> Mapping[str, int]:
        """The ids of the reflection tokens; WeightsUnavailable if the model does not have them."""
        vocabulary: Mapping[str, int] = self.tokenizer.get_vocab()
        if missing := [mark for mark in TOKENS if mark not in vocabulary]:
            what, why = f"{self.name} is not a Self-RAG model", f"it has no token {missing[0]}"
            raise WeightsUnavailable(what, why, "use selfrag/selfrag_llama2_7b")
        return {mark: vocabulary[mark] for mark in TOKENS}

    def wants_retrieval(self, question: str) -> float:
        """Return the share of [Retrieval] at the beginning of the answer, in [0, 1]."""
        [step] = self._write(self._encode_prompt(question, ""), 1)
        return _weigh(step.probabilities, RETRIEVAL, (1.0, 0.0))

    def continue_answer(self, question: str, passage: str, before: str, most: int) -> ReflectedText:
        """Write greedily, at most `most` tokens, after a passage and the answer so far."""
        ids, (opening, closing) = self._encode_prompt(question, before), _PARAGRAPH
        shown = self._encode(passage)[: max(0, self.limit(_WINDOW) - len(ids) - most - 3)]
        marks = self.ids_of[RETRIEVAL[0]], self.ids_of[opening], self.ids_of[closing]
        ids += [*marks[:2], *shown, marks[2]]
        steps = self._write(ids, most)
        words = [step.token for step in steps if step.token not in self.ids_of.values()]
        text = self.tokenizer.decode(words, skip_special_tokens=True)
        return judge_steps(str(text).strip(), steps, self.ids_of, len(ids))

    def _encode_prompt(self, question: str, before: str) -> list[int]:
        """Encode the prompt, up to where a passage or the rest of the answer begins."""
        text = f"### Instruction:\n{question.strip()}\n\n### Response:\n{before}"
        first = self.tokenizer.bos_token_id
        return [*([] if first is None else [first]), *self._encode(text)]

    def _encode(self, text: str) -> list[int]:
        """Encode text in which no token is one of the model's marks."""
        plain = blunt(self.clean(text), self.ids_of)  # some tokenizers do not call them special
        return list(self.tokenizer(plain, add_special_tokens=False)["input_ids"])

    def _write(self, ids: Sequence[int], most: int) -> list[ReflectionStep]:
        torch = import_module("torch")
        read = torch.tensor([ids], device=self.model.device)
        ends = [self.ids_of[mark] for mark in _ENDS] + [self.tokenizer.eos_token_id]
        made = self.model.generate(
            read,
            attention_mask=torch.ones_like(read),
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=ends[-1],
            output_logits=True,
            return_dict_in_generate=True,
        )
        steps = []
        for token, logits in zip(made.sequences[0, len(ids) :].tolist(), made.logits, strict=True):
            logprobs = logits[0].float().log_softmax(-1)
            odds = {mark: math.exp(float(logprobs[at])) for mark, at in self.ids_of.items()}
            steps.append(ReflectionStep(token, float(logprobs[token]), odds))
        return steps


get_reflective_model = lru_cache(maxsize=1)(ReflectiveModel)
"""Return the model of a folder or hub name, one for the whole process."""


@dataclass(frozen=True)
class ReflectionStep:
    """A written token, its log-probability, and the reflection tokens' probabilities there."""

    token: int
    logprob: float
    probabilities: Mapping[str, float]


def judge_steps(
    text: str, steps: Sequence[ReflectionStep], ids_of: Mapping[str, int], input_tokens: int = 0
) -> ReflectedText:
    """Compute the judgements of a text: relevance at its first token, others at their tokens."""

    def judge(
        steps: Sequence[ReflectionStep], kind: Sequence[str], weights: Sequence[float]
    ) -> float:
        """Weigh the shares of a kind of token where the first of that kind was written."""
        ids = {ids_of[mark] for mark in kind}
        first = next((step for step in steps if step.token in ids), None)
        return _weigh(first.probabilities, kind, weights) if first else 0.0

    mean = math.fsum(step.logprob for step in steps) / max(1, len(steps))
    return ReflectedText(
        text,
        math.exp(mean) if steps else 0.0,
        _weigh(steps[0].probabilities, RELEVANCE, (1.0, 0.0)) if steps else 0.0,
        judge(steps, SUPPORT, SUPPORT_WEIGHTS),
        judge(steps, UTILITY, UTILITY_WEIGHTS),
        judge(steps[-1:], _ENDS, (1.0, 0.0, 1.0)),
        input_tokens,
        len(steps),
    )


def _weigh(
    probabilities: Mapping[str, float], kind: Sequence[str], weights: Sequence[float]
) -> float:
    total = math.fsum(probabilities[mark] for mark in kind)
    weighted = math.fsum(probabilities[m] * w for m, w in zip(kind, weights, strict=True))
    return weighted / total if total else 0.0
