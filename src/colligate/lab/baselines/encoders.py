"""Small models of transformers for baselines and metrics, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import Threads
from colligate.errors import ServerFailed
from colligate.models.base import blunt, encodable
from colligate.models.hf.loading import find_source, import_transformers, load_model, load_tokenizer

T = TypeVar("T")


class TransformersModel:
    """A model of one of transformers' Auto classes, by folder or hub name; loaded at first use."""

    auto_class: ClassVar[str] = "AutoModel"
    dtype: ClassVar[str] = "float32"

    def __init__(self, name: str) -> None:
        import_transformers()  # reports what is missing
        self.name = name
        self._source = find_source(name)
        self._threads = Threads(name)

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self._source)

    @cached_property
    def model(self) -> Any:
        return load_model(self._source, kind=self.auto_class, dtype=self.dtype)

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Run work that uses tokenizer and model in their thread."""
        return await self._threads.run(lambda: self._compute(work, *given))

    def _compute(self, work: Callable[..., T], *given: Any) -> T:
        try:
            with import_module("torch").inference_mode():
                return work(*given)
        except (RuntimeError, MemoryError) as error:
            why = str(error).split("\n")[0][:300]
            raise ServerFailed(f"{self.name} could not compute", why) from error

    async def aclose(self) -> None:
        await self._threads.aclose()

    def tokenize(self, text: str, window: int, **options: Any) -> Any:
        """Return a text's first tokens as tensors: with marks at most `window`, or what fits."""
        return self.tokenizer(
            self.clean(text),
            truncation=True,
            max_length=self.limit(window),
            return_tensors="pt",
            **options,
        )

    def clean(self, text: str) -> str:
        """Return a text that no part of is a mark of the model, such as "[SEP]"."""
        return blunt(encodable(text), self.tokenizer.all_special_tokens)

    def limit(self, window: int) -> int:
        """Return how many tokens are read at once: fewer if the model has fewer positions."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or window
        return int(min(window, positions, self.tokenizer.model_max_length))


class DualEncoder(TransformersModel):
    """One model for questions and texts, such as Contriever: a text is the mean of its tokens."""

    window: ClassVar[int] = 256

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row for each text, float32, not normalised."""
        return await self.run(lambda: np.stack([self._embed(text) for text in texts]))

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the dot product of the query and each text, in the given order."""
        if not texts:
            return []
        vectors = await self.embed([query, *texts])
        return [float(score) for score in vectors[1:] @ vectors[0]]

    def _embed(self, text: str) -> NDArray[np.float32]:
        read = self.tokenize(text, self.window).to(self.model.device)
        mean: NDArray[np.float32] = self.model(**read).last_hidden_state[0].mean(0).cpu().numpy()
        return mean


get_dual_encoder = lru_cache(maxsize=2)(DualEncoder)
"""Return the encoder of this name, one for the whole process."""


TokenProbability = tuple[int, int, float]
"""A token's half-open range of characters, and the probability of the label 1."""


class TokenClassifier(TransformersModel):
    """A model with a head for token classification; a long text is read in pieces of sentences."""

    auto_class = "AutoModelForTokenClassification"
    window: ClassVar[int] = 512

    async def probabilities(self, texts: Sequence[str]) -> list[list[list[TokenProbability]]]:
        """Return the tokens of each text with the label's probability, piece by piece."""
        return await self.run(lambda: [self._classify(self.clean(text)) for text in texts])

    def _classify(self, text: str) -> list[list[TokenProbability]]:
        also = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        read = self.tokenizer(text, verbose=False, **also)
        own = [at for at, mark in enumerate(read["special_tokens_mask"]) if not mark]
        if not own:
            return []
        # A piece has the ids of the whole text: tokenised alone, half a word has other tokens.
        ids, offsets = read["input_ids"], read["offset_mapping"][own[0] : own[-1] + 1]
        before, ids, after = ids[: own[0]], ids[own[0] : own[-1] + 1], ids[own[-1] + 1 :]
        most = max(1, self.limit(self.window) - len(before) - len(after))
        return [
            self._classify_piece(before, ids[start:stop], after, offsets[start:stop])
            for start, stop in split_tokens(text, offsets, most)
        ]

    def _classify_piece(
        self, before: list[int], ids: list[int], after: list[int], offsets: list[tuple[int, int]]
    ) -> list[TokenProbability]:
        batch = import_module("torch").tensor([[*before, *ids, *after]], device=self.model.device)
        logits = self.model(input_ids=batch).logits[0, len(before) : len(before) + len(ids)]
        odds = logits.softmax(-1)[:, 1].tolist()
        return [(start, end, p) for (start, end), p in zip(offsets, odds, strict=True)]


def split_tokens(text: str, offsets: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Split tokens into pieces of at most `most`, each cut after the last end of a sentence."""
    pieces, start = [], 0
    while start < len(offsets):
        stop = min(start + most, len(offsets))
        if stop < len(offsets):
            ends = (i for i in range(stop, start, -1) if _ends_sentence(text, offsets, i - 1))
            stop = next(ends, stop)
        pieces.append((start, stop))
        start = stop
    return pieces


def _ends_sentence(text: str, offsets: Sequence[tuple[int, int]], token: int) -> bool:
    start, end = offsets[token]
    after = offsets[token + 1][0] if token + 1 < len(offsets) else len(text)
    # In many tokenizers no token holds line breaks.
    return text[start:end].endswith(tuple(".\n。！？")) or "\n" in text[end:after]


get_token_classifier = lru_cache(maxsize=2)(TokenClassifier)
"""Return the classifier of this name, one for the whole process."""


# Readers trained on SQuAD: the words of a text that answer a question, if any

# The defaults of the question-answering pipeline of transformers 4, in tokens.
_WINDOW, _STRIDE, _ANSWER_TOKENS = 384, 128, 15
_QUESTION_WORDS = 64  # of a longer question the rest is not read


class ExtractiveReader(TransformersModel):
    """A model for extractive question answering."""

    auto_class = "AutoModelForQuestionAnswering"

    async def read(self, question: str, context: str) -> str:
        """Return the answer in the words of the context; empty if no answer is most likely."""
        if not context.strip():
            return ""
        texts = self.clean(question), self.clean(context)
        return await self.run(lambda: extract_answer(*texts, self.tokenizer, self.model))


def extract_answer(question: str, context: str, tokenizer: Any, model: Any) -> str:
    """Read a context in overlapping windows and return the most likely answer, or ""."""
    windows = tokenizer(
        " ".join(question.split()[:_QUESTION_WORDS]),
        context,
        truncation="only_second",
        max_length=_WINDOW,
        stride=_STRIDE,
        return_overflowing_tokens=True,
    )
    torch = import_module("torch")
    best, no_answer = (0.0, ""), 1.0
    for ids, encoding in zip(windows["input_ids"], windows.encodings, strict=True):
        logits = model(input_ids=torch.tensor([ids], device=model.device))
        allowed = torch.tensor([part == 1 for part in encoding.sequence_ids])
        starts, ends = (each[0].double().cpu() for each in (logits.start_logits, logits.end_logits))
        odds, first, last, none = find_best_span(starts, ends, allowed)
        no_answer = min(no_answer, none)
        if odds > best[0]:
            # Whole words, though the span is in tokens.
            words = encoding.token_to_word(first), encoding.token_to_word(last)
            begin, end = (encoding.word_to_chars(word, 1) for word in words)
            best = odds, context[begin[0] : end[1]]
    return best[1] if best[0] > no_answer else ""


def find_best_span(starts: Any, ends: Any, allowed: Any) -> tuple[float, int, int, float]:
    """Return the likeliest answer of a window: its probability, first and last token, no answer's.

    `starts` and `ends` are logits [tokens], `allowed` tells which tokens an answer may have.
    Probabilities are over these and the first token, which means no answer.
    """
    out = ~allowed
    out[0] = False
    start, end = (logits.masked_fill(out, float("-inf")).softmax(-1) for logits in (starts, ends))
    no_answer = float(start[0] * end[0])
    start[0] = end[0] = 0.0
    spans = start.outer(end).triu().tril(_ANSWER_TOKENS - 1)
    first, last = divmod(int(spans.argmax()), len(ends))
    return float(spans[first, last]), first, last, no_answer


class Seq2Seq(TransformersModel):
    """An encoder-decoder model such as T5."""

    auto_class = "AutoModelForSeq2SeqLM"
    dtype = "auto"

    async def write(
        self, text: str, *, end: str = "", read_tokens: int = 512, max_tokens: int = 16
    ) -> str:
        """Write greedily after a text, cut so that it fits with `end`, and `end`."""
        return await self.run(
            self._write, self.clean(text), self.clean(end), read_tokens, max_tokens
        )

    def _write(self, text: str, end: str, read_tokens: int, max_tokens: int) -> str:
        most = max(1, read_tokens - len(self.tokenizer(end)["input_ids"]))
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        offsets = self.tokenizer(text, **options)["offset_mapping"][:most]
        begun = text[: offsets[-1][1]] if offsets else ""
        prompt = self.tokenizer(
            begun + end, truncation=True, max_length=read_tokens, return_tensors="pt"
        ).to(self.model.device)
        written = self.model.generate(
            input_ids=prompt["input_ids"],
            attention_mask=prompt["attention_mask"],
            max_new_tokens=max_tokens,
            do_sample=False,
        )
        answer: str = self.tokenizer.decode(written[0], skip_special_tokens=True)
        return answer.strip()


get_seq2seq = lru_cache(maxsize=2)(Seq2Seq)
"""Return the model of this name, one for the whole process."""


def compute_last_token_features(
    name: str, texts: Sequence[str], *, most: int
) -> NDArray[np.float64]:
    """Return the last layer's state at each text's last token of `most`, [texts, width]. Blocks."""
    loaded = TransformersModel(name)
    with import_module("torch").inference_mode():
        read = (loaded.tokenize(text, most).to(loaded.model.device) for text in texts)
        rows = [loaded.model(**each).last_hidden_state[0, -1].cpu().numpy() for each in read]
    return np.asarray(rows, np.float64)
