"""A model on every node of a Ray cluster; for the extra `scale`.

    ray:bundled    ray:gguf:PATH    ray:hf:NAME-OR-PATH

Calls that are made at the same time, such as those for the documents of one SPD-RAG question, are
spread over the nodes. A call whose node died is made again on another. Tokens are counted here.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Prefix

from colligate.concurrency import in_thread
from colligate.errors import ColligateError, LibraryError, MissingExtra, ModelError, UnknownModel
from colligate.models.base import (
    AdapterModel,
    ChatModel,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    WrappedModel,
)
from colligate.models.names import OPTIONS, open_model, split_name
from colligate.models.weights import OnProgress

# Ray would report its use to its makers, and warn of a change to come.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# A cluster that was started where there is a token asks for it, and Ray sends it only if told to
# before it is imported. A program that has imported it decides for itself.
_HAS_TOKEN = (
    "RAY_AUTH_TOKEN" in os.environ
    or "RAY_AUTH_TOKEN_PATH" in os.environ
    or (Path.home() / ".ray" / "auth_token").exists()
)
if _HAS_TOKEN and "ray" not in sys.modules:
    os.environ.setdefault("RAY_AUTH_MODE", "token")

try:
    import ray as ray  # other modules import it from here: what is set above must be set before
    from ray.exceptions import RayError, RayTaskError
except ImportError as error:
    raise MissingExtra.of(error, "Ray cannot be used", "scale") from error

RETRIES = 3
"""How often a task or call is repeated whose worker or node died."""

_PATIENCE = 10.0  # seconds for a cluster to answer
_AT_ONCE = 16  # calls to one node; the model computes some of them together


class RayCluster:
    """A connection to a cluster, or to one on this machine that ends when this is closed.

    Args:
        address: "HOST:PORT" of a cluster, or "auto" for the one that this machine belongs to; empty
            for one of its own. A connection that the program has is kept.
        failure: the kind of error that is raised.

    Raises:
        ColligateError: there is no cluster, or its workers have another release of colligate.
    """

    def __init__(self, address: str = "", failure: type[ColligateError] = LibraryError) -> None:
        self.where = address or "this machine"
        self._failure = failure
        self._is_own = not ray.is_initialized()
        with self.translate_errors():
            if self._is_own:
                _require_answer(address)
                with warnings.catch_warnings():
                    # What is started are other programs: Lance need not warn of forks.
                    warnings.filterwarnings("ignore", "lance is not fork-safe")
                    ray.init(
                        address or "local",
                        include_dashboard=None if address else False,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                    )
            try:
                there = ray.get(_find_release.remote())
            except BaseException:
                self.close()
                raise
            if there != version("colligate"):
                self.close()
                why = f"its workers have colligate {there}, this is {version('colligate')}"
                raise failure(f"cannot use Ray at {self.where}", why, "install the same one")

    @property
    def count(self) -> int:
        """How many tasks run at once."""
        with self.translate_errors():
            return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        """End the connection, and a cluster of its own. Safe to call twice."""
        if self._is_own and ray.is_initialized():
            ray.shutdown()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise Ray's errors as errors of colligate."""
        try:
            yield
        except RayTaskError as error:
            if isinstance(error.cause, ModelError):
                raise error.cause from None
            why = str(error.cause or error).strip().rpartition("\n")[2]
            hint = "install the same release of colligate, with its extras, on all nodes"
            raise self._failure(f"a worker of Ray at {self.where} failed", why, hint) from error
        except (RayError, OSError, RuntimeError, ValueError) as error:
            why = str(error).strip().partition("\n")[0]
            hint = "check that it runs (`ray status`); what was read is kept"
            raise self._failure(f"cannot use Ray at {self.where}", why, hint) from error


def _require_answer(address: str) -> None:
    """Raise `OSError` unless something listens at "HOST:PORT": Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


@ray.remote(max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _find_release() -> str:
    return version("colligate")


class RayModel(WrappedModel):
    """A model whose calls are made on the nodes of a cluster.

    Args:
        model: the same model here, whose weights are never loaded.
        opener: opens it on a node.
        copies: on how many workers it is opened; by default one on each GPU, or on each node if
            there is none.
    """

    def __init__(
        self,
        cluster: RayCluster,
        model: ChatModel,
        opener: Callable[[], ChatModel],
        copies: int | None = None,
    ) -> None:
        super().__init__(model)
        self._cluster = cluster
        self._adapter: str | None = None
        with cluster.translate_errors():
            gpus = int(ray.cluster_resources().get("GPU", 0))
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            count = copies or gpus or max(1, sum("CPU" in each for each in alive))
            kind = _Copy.options(scheduling_strategy="SPREAD", num_gpus=min(1.0, gpus / count))  # type: ignore[attr-defined]
            self._copies = [kind.remote(opener) for _ in range(count)]
        self._calls = [0] * count  # under way at each
        self._last = [""] * count  # the prompt that each read last

    @property
    def name(self) -> str:
        return f"ray:{self._model.name}"

    @property
    def version(self) -> str:
        """That of the weights: stored replies of others are not used."""
        return str(getattr(self._model, "version", ""))

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call; with `on_token` the text arrives as one piece."""
        completion: Completion = await self._call(request.prompt, "chat", request)
        if on_token:
            on_token(completion.text)
        return completion

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        prefix = pairs[0][0] if pairs else ""
        found: list[list[float]] = await self._call(prefix, "likelihoods", pairs)
        return found

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        prompt = "\n\n".join(each.content for each in messages)
        odds: LabelOdds = await self._call(prompt, "labels", messages, labels, forced=forced)
        return odds

    async def attention(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        paid: list[float] = await self._call(text, "attention", text, spans)
        return paid

    async def with_adapter(self, adapter: str | Path) -> ChatModel:
        """Return the same copies with an adapter, which every node opens by this name."""
        assert isinstance(self._model, AdapterModel)
        adapted = copy.copy(self)  # with the same copies, and one count of their calls
        adapted._model = await self._model.with_adapter(adapter)
        adapted._adapter = str(adapter)
        return adapted

    async def aclose(self) -> None:
        if self._adapter is None:
            while self._copies:
                copy_ = self._copies.pop()
                if ray.is_initialized():  # else another model has ended the connection, and all
                    ray.kill(copy_)
            self._cluster.close()
        await self._model.aclose()

    async def _call(self, prompt: str, what: str, *given: Any, **options: Any) -> Any:
        """Call the copy with the least to do; of several the one whose last prompt began alike."""

        def fitness(i: int) -> tuple[int, int]:
            return -self._calls[i], Prefix.similarity(prompt, self._last[i])

        chosen = max(range(len(self._calls)), key=fitness)
        self._last[chosen] = prompt
        self._calls[chosen] += 1
        call = self._copies[chosen].call.remote(self._adapter, what, given, options)
        try:
            with self._cluster.translate_errors():
                return await call
        except asyncio.CancelledError:
            ray.cancel(call)
            raise
        finally:
            self._calls[chosen] -= 1


class RayOpener:
    """Opens `ray:bundled`, `ray:gguf:PATH` and `ray:hf:NAME-OR-PATH`."""

    options: Mapping[str, type] = {
        "address": str,
        "copies": int,
        **OPTIONS["gguf"],
        **OPTIONS["hf"],
    }

    def __call__(
        self, name: str, *, on_progress: OnProgress | None = None, **options: Any
    ) -> RayModel:
        """Open a model here, for its tokens, and on the nodes; errors are those of `open_model`."""
        if split_name(name)[0] not in ("bundled", "gguf", "hf"):
            hint = "give ray:bundled, ray:gguf:PATH or ray:hf:NAME-OR-PATH"
            raise UnknownModel(f"no model {'ray:' + name!r}", "a cluster opens no such model", hint)
        address = options.pop("address", os.environ.get("RAY_ADDRESS", "auto"))
        copies = options.pop("copies", None)
        here = open_model(name, on_progress=on_progress, options=options)
        open_there = partial(open_model, name, options=options)
        return RayModel(RayCluster(address, ModelError), here, open_there, copies)


open_ray_model = RayOpener()


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES, max_concurrency=_AT_ONCE)
class _Copy:
    """One copy of a model, on a node."""

    def __init__(self, opener: Callable[[], ChatModel]) -> None:
        self._opener = opener
        self._models: dict[str | None, Any] = {}  # by adapter
        self._opening = asyncio.Lock()

    async def call(
        self, adapter: str | None, what: str, given: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        async with self._opening:
            if not self._models:
                self._models[None] = await in_thread(self._opener)
            if adapter not in self._models:
                self._models[adapter] = await self._models[None].with_adapter(adapter)
        return await getattr(self._models[adapter], what)(*given, **options)
