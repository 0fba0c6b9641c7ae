"""Finding a wheel in a Python package index (PEP 503 and PEP 691). Nothing is installed."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import httpx2

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_LARGEST_PAGE = 64 << 20  # the longest of PyPI's are about a tenth of that


def index_url() -> str:
    """The index to ask: COLLIGATE_INDEX_URL, else what pip or uv are set to use, else PyPI."""
    for variable in ("COLLIGATE_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX_URL"):
        if url := os.environ.get(variable, "").strip():
            return url.rstrip("/")
    return "https://pypi.org/simple"


def wheel_url(client: httpx2.Client, package: str, version: str) -> str:
    """The address of a wheel of exactly this version, for whatever platform.

    Raises:
        LookupError: if the index has no such package or wheel.
        httpx2.HTTPError: if the index does not answer.
    """
    project = _normalised(package)
    url = f"{index_url()}/{project}/"
    with client.stream("GET", url, headers={"Accept": _ACCEPT}) as response:
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise LookupError(f"the index has no package {package}")
        response.raise_for_status()
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _LARGEST_PAGE:
                raise LookupError(f"the index's page of {package} is endless")
    # Private indexes put the user's name into the address; relative links must keep it.
    page = str(response.url)
    for link in _links(bytes(body), response.headers.get("Content-Type", "")):
        try:
            wheel = unquote(urlsplit(link).path).rpartition("/")[2]
            name, found, *_ = [*wheel.split("-"), ""]
            if wheel.endswith(".whl") and _normalised(name) == project and found == version:
                return urljoin(page, link)
        except ValueError:
            continue  # a link that is none
    raise LookupError(f"the index has no wheel of {package} {version}")


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _links(body: bytes, kind: str) -> list[str]:
    if "json" in kind:
        try:
            return [str(file["url"]) for file in json.loads(body)["files"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise LookupError("the index's page cannot be read") from None
    anchors = _Anchors()
    anchors.feed(body.decode("utf-8", "replace"))
    return anchors.links


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.links.append(href)
