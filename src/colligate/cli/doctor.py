"""`colligate doctor`: what works here, and how to fix the rest."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import print_json, print_result, to_one_line
from colligate.errors import ColligateError, find_installer

if TYPE_CHECKING:
    from colligate.cli.roles import RoleModel
    from colligate.models import Capability, Embedder, Reranker, Role, Verifier
    from colligate.settings import Named, Settings

app = typer.Typer(add_completion=False)

# Compiled packages may be installed and still not run here.
_COMPILED = (
    *("numpy", "onnxruntime", "tokenizers", "py_rust_stemmers"),
    *("html_to_markdown", "liteparse", "pypdfium2"),
)
_LOCAL = ("torch", "transformers", "sentence_transformers")
_PULL = "the first question fetches it, or now: colligate models pull {}"
_STATES = {
    (True, True): ("ok", "green"),
    (True, False): ("ok", "green"),
    (False, True): ("missing", "red"),
    (False, False): ("optional", "dim"),
}


@command(app)
async def doctor_command(
    *,
    models: options.ModelOptions,
    judge: options.Judge = None,
    library: options.LibraryFolder = None,
    as_json: options.AsJson = False,
) -> int:
    """Check that `colligate ask` works here, and show how to fix what does not.

    Endpoints are asked, by a call of one token, what they offer; then each strategy is checked
    against the models. Exit status: 0 `ask` works with its default strategy, 1 something that it
    needs is missing.
    """
    given = {
        **models.names(),
        "judge": judge,
        "library": None if library is None else str(library),
    }
    done: list[Check] = []
    async for check in run_checks(models, given):
        done.append(check)
        if not as_json:
            print_result(_format_check(check))
    works = all(check.ok for check in done if check.needed)
    if as_json:
        print_json({"works": works, "checks": [asdict(check) for check in done]})
    return ANSWERED if works else FAULT


@dataclass(frozen=True)
class Check:
    """The result of a check: what was found, and how to fix it; `needed`: `ask` needs it."""

    name: str
    ok: bool
    found: str
    hint: str = ""
    needed: bool = True


def _format_check(check: Check) -> Table:
    state, style = _STATES[check.ok, check.needed]
    found = f"{check.name}: {to_one_line(check.found)}"
    if check.hint and not check.ok:
        found += f"; {to_one_line(check.hint)}"
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(min_width=8)
    line.add_column(overflow="fold")
    line.add_row(Text(state, style), Text(found))
    return line


async def run_checks(
    models: options.ModelOptions, given: Mapping[str, str | None]
) -> AsyncIterator[Check]:
    """Make the checks one after another and yield each; `given` is what options name."""
    from colligate.cli.roles import find_models
    from colligate.core.strategy import list_strategies
    from colligate.engine import DEFAULT_STRATEGY
    from colligate.session import DEFAULT_EMBEDDER

    yield _check_python()
    yield _check_packages()
    yield _check_extras()
    try:
        settings = models.load_settings().override(**given)
    except ColligateError as error:
        yield _fail("settings", error, "fix the file, or give another with --config")
        return
    yield _check_settings(settings)
    if settings.pdf is not None:
        yield _check_pdf_reader(settings.pdf.name)
    found = await find_models(settings, ask=True)
    for model in found.values():
        for check in _check_model(model, found):
            yield check
    yield _check_llama([model.named.name for model in found.values()])
    embedder = settings.embedder or DEFAULT_EMBEDDER
    yield await _check_embedder(embedder)
    if settings.reranker is not None and settings.reranker.name != "none":
        yield await _check_reranker(settings.reranker, found)
    if settings.check is not None and settings.check.name not in ("none", "model"):
        yield await _test_check(settings.check, found)
    yield await _check_library(embedder.name, settings.library)
    blocked = next((one.problem for one in found.values() if one.blocks and one.problem), None)
    for name in [DEFAULT_STRATEGY] if blocked else list_strategies():
        yield _check_strategy(name, found)
    if blocked:
        yield Check("other strategies", False, f"cannot run: {blocked.what}", needed=False)


def _fail(name: str, error: ColligateError, hint: str = "") -> Check:
    found = f"{error.what}: {error.why}" if error.why else error.what
    return Check(name, False, found, error.hint or hint)


def _check_python() -> Check:
    found = f"{platform.python_version()} on {platform.platform(terse=True)}"
    return Check("python", sys.version_info >= (3, 11), found, "install Python 3.11 or later")


def _check_packages() -> Check:
    broken = []
    for name in _COMPILED:
        try:
            import_module(name)
        except ImportError as error:
            broken.append(f"{name} ({error})")
    try:
        installed = version("colligate")
    except PackageNotFoundError:
        installed = "(not installed as a package)"
    found = f"cannot load {', '.join(broken)}" if broken else f"colligate {installed}"
    return Check("packages", not broken, found, "install colligate again, as its README says")


def _check_extras() -> Check:
    missing = [name for name in _LOCAL if find_spec(name) is None]
    found = f"without {', '.join(missing)}" if missing else "installed"
    hint = f"for models through torch: {find_installer()} 'colligate[local]'"
    return Check("extra 'local'", not missing, found, hint, needed=False)


def _check_settings(settings: Settings) -> Check:
    from colligate.settings import FILE, own_file

    if settings.file is None:
        found = f"no {FILE} here or in {own_file().parent}: only environment and options count"
    elif settings.trusted:
        found = f"{settings.file}, trusted"
    else:
        found = f"{settings.file}, found here: no key is sent to addresses that only it names"
    return Check("settings", True, found)


def _check_pdf_reader(name: str) -> Check:
    from colligate.documents.reading.pdf.docling import require_reader

    try:
        require_reader(name)
    except ColligateError as error:
        return _fail("PDF reader", error)
    return Check("PDF reader", True, name)


def _check_model(model: RoleModel, models: Mapping[Role, RoleModel]) -> Iterator[Check]:
    """Yield what named the model, its weights if they are pinned, and what it offers.

    A model that cannot be opened keeps `ask` from working; a server that does not answer does so
    only if it is the reader's.
    """
    from colligate.cli.roles import find_pinned
    from colligate.models import Capability, Role
    from colligate.session import ROLE_NAMES

    what = ROLE_NAMES[model.role]
    if not model.named.name and model.problem is not None:
        yield _fail(what, model.problem, "give one with --model, or set COLLIGATE_MODEL")
        return
    same = next(each for each in models.values() if each.named.name == model.named.name)
    as_above = "" if same is model else f", which is the {ROLE_NAMES[same.role]} above"
    yield Check(what, True, f"{model.name} ({model.source}){as_above}")
    if as_above:
        return
    if weights := find_pinned(model.named.name):
        yield (check := _check_weights(f"{what} weights", weights))
        if not check.ok:
            return
    if model.problem is None:
        offers = [c.value for c in Capability if c in model.offers]
        yield Check(f"{what} answers", True, f"it offers {', '.join(offers)}")
    else:
        needed = model.blocks or model.role is Role.READER
        yield replace(_fail(f"{what} answers", model.problem), needed=needed)


def _check_weights(name: str, weights: str) -> Check:
    from colligate.models.weights import PINNED, find_weights

    files = find_weights(weights)
    size = f"{PINNED[weights].size / 1e6:,.0f} MB"
    found = f"{weights} in {next(iter(files.values())).parent}" if files else f"{weights}, {size}"
    return Check(name, files is not None, found, _PULL.format(weights))


def _check_llama(models: list[str]) -> Check:
    """Check the libraries of llama.cpp, which only `bundled` and `gguf:` need."""
    from colligate.cli.roles import runs_on_llama
    from colligate.models.llama.api import list_devices
    from colligate.models.llama.libraries import LIBRARY, VERSION, find_libraries

    needed = any(runs_on_llama(name) for name in models)
    try:
        folder = find_libraries()
        if folder is None:
            hint = _PULL.format(LIBRARY)
            return Check(LIBRARY, False, f"{VERSION} is not on this machine", hint, needed)
        devices = ", ".join(list_devices(folder))
    except ColligateError as error:
        return replace(_fail(LIBRARY, error), needed=needed)
    return Check(LIBRARY, True, f"{VERSION} in {folder}, on {devices}")


async def _check_embedder(named: Named) -> Check:
    from colligate.cli.roles import find_pinned
    from colligate.models.names import open_embedder

    if weights := find_pinned(named.name):
        return _check_weights("embedder", weights)
    return await _check_opening(
        "embedder", named, lambda: open_embedder(named.name, with_key=named.with_key)
    )


async def _check_reranker(named: Named, models: Mapping[Role, RoleModel]) -> Check:
    from colligate.models import Capability, Role
    from colligate.models.names import open_reranker

    if named.name == "likelihood":
        scorer = models.get(Role.SCORER, models[Role.READER])
        return _check_offer("reranker", named, scorer, Capability.LIKELIHOOD, "--scorer")
    if named.name == "embedding":
        return Check("reranker", True, _describe_name(named, "--reranker"))
    return await _check_opening(
        "reranker", named, lambda: open_reranker(named.name, with_key=named.with_key)
    )


async def _test_check(named: Named, models: Mapping[Role, RoleModel]) -> Check:
    from colligate.models import Capability, Role
    from colligate.models.names import open_head

    if named.name == "odds":
        return _check_offer("check", named, models[Role.READER], Capability.LABELS, "--model")
    return await _check_opening("check", named, lambda: open_head(named.name))


def _check_offer(
    what: str, named: Named, model: RoleModel, capability: Capability, flag: str
) -> Check:
    if capability in model.offers:
        return Check(what, True, _describe_name(named, f"--{what}"))
    found = f"{named.name} needs {capability.value}, which {model.name} does not give"
    return Check(what, False, found, f"give another {flag}")


async def _check_opening(
    what: str, named: Named, opening: Callable[[], Embedder | Reranker | Verifier]
) -> Check:
    try:
        await (await asyncio.to_thread(opening)).aclose()
    except ColligateError as error:
        return _fail(what, error)
    return Check(what, True, _describe_name(named, f"--{what}"))


def _describe_name(named: Named, flag: str) -> str:
    from colligate.models.names import redact_name

    return f"{redact_name(named.name)} ({named.source or flag})"


async def _check_library(embedder: str, named: Named | None) -> Check:
    from colligate.library.library import AsyncLibrary

    try:
        async with AsyncLibrary(named.name if named else None, embedder=embedder) as library:
            count = len(await library.documents())
            if library.path.exists():
                found = f"{library.uri}, {count:,} documents"
                if not os.access(library.path, os.W_OK):
                    found += ", read-only"
                return Check("library", True, found)
            parent = next(p for p in library.path.absolute().parents if p.exists())
            if not os.access(parent, os.W_OK):
                raise ColligateError(f"{library.path} cannot be made", f"{parent} is read-only")
            return Check("library", True, f"{library.path}, not made yet")
    except ColligateError as error:
        return _fail("library", error, "give another folder with --library")


def _check_strategy(name: str, models: Mapping[Role, RoleModel]) -> Check:
    from colligate.cli.roles import check_strategy
    from colligate.core.strategy import load_strategy
    from colligate.engine import DEFAULT_STRATEGY

    row = check_strategy(load_strategy(name), models)
    missing = [n["capability"] for n in row["needs"] if not n["required"] and not n["met"]]
    found = "runs" + (f" without {', '.join(missing)}" if missing else "")
    if not row["runs"]:
        # The hint for a model's problem is shown above.
        above = {str(one.problem): one.problem.what for one in models.values() if one.problem}
        found = f"cannot run: {above.get(row['why_not'], row['why_not'])}"
    return Check(f"strategy {name}", bool(row["runs"]), found, needed=name == DEFAULT_STRATEGY)
