"""What `colligate doctor` looks at, one check after another."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from colligate.cli.chosen import Chosen, chosen_models, verdict, weights_of
from colligate.cli.failures import run
from colligate.core.strategy import list_strategies, load_strategy
from colligate.engine import DEFAULT_STRATEGY
from colligate.errors import ColligateError
from colligate.models import Capability, Role
from colligate.models.names import redact_name
from colligate.session import DEFAULT_EMBEDDER, ROLE_NAMES
from colligate.settings import FILE, Named, Settings, own_file

# What is compiled may be installed and still not run here.
_COMPILED = (
    *("numpy", "onnxruntime", "tokenizers", "xllamacpp", "qdrant_edge"),
    *("kreuzberg", "liteparse", "pypdfium2"),
)
_LOCAL = ("torch", "transformers", "sentence_transformers")
_SPARE_BYTES = 200_000_000


@dataclass(frozen=True)
class Check:
    """One thing that `ask` needs (`needed`) or can use: whether it is there, and a hint."""

    name: str
    ok: bool
    found: str
    hint: str = ""
    needed: bool = True

    def to_json(self) -> dict[str, Any]:
        """The check for programs."""
        return asdict(self)


def checks(config: Path | None, given: Mapping[str, str | None]) -> Iterator[Check]:
    """All checks, each made when it is asked for; `given` is what flags name."""
    yield _python()
    yield _packages()
    yield _extras()
    try:
        settings = Settings.load(config).override(**given)
    except ColligateError as error:
        yield _failed("settings", error, "fix the file, or name another with --config")
        return
    yield _settings(settings)
    chosen = run(chosen_models(settings, ask=True))
    for one in chosen.values():
        yield from _model(one, chosen)
    embedder = settings.embedder or DEFAULT_EMBEDDER
    yield _embedder(embedder)
    if settings.reranker is not None and settings.reranker.name != "none":
        yield _reranker(settings.reranker, chosen)
    yield _library(embedder.name, settings.library)
    yield _space([*(one.named.name for one in chosen.values()), embedder.name])
    for name in list_strategies():
        yield _strategy(name, chosen)


def _failed(name: str, error: ColligateError, hint: str = "") -> Check:
    found = f"{error.what}: {error.why}" if error.why else error.what
    return Check(name, False, found, error.hint or hint)


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.platform(terse=True)}"
    return Check("python", sys.version_info >= (3, 11), found, "install Python 3.11 or later")


def _packages() -> Check:
    broken = []
    for name in _COMPILED:
        try:
            import_module(name)
        except ImportError as error:
            broken.append(f"{name} ({error})")
    found = f"cannot load {', '.join(broken)}" if broken else f"colligate {_version('colligate')}"
    return Check("packages", not broken, found, "pip install --force-reinstall colligate")


def _extras() -> Check:
    missing = [name for name in _LOCAL if find_spec(name) is None]
    found = f"without {', '.join(missing)}" if missing else "installed"
    hint = "for models through torch: pip install 'colligate[local]'"
    return Check("extra 'local'", not missing, found, hint, needed=False)


def _settings(settings: Settings) -> Check:
    if settings.file is None:
        found = f"no {FILE} here or in {own_file().parent}: environment and flags alone"
    elif settings.trusted:
        found = f"{settings.file}, trusted"
    else:
        found = f"{settings.file}, found here: no key goes to addresses that it alone names"
    return Check("settings", True, found)


def _model(one: Chosen, chosen: Mapping[Role, Chosen]) -> Iterator[Check]:
    """Named by whom; its weights, if they are pinned ones; whether it opens, answers, and offers.

    Whatever keeps a model from being opened keeps `ask` from working; a server that does not
    answer does so only if it is the reader's.
    """
    what = ROLE_NAMES[one.role]
    if not one.named.name and one.problem is not None:
        yield _failed(what, one.problem, "name one with --model, or set COLLIGATE_MODEL")
        return
    same = next(o for o in chosen.values() if o.named.name == one.named.name)
    as_above = "" if same is one else f", which is the {ROLE_NAMES[same.role]} above"
    yield Check(what, True, f"{one.name} ({one.source}){as_above}")
    if as_above:
        return
    if weights := weights_of(one.named.name):
        yield (check := _weights(f"{what} weights", weights))
        if not check.ok:
            return
    if one.problem is None:
        offers = [c.value for c in Capability if c in one.offers]
        yield Check(f"{what} answers", True, f"it offers {', '.join(offers)}")
    else:
        needed = one.blocks or one.role is Role.READER
        yield replace(_failed(f"{what} answers", one.problem), needed=needed)


def _strategy(name: str, chosen: Mapping[Role, Chosen]) -> Check:
    said = verdict(load_strategy(name), chosen)
    missing = [n["capability"] for n in said["needs"] if not n["required"] and not n["met"]]
    found = "runs" + (f" without {', '.join(missing)}" if missing else "")
    if not said["runs"]:
        # What is amiss with a model has its hint above.
        above = {str(one.problem): one.problem.what for one in chosen.values() if one.problem}
        found = f"cannot run: {above.get(said['why_not'], said['why_not'])}"
    return Check(f"strategy {name}", bool(said["runs"]), found, needed=name == DEFAULT_STRATEGY)


def _weights(name: str, weights: str) -> Check:
    from colligate.models.weights import PINNED, find_weights

    files = find_weights(weights)
    size = f"{PINNED[weights].size / 1e6:,.0f} MB"
    found = f"{weights} in {next(iter(files.values())).parent}" if files else f"{weights}, {size}"
    return Check(name, files is not None, found, f"colligate models pull {weights}")


def _embedder(named: Named) -> Check:
    if weights := weights_of(named.name):
        return _weights("embedder", weights)
    from colligate.models.names import open_embedder

    try:
        run(open_embedder(named.name, with_key=named.with_key).aclose())
    except ColligateError as error:
        return _failed("embedder", error)
    return Check("embedder", True, _named(named, "--embedder"))


def _reranker(named: Named, chosen: Mapping[Role, Chosen]) -> Check:
    from colligate.models.names import open_reranker

    scorer = chosen.get(Role.SCORER, chosen[Role.READER])
    try:
        if named.name == "likelihood":
            if Capability.LIKELIHOOD not in scorer.offers:
                why = f"{scorer.name} gives no likelihoods"
                raise ColligateError("it needs a scorer that does", why, "name another --scorer")
        elif named.name != "embedding":
            run(open_reranker(named.name, with_key=named.with_key).aclose())
    except ColligateError as error:
        return _failed("reranker", error)
    return Check("reranker", True, _named(named, "--reranker"))


def _named(named: Named, flag: str) -> str:
    return f"{redact_name(named.name)} ({named.source or flag})"


def _library(embedder: str, named: Named | None) -> Check:
    from colligate.library.library import AsyncLibrary

    async def look() -> str:
        async with AsyncLibrary(named.name if named else None, embedder=embedder) as library:
            count = len(await library.documents())
            if library.path.exists():
                await _take_lock(library.path)
                return f"{library.path}, {count:,} documents"
            nearest = next(p for p in library.path.absolute().parents if p.exists())
            if not os.access(nearest, os.W_OK):
                raise ColligateError(f"{library.path} cannot be made", f"{nearest} is read-only")
            return f"{library.path}, not made yet"

    try:
        return Check("library", True, run(look()))
    except ColligateError as error:
        return _failed("library", error, "name another folder with --library")


async def _take_lock(folder: Path) -> None:
    from colligate.library.lock import LibraryLock

    lock = LibraryLock(folder)
    await lock.acquire()
    lock.release()


def _space(names: list[str]) -> Check:
    from colligate.models.weights import PINNED, find_weights, home

    wanted = {weights_of(name) for name in names}
    missing = sum(PINNED[name].size for name in wanted if name and find_weights(name) is None)
    place = home()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    needed = missing + _SPARE_BYTES
    found = f"{free / 1e9:,.1f} GB free in {place}"
    hint = f"free {(needed - free) / 1e6:,.0f} MB, or set COLLIGATE_HOME elsewhere"
    return Check("disk space", free >= needed, found, hint)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
