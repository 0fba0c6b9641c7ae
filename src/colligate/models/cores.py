"""How many cores there are to compute on."""

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
