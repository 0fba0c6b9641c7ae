"""An encoder of transformers in a thread of its own: for models that read and do not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import Threads
from colligate.errors import ServerFailed
from colligate.models.base import blunt, encodable
from colligate.models.hf.loading import find, load_model, load_tokenizer, pretrained, transformers

T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    """A tokenizer and the model it belongs to, and the device it is on."""

    torch: Any
    tokenizer: Any
    model: Any

    @property
    def device(self) -> Any:
        """Where the model's weights are."""
        return self.model.device

    def tokens(self, text: str) -> Any:
        """The `ids` and `offsets` of a literal text, as `tokenizers` gives them.

        What is written like a mark of the model ("[SEP]") is none, and none is put around.
        """
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    def room(self, most: int) -> int:
        """How many tokens of a text are read at once, marks apart: `most` with them, or fewer.

        Fewer where the model has places for no more.
        """
        places = getattr(self.model.config, "max_position_embeddings", None) or most
        before, after = self.around()
        most = min(most, places, self.tokenizer.model_max_length)
        return max(1, most - len(before) - len(after))

    def around(self) -> tuple[list[int], list[int]]:
        """The ids of the marks that the model expects before and after a text."""
        whole = self.tokenizer.backend_tokenizer.encode("a")
        first = whole.special_tokens_mask.index(0)
        last = len(whole.ids) - whole.special_tokens_mask[::-1].index(0)
        return whole.ids[:first], whole.ids[last:]


class Encoder:
    """A model of one of transformers' Auto classes, from a folder or by hub name.

    Weights are loaded at the first call, onto a GPU if there is one.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such folder, or it holds no model.
    """

    def __init__(self, name_or_path: str, auto_class: str) -> None:
        transformers()  # or say what is missing
        self.name = name_or_path
        self._source = find(name_or_path)
        self._auto_class = auto_class
        self._threads = Threads(name_or_path)
        self._loaded: Loaded | None = None

    async def run(self, work: Callable[[Loaded], T]) -> T:
        """What some work with the loaded model gives; the event loop does not wait for it.

        Raises:
            WeightsUnavailable: the model cannot be loaded.
            ServerFailed: memory ran out, or torch failed otherwise.
        """
        return await self._threads.run(lambda: self._work(work))

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._threads.aclose()
        self._loaded = None

    def _work(self, work: Callable[[Loaded], T]) -> T:
        if self._loaded is None:
            self._loaded = self._load()
        with _told(self.name), self._loaded.torch.inference_mode():
            return work(self._loaded)

    def _load(self) -> Loaded:
        torch = import_module("torch")
        tokenizer = load_tokenizer(self._source)
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        model = pretrained(getattr(transformers(), self._auto_class), self._source)
        place = "cuda" if torch.cuda.is_available() else "cpu"
        return Loaded(torch, tokenizer, model.to(place).eval())


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise ServerFailed(f"{name} could not compute", str(error).split("\n")[0][:300]) from error


# What a model makes of whole texts: the state of the last layer at their last token.


def last_token_features(name: str, texts: Sequence[str], *, most: int) -> NDArray[np.float64]:
    """A row for each text, [texts, width]; texts are cut after `most` tokens. Blocks.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such model, or it cannot be loaded.
    """
    source = find(name)
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


# A dual encoder as Contriever is one: mean-pooled vectors whose dot product is the relevance.

_BATCH = 16


class DualEncoder:
    """One model for questions and texts; no more than `window` tokens of a text are read."""

    def __init__(self, name_or_path: str, *, window: int = 256) -> None:
        self._encoder = Encoder(name_or_path, "AutoModel")
        self._window = window

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, float32, as long as the model makes them."""
        return await self._encoder.run(lambda loaded: self._embed(texts, loaded))

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """The dot product of the query and each text, in the order given."""
        if not texts:
            return []
        vectors = await self.embed([query, *texts])
        return [float(score) for score in vectors[1:] @ vectors[0]]

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()

    def _embed(self, texts: Sequence[str], loaded: Loaded) -> NDArray[np.float32]:
        # Texts of like length together: less padding is computed.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            vectors = self._batch([encodable(texts[i]) for i in places], loaded)
            rows.update(zip(places, vectors, strict=True))
        return np.stack([rows[i] for i in range(len(texts))])

    def _batch(self, texts: list[str], loaded: Loaded) -> NDArray[np.float32]:
        before, after = loaded.around()
        room = loaded.room(self._window)
        rows = [[*before, *loaded.tokens(text).ids[:room], *after] for text in texts]
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


@lru_cache(maxsize=2)
def dual_encoder(name_or_path: str) -> DualEncoder:
    """The encoder of this name, the same one for the whole process: it loads once."""
    return DualEncoder(name_or_path)


# Encoder-decoder models (T5 and its like): a text in, a short text out. For the extra `local`.


@lru_cache(maxsize=2)
def seq2seq(name: str) -> Seq2Seq:
    """The model of a folder or hub name, the same one for the same name."""
    return Seq2Seq(name)


class Seq2Seq:
    """An encoder-decoder model by folder or hub name, loaded at its first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._threads = Threads(name)
        self._loaded: tuple[Any, Any] | None = None

    async def write(
        self, text: str, *, end: str = "", read_tokens: int = 512, max_tokens: int = 16
    ) -> str:
        """What it writes after `read_tokens` tokens, greedily: the beginning of a text, and `end`.

        So a question's last line is read however long the text before it is.

        Raises:
            MissingExtra: torch or transformers is not installed.
            UnknownModel, WeightsUnavailable: there is no such model, or it cannot be loaded.
        """
        return await self._threads.run(partial(self._write, text, end, read_tokens, max_tokens))

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._threads.aclose()
        self._loaded = None

    def _write(self, text: str, end: str, read_tokens: int, max_tokens: int) -> str:
        if self._loaded is None:
            source = find(self.name)
            self._loaded = load_tokenizer(source), load_model(source, kind="AutoModelForSeq2SeqLM")
        tokenizer, model = self._loaded
        # A text never becomes a control token: "</s>" in it would end it.
        text, end = (blunt(encodable(each), tokenizer.all_special_tokens) for each in (text, end))
        whole = f"{_beginning(tokenizer, text, end, read_tokens)}{end}"
        read = tokenizer(whole, truncation=True, max_length=read_tokens, return_tensors="pt")
        with import_module("torch").inference_mode():
            written = model.generate(
                input_ids=read["input_ids"].to(model.device),
                attention_mask=read["attention_mask"].to(model.device),
                max_new_tokens=max_tokens,
                do_sample=False,
            )
        said: str = tokenizer.decode(written[0], skip_special_tokens=True)
        return said.strip()


def _beginning(tokenizer: Any, text: str, end: str, tokens: int) -> str:
    """As much of a text as leaves room for its end."""
    room = max(1, tokens - len(tokenizer(end)["input_ids"]))
    read = tokenizer(
        text,
        truncation=True,
        max_length=room,
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    places = read["offset_mapping"]
    return text[: places[-1][1]] if places else ""


# A classifier of tokens: how surely each token of a text is of one kind.

Scored = tuple[int, int, float]
"""A token's half-open range of characters, and its probability."""

_STOPS = ".\n。！？"  # what a piece of text should end with


class TokenClassifier:
    """A model with a head for token classification.

    What is asked is the probability of the label `label`. A text longer than the model's window
    is read in pieces of at most `window` tokens, cut after a full stop or a line's end.
    """

    def __init__(self, name_or_path: str, *, label: int = 1, window: int = 512) -> None:
        self._encoder = Encoder(name_or_path, "AutoModelForTokenClassification")
        self._label = label
        self._window = window

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def probabilities(self, texts: Sequence[str]) -> list[list[list[Scored]]]:
        """The tokens of each text with the label's probability in [0, 1], piece by piece."""
        return await self._encoder.run(
            lambda loaded: [self._of(encodable(text), loaded) for text in texts]
        )

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()

    def _of(self, text: str, loaded: Loaded) -> list[list[Scored]]:
        encoding = loaded.tokens(text)
        before, after = loaded.around()
        scored = []
        for start, stop in pieces(text, encoding.offsets, loaded.room(self._window)):
            ids = [*before, *encoding.ids[start:stop], *after]
            given = loaded.torch.tensor([ids], device=loaded.device)
            logits = loaded.model(input_ids=given).logits[0, len(before) :]
            of_label = logits.float().softmax(-1)[: stop - start, self._label].tolist()
            tokens = zip(encoding.offsets[start:stop], of_label, strict=True)
            scored.append([(a, b, p) for (a, b), p in tokens])
        return scored


def pieces(text: str, offsets: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Runs of at most `most` tokens, each cut after the last token that ends a sentence."""
    found, start = [], 0
    while start < len(offsets):
        stop = min(start + most, len(offsets))
        if stop < len(offsets):
            ends = (i for i in range(stop, start, -1) if _ends(text, offsets, i - 1))
            stop = next(ends, stop)
        found.append((start, stop))
        start = stop
    return found


def _ends(text: str, offsets: Sequence[tuple[int, int]], token: int) -> bool:
    start, end = offsets[token]
    after = offsets[token + 1][0] if token + 1 < len(offsets) else len(text)
    # Line breaks are in no token of many tokenizers.
    return text[start:end].endswith(tuple(_STOPS)) or "\n" in text[end:after]


@lru_cache(maxsize=2)
def token_classifier(name_or_path: str) -> TokenClassifier:
    """The classifier of this name, the same one for the whole process: it loads once."""
    return TokenClassifier(name_or_path)


# Readers trained on SQuAD: the words of a text that answer a question, or none. Extra `local`.

# As in the question-answering pipeline of transformers 4.
_WINDOW = 384
_STRIDE = 128
_LONGEST = 15  # tokens of an answer
_QUESTION = 64  # words of a question that are read

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The best answer of a window: how likely, from which token to which, and no answer's odds."""

    score: float
    start: int
    end: int
    nothing: float


class ExtractiveReader:
    """A model for extractive question answering, from a folder or by hub name.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such model, or it cannot be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        self._encoder = Encoder(name_or_path, "AutoModelForQuestionAnswering")

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def read(self, question: str, context: str) -> str:
        """The answer in the words of the context; empty where no answer is the likeliest."""
        if not context.strip():
            return ""
        return await self._encoder.run(lambda loaded: _read(question, context, loaded))

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()


def best_span(starts: Scores, ends: Scores, allowed: Sequence[bool]) -> Found:
    """The likeliest answer among tokens of the context, by logits [tokens] of start and end.

    Probabilities are over the context and the first token, which stands for no answer.
    """
    among = np.array([True, *allowed[1:]])
    start, end = (
        _softmax(np.where(among, starts, -np.inf)),
        _softmax(np.where(among, ends, -np.inf)),
    )
    nothing = float(start[0] * end[0])
    start[0] = end[0] = 0.0
    spans = np.tril(np.triu(np.outer(start, end)), _LONGEST - 1)
    first, last = np.unravel_index(int(spans.argmax()), spans.shape)
    return Found(float(spans[first, last]), int(first), int(last), nothing)


def _read(question: str, context: str, loaded: Loaded) -> str:
    tokenizer, torch = loaded.tokenizer, loaded.torch
    controls = tokenizer.all_special_tokens
    given = tokenizer(
        blunt(encodable(" ".join(question.split()[:_QUESTION])), controls),
        blunt(encodable(context), controls),
        truncation="only_second",
        max_length=_WINDOW,
        stride=_STRIDE,
        return_overflowing_tokens=True,
    )
    best, nothing = (0.0, ""), 1.0
    for window, ids in enumerate(given["input_ids"]):
        logits = loaded.model(input_ids=torch.tensor([ids], device=loaded.device))
        encoding = given.encodings[window]
        found = best_span(
            logits.start_logits[0].double().cpu().numpy(),
            logits.end_logits[0].double().cpu().numpy(),
            [part == 1 for part in encoding.sequence_ids],
        )
        nothing = min(nothing, found.nothing)
        if found.score > best[0]:
            start, end = _whole_words(encoding, found)
            best = found.score, context[start:end]
    return best[1] if best[0] > nothing else ""


def _whole_words(encoding: Any, found: Found) -> tuple[int, int]:
    """Where the words that hold the answer's tokens begin and end in the context."""
    words = encoding.token_to_word(found.start), encoding.token_to_word(found.end)
    first, last = (encoding.word_to_chars(word, 1) for word in words)
    return int(first[0]), int(last[1])


def _softmax(logits: Scores) -> Scores:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())
