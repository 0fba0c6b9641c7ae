"""What a model's name is made of: backend, model, address, adapter. Nothing is opened here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from colligate.errors import UnknownModel
from colligate.models.weights import PINNED

_LOCAL = ("gguf", "hf", "st", "cross-encoder")


def parts(name: str) -> tuple[str, str]:
    """Backend and the rest: `("openai", "gpt-x")` of `openai:gpt-x` and of `openai/gpt-x`."""
    for alias in ("openai", "ollama"):
        if name.startswith(f"{alias}/"):
            return alias, name.removeprefix(f"{alias}/")
    kind, _, rest = name.partition(":")
    return kind, rest


def address(rest: str) -> tuple[str, str | None]:
    """Model and URL of MODEL[@URL]; a model's own name may hold an `@`.

    Raises:
        UnknownModel: an address without http:// or https://.
    """
    for scheme in ("@http://", "@https://"):
        model, mark, url = rest.partition(scheme)
        if mark:
            return model, scheme[1:] + url
    if re.search(r"@(?:localhost\b|[\w.-]+:\d+(?:/|$))", rest):
        # Taken for a part of the model's name, it would send the documents to OpenAI.
        raise UnknownModel(
            f"no model {rest!r}", "its address has no http:// or https://", "write MODEL@http://..."
        )
    return rest, None


def split_adapter(name: str) -> tuple[str, str | None]:
    """`hf:BASE+ADAPTER` as (`hf:BASE`, ADAPTER); any other name and None.

    The adapter, a folder or a hub name, is what follows the last `+`, unless the whole is the
    path of something that exists.

    >>> split_adapter("hf:org/base+org/adapter")
    ('hf:org/base', 'org/adapter')
    >>> split_adapter("openai:a+b")
    ('openai:a+b', None)
    """
    kind, rest = parts(name)
    base, mark, adapter = rest.rpartition("+")
    if kind != "hf" or not (mark and base and adapter) or Path(rest).expanduser().exists():
        return name, None
    return f"{kind}:{base}", adapter


def anchored(name: str, folder: Path) -> str:
    """The same name where a relative path in it starts from `folder`.

    What is no path stays: names of pinned weights, and names of the hub unless the folder holds
    something of that name.
    """
    kind, rest = parts(name)
    if kind not in _LOCAL or not rest:
        return name
    if kind == "hf" and not (folder / Path(rest).expanduser()).exists():
        base, mark, adapter = rest.rpartition("+")
        if mark and base and adapter:
            return f"hf:{_path('hf', base, folder)}+{_path('hf', adapter, folder)}"
    return f"{kind}:{_path(kind, rest, folder)}"


def anchored_adapter(name: str, folder: Path) -> str:
    """An adapter's name where a relative path starts from `folder`.

    What is no path stays: names of the hub and of a server, unless the folder holds something of
    that name.
    """
    return _path("hf", name, folder)


def _path(kind: str, target: str, folder: Path) -> str:
    path = folder / Path(target).expanduser()
    if kind == "gguf":
        is_path = target not in PINNED
    else:
        is_path = (
            target.startswith((".", "~", "/"))
            or target.count("/") > 1
            or target.endswith(".gguf")
            or path.exists()
        )
    return os.path.normpath(path) if is_path else target


def shown(name: str) -> str:
    """The name as it may be shown: its URL without user, password and query."""
    from colligate.models.openai_http import shown_url

    kind, rest = parts(name)
    for scheme in ("@http://", "@https://"):
        model, mark, url = rest.partition(scheme)
        if mark:
            try:
                return f"{kind}:{model}@{shown_url(scheme[1:] + url)}"
            except UnknownModel:
                return f"{kind}:{model}@..."
    return name


def key_is_meant_for(name: str) -> bool:
    """Whether the keys of the environment are meant for what a name stands for, whoever named it.

    So for what runs in process, for names without an address, and for the addresses that belong
    to the keys: OpenAI's own, and that of `OPENAI_BASE_URL`.
    """
    kind, rest = parts(name)
    if kind not in ("openai", "http"):
        return True
    _, url = address(rest)
    if url is None:
        return True
    known = ["https://api.openai.com/v1", os.environ.get("OPENAI_BASE_URL", "")]
    return (place := _origin(url)) is not None and place in [_origin(other) for other in known]


_NETLOC = re.compile(
    r"(?:[\w.~%!$&'()*+,;=:-]*@)?(?P<host>[\w.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII | re.IGNORECASE,
)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port; None for a URL that two readers might take for different hosts."""
    try:
        split = urlsplit(url.strip())
    except ValueError:
        return None
    if not (found := _NETLOC.fullmatch(split.netloc)):
        return None
    usual = {"http": 80, "https": 443}.get(split.scheme)
    port = int(found["port"]) if found["port"] else usual
    return split.scheme, found["host"].lower(), port
