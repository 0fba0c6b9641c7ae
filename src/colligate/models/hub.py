"""The Hugging Face hub: which files a repository has, and what the hub says of one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

import httpx2

from colligate.models.download import SourceFailed, describe, open_client, read_url

_DEFAULT = "Q4_K_M"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
# Files of other names, such as `../x`, are not offered: the name becomes a path on this machine.
_FILE = re.compile(r"(?:[\w+-][\w.+ -]*/)*[\w+-][\w.+ -]*\.gguf", re.ASCII | re.IGNORECASE)
_DIGEST = re.compile(r'"?([0-9a-f]{64})"?')
_LARGEST_ANSWER = 16 << 20


class Repository(NamedTuple):
    """The newest commit of a repository, and its GGUF files."""

    revision: str
    licence: str
    files: list[str]


def split_hub_name(name: str) -> tuple[str, str] | None:
    """Split ORG/REPO[:FILE] into both, without FILE the usual quantisation; None for other names.

    >>> split_hub_name("Qwen/Qwen3-8B-GGUF")
    ('Qwen/Qwen3-8B-GGUF', 'Q4_K_M')
    >>> split_hub_name("models/own.gguf")
    """
    repository, mark, file = name.partition(":")
    is_path = not mark and name.lower().endswith(".gguf")
    if is_path or not _REPOSITORY.fullmatch(repository):
        return None
    return repository, file or _DEFAULT


def match_files(files: Sequence[str], wanted: str) -> list[str]:
    """Return the file of that name; a text that is no whole name is looked for in all of them."""
    if wanted.lower().endswith(".gguf"):
        return [file for file in files if file == wanted]
    return [file for file in files if wanted.lower() in file.lower()]


def read_repository(name: str) -> Repository:
    """Ask the hub for the files of ORG/REPO.

    SourceFailed if it cannot be reached, refuses, or answers something else.
    """
    _, body = _ask("GET", f"api/models/{name}", name)
    try:
        about = json.loads(body)
        files = sorted(str(file["rfilename"]) for file in about["siblings"])
        revision, tags = str(about["sha"]), map(str, about.get("tags") or ())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise SourceFailed(f"its answer about {name} cannot be read") from None
    if not re.fullmatch(r"[0-9a-f]{7,64}", revision):
        raise SourceFailed(f"it gives no commit of {name}")
    licences = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    return Repository(revision, "".join(licences[:1]), [f for f in files if _FILE.fullmatch(f)])


def ask_hub(file: str, revision: str, seconds: float = 60.0) -> tuple[int, str]:
    """Return size and SHA-256 of ORG/REPO/FILE as the hub states them; 0 and "" if it does not.

    SourceFailed if it cannot be reached, or refuses.
    """
    repository = file.rpartition("/")[0]
    headers, _ = _ask("HEAD", _place(file, revision), repository, seconds)
    stated = _DIGEST.fullmatch(headers.get("X-Linked-Etag", ""))
    size = headers.get("X-Linked-Size", "")
    return int(size) if size.isdecimal() and len(size) < 16 else 0, stated[1] if stated else ""


def read_hub(file: str, revision: str, seconds: float, start: int) -> Iterator[bytes]:
    """Yield the bytes of ORG/REPO/FILE from a position on."""
    yield from read_url(_locate(_place(file, revision)), start, seconds, _authorize())


def _place(file: str, revision: str) -> str:
    owner, repository, path = file.split("/", 2)
    return f"{owner}/{repository}/resolve/{revision}/{quote(path)}"


def _locate(place: str) -> str:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SourceFailed("HF_HUB_OFFLINE is set")
    return f"{(os.environ.get('HF_ENDPOINT') or 'https://huggingface.co').rstrip('/')}/{place}"


def _authorize() -> dict[str, str]:
    from huggingface_hub import get_token  # HF_TOKEN, or what `hf auth login` kept; slow to import

    return {"Authorization": f"Bearer {token}"} if (token := get_token()) else {}


def _ask(
    method: str, place: str, repository: str, seconds: float = 60.0
) -> tuple[httpx2.Headers, bytes]:
    """Return headers and body; the headers are the hub's own where it leads on to a file."""
    url, key, body = _locate(place), _authorize(), bytearray()
    try:
        with open_client(seconds) as client, client.stream(method, url, headers=key) as response:
            for earlier in response.history:
                if "X-Linked-Etag" in earlier.headers:
                    return earlier.headers, b""
            if response.status_code in (401, 403):
                said = f"{response.url.host} answered {response.status_code}"
                why = f"{repository} is private, wants its terms accepted, or does not exist"
                token = "your token may not read it" if key else "there is no token in HF_TOKEN"
                raise SourceFailed(f"{said}: {why}; {token}")
            response.raise_for_status()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _LARGEST_ANSWER:
                    raise SourceFailed(f"its answer about {repository} is too long")
            return response.headers, bytes(body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SourceFailed(describe(error)) from None
