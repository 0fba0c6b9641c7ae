"""How long a context a model in process is given."""

from __future__ import annotations

import os

_LEAST = 2048


def window(
    trained: int | None, kv_bytes_per_token: int | None, *, most: int, parallel: int = 1
) -> int:
    """Tokens one call may use: what the model was trained with, at most `most`.

    It is halved, down to 2,048, until the keys and values of `parallel` calls fit a quarter of the
    machine's memory.
    """
    context = min(trained or most, most)
    memory = _memory_bytes()
    if memory is not None and kv_bytes_per_token is not None:
        while context > _LEAST and context * parallel * kv_bytes_per_token > memory / 4:
            context //= 2
    return context


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Not a POSIX system.
        return None
