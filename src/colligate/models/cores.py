"""How many cores there are to compute on, and how threads wait on them."""

from __future__ import annotations

import os
from pathlib import Path


def physical_cores() -> int:
    """Cores this process may use; two hardware threads of one core do not compute faster."""
    try:
        usable = os.sched_getaffinity(0)
        topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        return len({Path(topology.format(cpu)).read_text() for cpu in usable})
    except (AttributeError, OSError):  # Not Linux, or a container without /sys.
        return os.cpu_count() or 1


def wait_without_spinning() -> None:
    """Tell OpenMP's threads not to spin while they wait; before their library is loaded.

    Beside another busy process spinning costs ten times the work. This is what libgomp does
    itself when it sees more threads than cores.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
