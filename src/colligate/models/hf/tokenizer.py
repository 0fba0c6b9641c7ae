"""A tokenizer of transformers, as prompts use it."""

from __future__ import annotations

from threading import Lock
from typing import Any


class HFTokenizer:
    """A fast tokenizer and its chat template, a `PromptTokenizer`. Several threads may use it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()  # encoding literal text changes a setting of the tokenizer meanwhile
        added = tokenizer.added_tokens_decoder.values()
        self.controls = frozenset(token.content for token in added if token.special)
        begun = tokenizer("", add_special_tokens=True).input_ids
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.beginning: list[int] = [i for i in begun[:1] if i == bos]
        self.first: int = eos if bos is None else bos

    @property
    def has_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def apply_template(self, turns: list[dict[str, str]], *, answer: bool, think: bool) -> str:
        options = {} if think else {"enable_thinking": False}
        rendered: str = self._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=answer, **options
        )
        return rendered

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(self._encode(text, special).ids)

    def spans(self, text: str, *, special: bool) -> list[tuple[int, int]]:
        return list(self._encode(text, special).offsets)

    def _encode(self, text: str, special: bool) -> Any:
        backend = self._tokenizer.backend_tokenizer
        with self._lock:
            backend.encode_special_tokens = not special
            try:
                return backend.encode(text, add_special_tokens=False)
            finally:
                backend.encode_special_tokens = False
