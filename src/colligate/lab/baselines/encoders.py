"""Small models of transformers for baselines and metrics, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import Threads
from colligate.errors import ServerFailed
from colligate.models.base import blunt, encodable
from colligate.models.hf.loading import (
    find_source,
    import_transformers,
    load_model,
    load_pretrained,
    load_tokenizer,
)

T = TypeVar("T")


class ThreadedModel:
    """A model of one of transformers' Auto classes, from a folder or by hub name.

    Weights are loaded at the first call, onto a GPU if there is one.
    """

    def __init__(self, name_or_path: str, auto_class: str) -> None:
        import_transformers()  # reports what is missing
        self.name = name_or_path
        self._source = find_source(name_or_path)
        self._auto_class = auto_class
        self._threads = Threads(name_or_path)
        self._loaded: LoadedModel | None = None

    async def run(self, work: Callable[[LoadedModel], T]) -> T:
        """Run some work with the loaded model in its thread."""
        return await self._threads.run(lambda: self._work(work))

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._loaded = None

    def _work(self, work: Callable[[LoadedModel], T]) -> T:
        if self._loaded is None:
            tokenizer = load_tokenizer(self._source)
            backend = tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = True
            self._loaded = LoadedModel(import_module("torch"), tokenizer, self._load_weights())
        with _report_failures(self.name), self._loaded.torch.inference_mode():
            return work(self._loaded)

    def _load_weights(self) -> Any:
        model = load_pretrained(getattr(import_transformers(), self._auto_class), self._source)
        device = "cuda" if import_module("torch").cuda.is_available() else "cpu"
        return model.to(device).eval()


@contextmanager
def _report_failures(name: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise ServerFailed(f"{name} could not compute", str(error).split("\n")[0][:300]) from error


@dataclass(frozen=True)
class LoadedModel:
    """A tokenizer and the model it belongs to."""

    torch: Any
    tokenizer: Any
    model: Any

    @property
    def device(self) -> Any:
        """The device of the model's weights."""
        return self.model.device

    def encode(self, text: str) -> Any:
        """Encode a literal text; the result has `ids` and `offsets`.

        Text that looks like a mark of the model ("[SEP]") is not one, and no marks are added.
        """
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    def limit_tokens(self, most: int) -> int:
        """Return how many tokens of a text are read at once, so that with marks they are `most`.

        Fewer if the model has fewer positions.
        """
        positions = getattr(self.model.config, "max_position_embeddings", None) or most
        before, after = self.find_marks()
        most = min(most, positions, self.tokenizer.model_max_length)
        return max(1, most - len(before) - len(after))

    def find_marks(self) -> tuple[list[int], list[int]]:
        """Return the ids of the marks that the model expects before and after a text."""
        whole = self.tokenizer.backend_tokenizer.encode("a")
        first = whole.special_tokens_mask.index(0)
        last = len(whole.ids) - whole.special_tokens_mask[::-1].index(0)
        return whole.ids[:first], whole.ids[last:]


# Dual encoders such as Contriever: the dot product of mean-pooled vectors is the relevance

_BATCH = 16


class DualEncoder(ThreadedModel):
    """One model for questions and texts; at most `window` tokens of a text are read."""

    def __init__(self, name_or_path: str, *, window: int = 256) -> None:
        super().__init__(name_or_path, "AutoModel")
        self._window = window

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row for each text, float32, not normalised."""
        return await self.run(lambda loaded: self._embed(texts, loaded))

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the dot product of the query and each text, in the given order."""
        if not texts:
            return []
        vectors = await self.embed([query, *texts])
        return [float(score) for score in vectors[1:] @ vectors[0]]

    def _embed(self, texts: Sequence[str], loaded: LoadedModel) -> NDArray[np.float32]:
        # Texts of similar length together: less padding is computed.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            vectors = self._embed_batch([encodable(texts[i]) for i in batch], loaded)
            rows.update(zip(batch, vectors, strict=True))
        return np.stack([rows[i] for i in range(len(texts))])

    def _embed_batch(self, texts: list[str], loaded: LoadedModel) -> NDArray[np.float32]:
        before, after = loaded.find_marks()
        limit = loaded.limit_tokens(self._window)
        rows = [[*before, *loaded.encode(text).ids[:limit], *after] for text in texts]
        longest = max(1, *map(len, rows))
        padding = loaded.tokenizer.pad_token_id or 0
        torch = loaded.torch
        ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        ids, mask = ids.to(loaded.device), mask.to(loaded.device)
        states = loaded.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        of_token = mask.unsqueeze(-1)
        mean = (states * of_token).sum(1) / of_token.sum(1).clamp(min=1)
        vectors: NDArray[np.float32] = mean.cpu().numpy()
        return vectors


get_dual_encoder = lru_cache(maxsize=2)(DualEncoder)
"""Return the encoder of this name, one for the whole process."""


# Token classifiers: the probability of one label for each token

TokenProbability = tuple[int, int, float]
"""A token's half-open range of characters, and its probability."""


class TokenClassifier(ThreadedModel):
    """A model with a head for token classification; it returns the probability of one label.

    A text longer than the model's window is read in pieces of at most `window` tokens, cut after
    a full stop or a line end.
    """

    def __init__(self, name_or_path: str, *, label: int = 1, window: int = 512) -> None:
        super().__init__(name_or_path, "AutoModelForTokenClassification")
        self._label = label
        self._window = window

    async def probabilities(self, texts: Sequence[str]) -> list[list[list[TokenProbability]]]:
        """Return the tokens of each text with the label's probability, piece by piece."""
        return await self.run(
            lambda loaded: [self._classify(encodable(text), loaded) for text in texts]
        )

    def _classify(self, text: str, loaded: LoadedModel) -> list[list[TokenProbability]]:
        encoding = loaded.encode(text)
        before, after = loaded.find_marks()
        pieces = []
        for start, stop in split_tokens(text, encoding.offsets, loaded.limit_tokens(self._window)):
            ids = [*before, *encoding.ids[start:stop], *after]
            batch = loaded.torch.tensor([ids], device=loaded.device)
            logits = loaded.model(input_ids=batch).logits[0, len(before) :]
            of_label = logits.float().softmax(-1)[: stop - start, self._label].tolist()
            tokens = zip(encoding.offsets[start:stop], of_label, strict=True)
            pieces.append([(a, b, p) for (a, b), p in tokens])
        return pieces


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
_WINDOW = 384
_STRIDE = 128
_ANSWER_TOKENS = 15
_QUESTION_WORDS = 64  # of a longer question the rest is not read

Logits = NDArray[np.float64]


class ExtractiveReader(ThreadedModel):
    """A model for extractive question answering, from a folder or by hub name."""

    def __init__(self, name_or_path: str) -> None:
        super().__init__(name_or_path, "AutoModelForQuestionAnswering")

    async def read(self, question: str, context: str) -> str:
        """Return the answer in the words of the context; empty if no answer is most likely."""
        if not context.strip():
            return ""
        return await self.run(lambda loaded: extract_answer(question, context, loaded))


def extract_answer(question: str, context: str, loaded: LoadedModel) -> str:
    """Read a context in overlapping windows and return the most likely answer, or ""."""
    tokenizer, torch = loaded.tokenizer, loaded.torch
    controls = tokenizer.all_special_tokens
    windows = tokenizer(
        blunt(encodable(" ".join(question.split()[:_QUESTION_WORDS])), controls),
        blunt(encodable(context), controls),
        truncation="only_second",
        max_length=_WINDOW,
        stride=_STRIDE,
        return_overflowing_tokens=True,
    )
    best, no_answer = (0.0, ""), 1.0
    for ids, encoding in zip(windows["input_ids"], windows.encodings, strict=True):
        logits = loaded.model(input_ids=torch.tensor([ids], device=loaded.device))
        span = find_best_span(
            logits.start_logits[0].double().cpu().numpy(),
            logits.end_logits[0].double().cpu().numpy(),
            [part == 1 for part in encoding.sequence_ids],
        )
        no_answer = min(no_answer, span.no_answer)
        if span.probability > best[0]:
            # Whole words, though the span is in tokens.
            words = encoding.token_to_word(span.start), encoding.token_to_word(span.end)
            first, last = (encoding.word_to_chars(word, 1) for word in words)
            best = span.probability, context[first[0] : last[1]]
    return best[1] if best[0] > no_answer else ""


@dataclass(frozen=True)
class AnswerSpan:
    """The best answer of a window: its first and last token, its probability and no answer's."""

    probability: float
    start: int
    end: int
    no_answer: float


def find_best_span(starts: Logits, ends: Logits, allowed: Sequence[bool]) -> AnswerSpan:
    """Find the most likely answer among allowed tokens, by logits [tokens] of start and end.

    Probabilities are over the allowed tokens and the first token, which means no answer.
    """
    among = np.array([True, *allowed[1:]])
    start, end = (_softmax(np.where(among, logits, -np.inf)) for logits in (starts, ends))
    no_answer = float(start[0] * end[0])
    start[0] = end[0] = 0.0
    spans = np.tril(np.triu(np.outer(start, end)), _ANSWER_TOKENS - 1)
    first, last = np.unravel_index(int(spans.argmax()), spans.shape)
    return AnswerSpan(float(spans[first, last]), int(first), int(last), no_answer)


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


# Encoder-decoder models such as T5


class Seq2Seq(ThreadedModel):
    """An encoder-decoder model by folder or hub name."""

    def __init__(self, name_or_path: str) -> None:
        super().__init__(name_or_path, "AutoModelForSeq2SeqLM")

    async def write(
        self, text: str, *, end: str = "", read_tokens: int = 512, max_tokens: int = 16
    ) -> str:
        """Write greedily after the beginning of a text and `end`.

        Both together have at most `read_tokens` tokens: a long text is cut so that `end` fits.
        """
        return await self.run(lambda loaded: _write(loaded, text, end, read_tokens, max_tokens))

    def _load_weights(self) -> Any:
        return load_model(self._source, kind=self._auto_class)


def _write(loaded: LoadedModel, text: str, end: str, read_tokens: int, max_tokens: int) -> str:
    tokenizer, model = loaded.tokenizer, loaded.model
    # A text never becomes a control token: "</s>" in it would end it.
    text, end = (blunt(encodable(each), tokenizer.all_special_tokens) for each in (text, end))
    prompt = f"{_cut_text(tokenizer, text, end, read_tokens)}{end}"
    read = tokenizer(prompt, truncation=True, max_length=read_tokens, return_tensors="pt")
    written = model.generate(
        input_ids=read["input_ids"].to(loaded.device),
        attention_mask=read["attention_mask"].to(loaded.device),
        max_new_tokens=max_tokens,
        do_sample=False,
    )
    answer: str = tokenizer.decode(written[0], skip_special_tokens=True)
    return answer.strip()


def _cut_text(tokenizer: Any, text: str, end: str, tokens: int) -> str:
    """Return the beginning of a text that leaves room for its end."""
    read = tokenizer(
        text,
        truncation=True,
        max_length=max(1, tokens - len(tokenizer(end)["input_ids"])),
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    offsets = read["offset_mapping"]
    return text[: offsets[-1][1]] if offsets else ""


get_seq2seq = lru_cache(maxsize=2)(Seq2Seq)
"""Return the model of this name, one for the whole process."""


# Features of whole texts


def compute_last_token_features(
    name: str, texts: Sequence[str], *, most: int
) -> NDArray[np.float64]:
    """Compute the last layer's state at each text's last token, [texts, width]. Blocks.

    Texts are cut after `most` tokens.
    """
    source = find_source(name)
    tokenizer = load_tokenizer(source)
    model = load_model(source, dtype="float32", kind="AutoModel")
    rows = []
    with import_module("torch").inference_mode():
        for text in texts:
            harmless = blunt(encodable(text), tokenizer.all_special_tokens)
            read = tokenizer(harmless, truncation=True, max_length=most, return_tensors="pt")
            state = model(**read.to(model.device)).last_hidden_state[0, -1]
            rows.append(state.float().cpu().numpy())
    return np.asarray(rows, np.float64)
