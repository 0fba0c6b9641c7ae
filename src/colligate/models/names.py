"""Model names: one string says which backend, which model and where.

    bundled                      a pinned 1.5B model, pulled once
    gguf:PATH                    llama.cpp in process (or the name of pinned weights)
    hf:NAME-OR-PATH[+ADAPTER]    transformers in process
    openai:MODEL[@BASE_URL]      any OpenAI-compatible endpoint
    openai/MODEL, ollama/MODEL   the same, as others write it

Opening a name may read or fetch weights: it blocks, so call it from a thread in async code.
Backends are imported when they are named, so that the light ones start at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.errors import EndpointUnreachable, UnknownModel, UsageError, closest
from colligate.models.base import Capability, ChatModel, Embedder, LikelihoodModel, Reranker
from colligate.models.name_parts import address, parts
from colligate.models.weights import BUNDLED, PINNED, OnProgress, pull

if TYPE_CHECKING:
    from colligate.models.openai_http import Policy
OPENAI_DEFAULT = "gpt-6-luna"
"""The model taken when only OPENAI_API_KEY is set: OpenAI's cheapest current one."""

MODEL_FORMS = (
    "bundled",
    "gguf:PATH",
    "hf:NAME-OR-PATH[+ADAPTER]",
    "openai:MODEL[@BASE_URL]",
    "openai/MODEL",
    "ollama/MODEL",
)
EMBEDDER_FORMS = ("minilm", "static", "openai:MODEL[@BASE_URL]", "st:NAME-OR-PATH")
RERANKER_FORMS = (
    "none",
    "embedding",
    "likelihood",
    "cross-encoder:NAME",
    "http:MODEL@URL",
)


def open_model(
    name: str,
    *,
    on_progress: OnProgress | None = None,
    options: Mapping[str, Any] | None = None,
    with_key: bool = True,
) -> ChatModel:
    """The chat model of a name; weights that are missing are pulled.

    `options` are those its backend takes (`options.OPTIONS`). Without `with_key` an endpoint is
    sent neither key nor headers of the environment. An adapter is opened on its base:
    `split_adapter`, then `AdapterModel.with_adapter`.

    Raises:
        UnknownModel: no backend understands the name.
        ModelError: the backend cannot be used, e.g. a key or the weights are missing.
    """
    kind, rest = parts(name)
    options = dict(options or {})
    if name == "bundled":
        return _llamacpp(BUNDLED, "bundled", on_progress, options)
    if kind == "gguf" and rest:
        return _llamacpp(rest, name, on_progress, options)
    if kind == "openai" and rest:
        model, url = address(rest)
        return _openai(model, url, options, *_identity("OPENAI_API_KEY", with_key))
    if kind == "ollama" and rest:
        return _openai(rest, ollama_url(), options)  # without the key, which is not meant for it
    if kind == "hf" and rest:
        from colligate.models.hf.model import HFModel

        pinned = rest in _pinned_models() and not Path(rest).exists()
        target = str(pull(rest, on_progress)["model"]) if pinned else rest
        return HFModel(target, name=name, **options)
    raise _unknown("model", name, MODEL_FORMS, ("bundled",))


def open_embedder(
    name: str = "minilm",
    *,
    on_progress: OnProgress | None = None,
    with_key: bool = True,
) -> Embedder:
    """The embedder of a name; weights that are missing are pulled.

    Raises:
        UnknownModel, ModelError: as `open_model`.
    """
    kind, rest = parts(name)
    pull_embedder(name, on_progress=on_progress)
    # The second name of each is its vectors' own, which libraries record and errors tell.
    if name in ("minilm", "minilm-l6-v2-int8"):
        from colligate.models.embedders import MiniLM

        return MiniLM()
    if name in ("static", "wordllama-256"):
        from colligate.models.embedders import StaticEmbedder

        return StaticEmbedder()
    if kind == "openai" and rest:
        from colligate.models.openai import OpenAIEmbedder

        model, url = address(rest)
        key, policy = _identity("OPENAI_API_KEY", with_key)
        return OpenAIEmbedder(model, url, key, policy=policy)
    if kind == "ollama" and rest:
        from colligate.models.openai import OpenAIEmbedder

        return OpenAIEmbedder(rest, ollama_url())
    if kind == "st" and rest:
        from colligate.models.embedders import SentenceTransformerEmbedder

        return SentenceTransformerEmbedder(rest)
    raise _unknown("embedder", name, EMBEDDER_FORMS, ("minilm", "static"))


def pull_embedder(name: str, *, on_progress: OnProgress | None = None) -> None:
    """Fetch the weights of an embedder that has pinned ones and lacks them; else do nothing.

    Raises:
        WeightsUnavailable: they cannot be fetched.
    """
    pinned = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}.get(name, name)
    if pinned in ("minilm-l6-v2-int8", "wordllama-256"):
        pull(pinned, on_progress)


def open_reranker(
    name: str,
    *,
    embedder: Embedder | None = None,
    scorer: ChatModel | None = None,
    with_key: bool = True,
) -> Reranker:
    """The reranker of a name. `none` is the absence of one: there is nothing to open.

    `embedding` needs the embedder, `likelihood` a scorer with `Capability.LIKELIHOOD`.

    Raises:
        UnknownModel, ModelError: as `open_model`.
        UsageError: what the reranker builds on was not given.
    """
    from colligate.models.rerankers import EmbeddingReranker, HTTPReranker, LikelihoodReranker

    kind, rest = parts(name)
    if name == "embedding":
        if embedder is None:
            raise UsageError("the reranker 'embedding' needs an embedder", hint="give --embedder")
        return EmbeddingReranker(embedder)
    if name == "likelihood":
        if isinstance(scorer, LikelihoodModel) and Capability.LIKELIHOOD in scorer.capabilities:
            return LikelihoodReranker(scorer)
        raise UsageError(
            "the reranker 'likelihood' needs a scorer that gives likelihoods",
            f"{scorer.name if scorer else 'none'} does not",
            "give --scorer gguf:smollm2-135m",
        )
    if kind == "http":
        model, url = address(rest)
        if url:
            key, policy = _identity("COLLIGATE_RERANKER_KEY", with_key)
            return HTTPReranker(url, model, key, policy=policy)
    if kind == "cross-encoder" and rest:
        from colligate.models.embedders import CrossEncoderReranker

        return CrossEncoderReranker(rest)
    raise _unknown("reranker", name, RERANKER_FORMS, ("none", "embedding", "likelihood"))


def default_model() -> tuple[str, str]:
    """The model taken when none is named anywhere, and why that one.

    With `OPENAI_BASE_URL` and no `OPENAI_MODEL` the server is asked what it has: this blocks.

    Raises:
        EndpointUnreachable: the server does not say.
    """
    url = os.environ.get("OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not url and not key:
        return "bundled", "no other model is named"
    from colligate.models.openai_http import OPENAI_URL, shown_url

    model, why = os.environ.get("OPENAI_MODEL"), "OPENAI_MODEL"
    if not model and url and shown_url(url) != OPENAI_URL:
        model, why = _first_model(url, key), "the first model at OPENAI_BASE_URL"
    elif not model:
        model, why = OPENAI_DEFAULT, "OPENAI_API_KEY is set"
    # The name is shown: a URL with a password in it stays where the backend finds it by itself.
    plain = url is not None and shown_url(url) == url.rstrip("/")
    return f"openai:{model}" + (f"@{url}" if plain else ""), why


def ollama_url() -> str:
    """Where Ollama answers: `OLLAMA_HOST` (host, host:port or URL), else this machine.

    As Ollama reads it: without a scheme the port is 11434, with one it is the scheme's own.
    """
    host = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "localhost"
    if "://" not in host:
        host = f"http://{host}" + ("" if re.search(r":\d+$", host) else ":11434")
    # 0.0.0.0 is where a server listens, not where a client can call.
    url = host.replace("://0.0.0.0", "://localhost")
    return url if url.endswith("/v1") else f"{url}/v1"


def _identity(variable: str, with_key: bool) -> tuple[str | None, Policy]:
    """What an endpoint is told of who asks: a key, or nothing at all."""
    from colligate.models.openai_http import Policy

    return os.environ.get(variable) if with_key else None, Policy(bare=not with_key)


def _openai(
    model: str,
    url: str | None,
    options: dict[str, Any],
    key: str | None = None,
    policy: Policy | None = None,
) -> ChatModel:
    from colligate.models.openai import OpenAIChat
    from colligate.models.openai_http import Policy

    patience = {option: options.pop(option) for option in ("in_flight", "timeout") & options.keys()}
    policy = replace(policy or Policy(), **patience)
    return OpenAIChat(model, url, key, policy=policy, **options)


def _llamacpp(
    target: str, name: str, on_progress: OnProgress | None, options: Mapping[str, Any]
) -> ChatModel:
    path = Path(target).expanduser()
    if not path.is_file():
        pinned = _pinned_models()
        if target not in pinned:
            near = closest(target, pinned)
            raise UnknownModel(
                f"no model {name!r}",
                f"there is no file {target} and no pinned chat model of that name",
                f"did you mean gguf:{near}?" if near else "colligate models list shows the names",
            )
        path = pull(target, on_progress)["model"]
    from colligate.models.llama import LlamaCpp

    return LlamaCpp(path, name=name, **options)


def _pinned_models() -> list[str]:
    return [name for name, weight in PINNED.items() if weight.files["model"].name.endswith(".gguf")]


def _unknown(what: str, name: str, forms: tuple[str, ...], words: tuple[str, ...]) -> UnknownModel:
    kinds = [form.partition(":")[0] for form in forms if ":" in form]
    begun = name.partition(":")[0]
    near = closest(begun, [*words, *kinds])
    hint = ""
    if near is not None and near != begun:
        hint = f"did you mean {near}{':' if near in kinds else ''}? "
    return UnknownModel(f"no {what} {name!r}", "", f"{hint}names are {', '.join(forms)}")


def _first_model(url: str, key: str) -> str:
    import httpx2

    from colligate.models.openai_http import shown_url

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    shown = shown_url(url)
    try:
        answer = httpx2.get(f"{url.rstrip('/')}/models", headers=headers, timeout=10)
        answer.raise_for_status()
        return str(answer.json()["data"][0]["id"])
    except (httpx2.HTTPError, ImportError, ValueError, LookupError, TypeError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = f"HTTP {status}" if status else type(error).__name__
        raise EndpointUnreachable(
            f"{shown} does not say which models it has", why, "name one with OPENAI_MODEL"
        ) from None
