"""A running server that holds the library: asked over HTTP in place of opening the library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from colligate import errors
from colligate.cli.told import event_of
from colligate.concurrency import in_thread
from colligate.core.answer import Answer
from colligate.core.citing import Citation, Evidence
from colligate.core.events import Listener, Noted
from colligate.documents import Span
from colligate.errors import ColligateError, NotAuthorised, UsageError
from colligate.library.lock import Address, find_holder, read_address
from colligate.models.metering import UsageReport
from colligate.models.names import anchor_name, redact_name
from colligate.server.config import DEFAULT_LIBRARY, LIBRARIES_SUFFIX

_SECONDS_TO_FIND = 5.0
# A server says something every 15 seconds, whatever it does.
_TIMEOUT = httpx2.Timeout(10.0, read=60.0)


@dataclass(frozen=True)
class Remote:
    """One library of a server that runs."""

    address: Address
    library: str

    @property
    def url(self) -> str:
        """Where the server answers."""
        return self.address.url

    async def ask(
        self,
        question: str,
        *,
        strategy: str,
        parameters: Sequence[str] = (),
        models: Mapping[str, str | None] | None = None,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        prompts: bool = False,
        on_event: Listener,
    ) -> Answer:
        """What `Engine.ask` would answer over the whole library, told as it goes on.

        `parameters` are texts such as "k=3", `models` the names that were given for the options
        of these names. With `prompts`, events have what models were asked.

        Raises:
            UsageError: a model is named that the server does not have.
            ColligateError: what the server refuses, or it broke off.
        """
        on_event(Noted(f"the server at {self.url} holds the library, and is asked"))
        async with self._client() as client:
            about = await _answered(client.get("api/about"))
            self._hold_to_its_models(about, models or {})
            body = {
                "question": question,
                "strategy": strategy,
                "parameters": dict(_setting(each) for each in parameters),
                "max_tokens_total": max_tokens_total,
                "timeout": timeout,
                "stream": True,
            }
            path = f"api/libraries/{quote(self.library, safe='')}/ask"
            query = {"prompts": str(prompts).lower()}
            async with client.stream("POST", path, json=body, params=query) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _error_of(response)
                async for name, said in _events(response):
                    if name in ("event", "queued"):
                        on_event(event_of(said))
                    elif name == "answer":
                        return _answer_of(said, about["models"]["reader"])
                    elif name == "problem":
                        raise _error_of_problem(said)
        raise ColligateError(f"the server at {self.url} broke off", "", "ask again")

    async def remove(self, documents: Sequence[str]) -> list[str]:
        """Remove documents by their ids; returns them.

        Raises:
            UnknownDocument: there is none of an id; those before it are removed.
            ColligateError: what else the server refuses.
        """
        async with self._client() as client:
            for each in documents:
                place = f"{quote(self.library, safe='')}/documents/{quote(each, safe='')}"
                await _answered(client.delete(f"api/libraries/{place}"))
        return list(documents)

    def _hold_to_its_models(
        self, about: Mapping[str, Any], models: Mapping[str, str | None]
    ) -> None:
        """Refuse models that were named here and are not the server's."""
        theirs = {**about["models"], **about["search"]}
        for role, given in models.items():
            its = theirs.get(role) or theirs["reader"]
            if given is not None and _plain(given) != its.rstrip("/"):
                raise UsageError(
                    f"{redact_name(given)} is not the {role} of the server at {self.url}",
                    f"it holds the library, and its {role} is {its}",
                    "leave the option out, or stop the server",
                )

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        token = self.address.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            async with httpx2.AsyncClient(
                base_url=self.url, headers=headers, timeout=_TIMEOUT, trust_env=False
            ) as client:
                yield client
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise ColligateError(f"the server at {self.url} broke off", why, "ask again") from error


async def holding(folder: Path) -> Remote | None:
    """The server that holds the library of a folder, if one does.

    An address that lies there is believed only if the process that holds the lock just now has
    published it: neither a server that was killed nor a library from elsewhere leads anywhere.
    """
    places = [(folder, DEFAULT_LIBRARY)]
    if folder.parent.name.endswith(LIBRARIES_SUFFIX):
        beside = folder.parent.with_name(folder.parent.name.removesuffix(LIBRARIES_SUFFIX))
        places.append((beside, folder.name))
    for place, name in places:
        address = read_address(place)
        if address is None or address.pid != await in_thread(find_holder, folder):
            continue
        if await _is_there(address):
            return Remote(address, name)
    return None


async def _is_there(address: Address) -> bool:
    """Whether it still answers: another program may be at its port by now."""
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS_TO_FIND, trust_env=False) as client:
            said = (await client.get(f"{address.url}healthz")).json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return False
    return isinstance(said, dict) and said.get("instance") == address.instance


async def _answered(call: Any) -> Any:
    response: httpx2.Response = await call
    if not response.is_success:
        raise _error_of(response)
    return response.json() if response.content else None


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream; each has its data on one line."""
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def _error_of(response: httpx2.Response) -> ColligateError:
    try:
        said = response.json()
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {"status": response.status_code, "detail": f"HTTP {response.status_code}"}
    return _error_of_problem(said)


def _error_of_problem(said: Mapping[str, Any]) -> ColligateError:
    """The error that a problem was, so that the command ends as it would have by itself."""
    found = getattr(errors, str(said.get("type", "")).removeprefix("urn:colligate:"), None)
    kind = {401: NotAuthorised, 422: UsageError}.get(said.get("status", 0), ColligateError)
    if isinstance(found, type) and issubclass(found, ColligateError):
        kind = found
    return kind(str(said.get("detail", "the server failed")), "", str(said.get("hint", "")))


def _answer_of(said: Mapping[str, Any], reader: str) -> Answer:
    """The answer of which `Answer.to_json` made this."""
    usage = said["usage"]
    known = [each.name for each in fields(UsageReport) if each.name in usage]
    return Answer(
        question=said["question"],
        strategy=said["strategy"],
        text=said["answer"],
        found=said["found"],
        short=said["short_answer"],
        citations=tuple(
            Citation(
                span=Span(each["document"], each["start"], each["end"]),
                quote=each["quote"],
                title=each["title"],
                section=tuple(each["section"]),
                page=each["page"],
                answer_spans=tuple((start, end) for start, end in each["answer_spans"]),
                how="server",
            )
            for each in said["citations"]
        ),
        evidence=tuple(
            Evidence(
                Span(each["document"], each["start"], each["end"]), each["score"], each["reason"]
            )
            for each in said["evidence"]
        ),
        usage=UsageReport(**{name: usage[name] for name in known}),
        warnings=tuple(said["warnings"]),
        model=reader,
    )


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _plain(name: str) -> str:
    return redact_name(anchor_name(name, Path.cwd())).rstrip("/")
