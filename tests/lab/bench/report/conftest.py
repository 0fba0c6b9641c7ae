from collections.abc import Callable
from pathlib import Path

import pytest

from support.bench import MadeRun


@pytest.fixture
def made_run(tmp_path: Path) -> Callable[..., MadeRun]:
    """Makes a run in a fresh folder; its arguments are `MadeRun`'s."""
    return lambda **changes: MadeRun(tmp_path / "run", **changes)
