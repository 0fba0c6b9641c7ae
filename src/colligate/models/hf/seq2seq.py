"""Encoder-decoder models (T5 and its like): a text in, a short text out. For the extra `local`."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from colligate.models.hf.loading import find, load_model, load_tokenizer
from colligate.models.text import blunt, encodable
from colligate.models.threads import Threads


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
