"""Choose how many threads compute a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from colligate.models.llama.api import Context

_BUSY = 0.85  # of the processor time that the threads could have had
_LEAST_SECONDS = 0.01  # a shorter time tells nothing
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds until all threads are tried again


class ThreadCount:
    """Chooses how many threads compute: all, or one while other processes want the processor.

    llama.cpp's threads wait for each other after each of a thousand operations, and a thread that
    lost its core to another process keeps all waiting: two threads on a busy machine can be twenty
    times slower than one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By time.perf_counter: time.monotonic stands still for 16 ms on Windows before Python 3.13.
        self._alone_until = -math.inf
        self._pause = _FIRST_PAUSE

    def decode(
        self,
        context: Context,
        tokens: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        outputs: Sequence[bool],
    ) -> bool:
        """Compute a batch, see `Context.decode`, and learn from its time."""
        start, used = time.perf_counter(), time.process_time()
        threads = self._most if start >= self._alone_until else 1
        context.use_threads(threads)
        done = context.decode(tokens, positions, slots, outputs)
        end = time.perf_counter()
        share = (time.process_time() - used) / (end - start) / threads
        if threads > 1:
            if share < _BUSY and end - start > _LEAST_SECONDS:
                self._alone_until = end + self._pause
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            else:
                self._pause = _FIRST_PAUSE
        return done
