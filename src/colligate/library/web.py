"""Web addresses as sources: fetched when named, kept in the library, fetched again if changed.

Each has a folder of its own in the library: the file as it was sent, and `source.json`, with which
the server is asked whether the file has changed. Only a person's own command line or program names
addresses; no client of a server can.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote

from colligate.concurrency import in_thread
from colligate.documents.reading.formats import FILE_FORMATS, TEXT, known_format
from colligate.documents.reading.source import Limits
from colligate.errors import ReadingError, TooLarge, UsageError
from colligate.private import make_private_folder

if TYPE_CHECKING:
    import httpx2

OnProgress = Callable[[int, int, str], None]
"""Called with the bytes that have arrived, the total (0 if unknown), and the address."""

WEB_FOLDER = "web"
_RECORD = "source.json"

_SECONDS = 600.0  # for one address, however slowly it sends
_SECONDS_OF_SILENCE = 30.0
_MOST_REDIRECTS = 5

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def is_address(given: str | Path) -> bool:
    """Return whether a source is a web address, which a `Path` or a typing error may have cut.

    >>> is_address("https://example.com/a.pdf"), is_address("reports/a.pdf"), is_address("C:/a")
    (True, False, False)
    """
    return _ADDRESS.match(str(given)) is not None


def parse_address(given: str | Path) -> str:
    """Return the address to fetch, without its fragment.

    >>> parse_address("https:/example.com/a.pdf#page=2")
    'https://example.com/a.pdf'

    Raises:
        UsageError: it is not an address that is fetched.
    """
    import httpx2  # loaded by the commands that fetch

    text = re.sub(r"^(https?):/+", r"\1://", str(given), flags=re.IGNORECASE)
    what = f"cannot fetch {text}"
    try:
        url = httpx2.URL(text).copy_with(fragment=None)
    except httpx2.InvalidURL as error:
        raise UsageError(what, str(error), "check the address") from error
    if url.userinfo:
        why = "a name or password in it would be shown with every citation"
        raise UsageError(f"cannot fetch from {url.host}", why, "fetch the file and give its path")
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(what, "it is not an https: address", "write https://HOST/PATH, or a path")
    if url.scheme == "http" and not is_loopback(url.host):
        why = "http: lets others read and change it on its way"
        raise UsageError(what, why, "use https:, or fetch the file and give its path")
    return str(url)


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def folder_of(library: Path, address: str) -> Path:
    """Return where a library keeps what was fetched from an address."""
    return library / WEB_FOLDER / hashlib.sha256(address.encode()).hexdigest()[:16]


def list_addresses(library: Path) -> list[str]:
    """Return the addresses of the files that a library keeps."""
    records = map(_read_record, sorted((library / WEB_FOLDER).glob("*")))
    return [record["url"] for record in records if record]


def find_fetched(library: Path, address: str) -> Path | None:
    """Return the file that a library keeps of an address."""
    folder = folder_of(library, address)
    record = _read_record(folder)
    return folder / record["file"] if record else None


def hide_folders(source: str) -> str:
    """Return a document's source without the folders of this machine, for clients of a server."""
    return source if is_address(source) else PurePosixPath(source.replace("\\", "/")).name


async def fetch(address: str, library: Path, report: OnProgress) -> Path:
    """Fetch what has changed at an address, and return the file that the library keeps of it.

    Raises:
        ReadingError: it cannot be fetched; the file from before, if any, is kept.
    """
    import httpx2

    folder = folder_of(library, address)
    known = await in_thread(_read_record, folder)
    conditions = {"If-None-Match": "etag", "If-Modified-Since": "last-modified"}
    headers = {name: known[fact] for name, fact in conditions.items() if known.get(fact)}
    what = f"cannot fetch {address}"
    try:
        async with (
            asyncio.timeout(_SECONDS),
            httpx2.AsyncClient(
                headers={"User-Agent": "colligate"},
                timeout=_SECONDS_OF_SILENCE,
                follow_redirects=True,
                max_redirects=_MOST_REDIRECTS,
                event_hooks={"request": [_check_redirect(httpx2.URL(address))]},
            ) as client,
            client.stream("GET", address, headers=headers) as response,
        ):
            if response.status_code == httpx2.codes.NOT_MODIFIED and known:
                return folder / known["file"]
            if response.status_code != httpx2.codes.OK:
                why = f"HTTP {response.status_code} {response.reason_phrase}".strip()
                raise ReadingError(what, why, _HINTS.get(response.status_code, _HINT))
            await in_thread(make_private_folder, folder)
            partial = folder / ".new"
            try:
                with await in_thread(partial.open, "wb") as file:
                    await _receive(response, file, address, report)
                facts = {name: response.headers.get(name, "") for name in conditions.values()}
                name = _name_file(response.url, response.headers.get("content-type", ""))
                return await in_thread(_keep, partial, name, {"url": address, **facts})
            finally:
                await in_thread(partial.unlink, missing_ok=True)
    except TimeoutError as error:
        why = f"it was not complete after {_SECONDS:g} seconds"
        raise ReadingError(what, why, "fetch the file and give its path") from error
    except httpx2.TimeoutException as error:
        why = f"no answer within {_SECONDS_OF_SILENCE:g} seconds"
        raise ReadingError(what, why, "try again later") from error
    except httpx2.HTTPError as error:
        why = re.sub(r"^\[.*?\] ", "", str(error)) or type(error).__name__
        hint = _TRUST if "certificate verify failed" in why else _HINT
        raise ReadingError(what, why, hint) from error


_LOGIN = "it may need a login: fetch the file and give its path"
_HINTS = {401: _LOGIN, 403: _LOGIN, 404: "check the address", 410: "check the address"}
_TRUST = "set SSL_CERT_FILE if you trust who signed it"
_HINT = "check the address and the network, or try again later"


async def _receive(
    response: httpx2.Response, file: IO[bytes], address: str, report: OnProgress
) -> None:
    """Write a response to a file, within the limit of files."""
    most = Limits().file_bytes
    stated = response.headers.get("content-length", "")
    total = int(stated) if stated.isdecimal() else 0
    size = 0
    report(0, total, address)
    async for piece in response.aiter_bytes():
        size += len(piece)
        if max(size, total) > most:
            what = f"cannot fetch {address}"
            raise TooLarge(what, f"it has more than {most:,} bytes, the limit", "split it")
        file.write(piece)
        report(min(size, total or size), total, address)


def _check_redirect(first: httpx2.URL) -> Callable[[httpx2.Request], object]:
    """Return a check of each request: a public page must not lead to this machine or network."""

    async def check(request: httpx2.Request) -> None:
        url = request.url
        if url.host == first.host and url.scheme == first.scheme:
            return
        what = f"cannot fetch {first}"
        try:
            parse_address(str(url))
        except UsageError as error:
            raise ReadingError(what, f"it redirects to {url.host}: {error.why}") from error
        if await _is_private(url.host) and not await _is_private(first.host):
            why = f"it redirects to {url.host}, which is not a public address"
            raise ReadingError(what, why, "name that address yourself if you trust it")

    return check


async def _is_private(host: str) -> bool:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError:  # perhaps only a proxy knows it
        return False
    return any(not ipaddress.ip_address(each[4][0]).is_global for each in found)


def _name_file(url: httpx2.URL, content_type: str) -> str:
    """Return a name for a fetched file, whose suffix says what it is if the server says so."""
    kind = content_type.partition(";")[0].strip().lower()
    kind = "text/html" if kind == "application/xhtml+xml" else kind
    name = re.sub(r"[^\w.-]+", "-", unquote(PurePosixPath(url.path).name))[-80:].strip("-.")
    name = name or url.host.strip("[]").replace(":", "-")
    named = known_format(PurePosixPath(name))
    suffixes = [suffix for suffix, each in FILE_FORMATS.items() if each.media_type == kind]
    # "text/plain" is what servers say of any text.
    if suffixes and kind not in {TEXT.media_type, named and named.media_type}:
        name += suffixes[0]
    return name


def _read_record(folder: Path) -> dict[str, str]:
    """Return what is known of a fetched file; nothing if it is not there."""
    with suppress(OSError, ValueError, TypeError):
        record = json.loads((folder / _RECORD).read_text("utf-8"))
        if (folder / record["file"]).is_file():
            return {name: str(value) for name, value in record.items()}
    return {}


def _keep(partial: Path, name: str, facts: dict[str, str]) -> Path:
    """Put a fetched file in the place of the one before, and record what it is."""
    folder = partial.parent
    before = _read_record(folder)
    kept = partial.replace(folder / name)
    if before and before["file"] != name:
        (folder / before["file"]).unlink(missing_ok=True)
    (folder / _RECORD).write_text(json.dumps({**facts, "file": name}), "utf-8")
    return kept
