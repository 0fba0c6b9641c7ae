"""A running server that holds the library: it is asked over HTTP, and the library stays closed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from colligate import errors
from colligate.concurrency import in_thread
from colligate.core.answer import COMPUTED, Answer, Citation, Evidence, Verdict
from colligate.core.events import (
    Asked,
    Asking,
    Event,
    Listener,
    Measured,
    Noted,
    Progressed,
    Writing,
)
from colligate.core.run import Consent, refuse
from colligate.documents import Span
from colligate.errors import ColligateError, NotAuthorised, UsageError
from colligate.library.lock import Address, find_holder, read_address
from colligate.models.metering import UsageReport
from colligate.models.names import anchor_name, normalize_name, redact_name
from colligate.readers.followup import Turn
from colligate.server.config import DEFAULT_LIBRARY, LIBRARIES_SUFFIX
from colligate.server.shapes import MOST_TURNS

_SECONDS_TO_FIND = 5.0
_POLL = 0.2  # seconds
# A server sends something every 15 seconds, whatever it does.
_TIMEOUT = httpx2.Timeout(10.0, read=60.0)


@dataclass(frozen=True)
class RemoteLibrary:
    """One library of a running server."""

    address: Address
    library: str

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.address.url

    async def ask(
        self,
        question: str,
        *,
        strategy: str,
        parameters: Sequence[str] = (),
        documents: Sequence[str] | None = None,
        where: Sequence[str] = (),
        models: Mapping[str, str | None] | None = None,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        prompts: bool = False,
        yes: bool = False,
        consent: Consent = refuse,
        history: Sequence[Turn] = (),
        on_event: Listener,
    ) -> Answer:
        """Return what `Engine.ask` would answer over the library, or some of its documents.

        `parameters` are texts such as "k=3", `models` the names that were given, by role. With
        `prompts`, events have the prompts of the models. `yes` allows work that takes many calls;
        without it `consent` is asked, if it is given. `history` are the turns before.
        """
        on_event(Noted(f"the server at {self.url} holds the library and answers"))
        async with self._client() as client:
            about = await _load(client.get("api/about"))
            self._check_models(about, models or {})
            body = {
                "question": question,
                "strategy": strategy,
                "parameters": dict(_split_setting(each) for each in parameters),
                "documents": documents,
                "where": list(where),
                "max_tokens_total": max_tokens_total,
                "timeout": timeout,
                "yes": yes or (consent is not refuse and "ask"),
                "history": [
                    {
                        "question": turn.question,
                        "answer": turn.answer,
                        "cited": [
                            {"document": each.document_id, "start": each.start, "end": each.end}
                            for each in turn.cited
                        ],
                    }
                    for turn in history[-MOST_TURNS:]
                ],
                "stream": True,
            }
            path = f"api/libraries/{quote(self.library, safe='')}/ask"
            query = {"prompts": str(prompts).lower()}
            async with client.stream("POST", path, json=body, params=query) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _read_error(response)
                async for name, sent in _read_events(response):
                    if name == "run":
                        run = f"api/runs/{sent['id']}"
                    elif name == "event" and sent["event"] == "consent":
                        decision = {"yes": await consent(sent["estimate"])}
                        await client.post(f"{run}/consent", json=decision)  # or it is too late
                    elif name in ("event", "queued"):
                        on_event(parse_event(sent))
                    elif name == "answer":
                        return _parse_answer(sent, about["models"]["reader"])
                    elif name == "problem":
                        raise _parse_error(sent)
        raise ColligateError(f"the server at {self.url} closed the connection", "", "ask again")

    async def remove(self, documents: Sequence[str]) -> list[str]:
        """Remove documents by their ids; return the ids."""
        async with self._client() as client:
            for each in documents:
                place = f"{quote(self.library, safe='')}/documents/{quote(each, safe='')}"
                await _load(client.delete(f"api/libraries/{place}"))
        return list(documents)

    def _check_models(self, about: Mapping[str, Any], models: Mapping[str, str | None]) -> None:
        """Refuse models that were given here and are not the server's."""
        served = {**about["models"], **about["search"]}
        for role, given in models.items():
            if given is None:
                continue
            its = served.get(role) or served["reader"]
            name = anchor_name(given, Path.cwd())
            # What searches is reported as it was named, other models with their address.
            if role not in about["search"]:
                name = normalize_name(name)
            if redact_name(name).rstrip("/") != its.rstrip("/"):
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
            what = f"the connection to the server at {self.url} failed"
            raise ColligateError(what, why, "ask again") from error


async def find_server(
    folder: Path, wait: float = 0.0, on_event: Listener | None = None
) -> RemoteLibrary | None:
    """Return the library at the server that holds a folder, if a server does.

    One that is starting is waited for, up to `wait` seconds, which `on_event` hears of.

    An address in the folder counts only if the process that holds the lock at this moment has
    published it: it may be left from a server that was killed, or have come with the folder.
    """
    places = [(folder, DEFAULT_LIBRARY)]
    if folder.parent.name.endswith(LIBRARIES_SUFFIX):
        main = folder.parent.with_name(folder.parent.name.removesuffix(LIBRARIES_SUFFIX))
        places.append((main, folder.name))
    until = time.monotonic() + wait
    while True:
        holder = await in_thread(find_holder, folder)
        for place, name in places:
            address = read_address(place)
            if address is None or holder is None or address.pid != holder.pid:
                continue
            if await _answers(address):
                return RemoteLibrary(address, name)
        if holder is None or not holder.serves or time.monotonic() >= until:
            return None
        if on_event is not None:
            on_event(Progressed("waiting", 0, 0, f"for the server to start: {holder}"))
        await asyncio.sleep(_POLL)


async def _answers(address: Address) -> bool:
    """Return whether the server still answers: its port may be another program's."""
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS_TO_FIND, trust_env=False) as client:
            sent = (await client.get(f"{address.url}healthz")).json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return False
    return isinstance(sent, dict) and sent.get("instance") == address.instance


async def _load(call: Any) -> Any:
    response: httpx2.Response = await call
    if not response.is_success:
        raise _read_error(response)
    return response.json() if response.content else None


async def _read_events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """Yield the name and data of each event; each has its data on one line."""
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def _read_error(response: httpx2.Response) -> ColligateError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"status": response.status_code, "detail": f"HTTP {response.status_code}"}
    return _parse_error(problem)


def _parse_error(problem: Mapping[str, Any]) -> ColligateError:
    """Return the error behind a problem, so that the command ends as it does without a server."""
    found = getattr(errors, str(problem.get("type", "")).removeprefix("urn:colligate:"), None)
    kind = {401: NotAuthorised, 422: UsageError}.get(problem.get("status", 0), ColligateError)
    if isinstance(found, type) and issubclass(found, ColligateError):
        kind = found
    detail, hint = problem.get("detail", "the server failed"), problem.get("hint", "")
    return kind(str(detail), "", str(hint))


def _parse_answer(sent: Mapping[str, Any], reader: str) -> Answer:
    """Return the answer that `Answer.to_json` wrote."""
    usage = sent["usage"]
    known = [each.name for each in fields(UsageReport) if each.name in usage]
    return Answer(
        question=sent["question"],
        strategy=sent["strategy"],
        text=sent["answer"],
        found=sent["found"],
        short=sent["short_answer"],
        citations=tuple(
            Citation(
                span=Span(each["document"], each["start"], each["end"]),
                quote=each["quote"],
                title=each["title"],
                section=tuple(each["section"]),
                page=each["page"],
                answer_spans=tuple((start, end) for start, end in each["answer_spans"]),
                how=COMPUTED if sent.get("ground") == COMPUTED else "server",
                source=each.get("source", ""),
                date=each.get("date", ""),
                authors=each.get("authors", ""),
                meaning=Verdict(each["meaning"]) if each.get("meaning") else None,
                row=each.get("row"),
                head=each.get("table_head", ""),
            )
            for each in sent["citations"]
        ),
        evidence=tuple(
            Evidence(
                Span(each["document"], each["start"], each["end"]), each["score"], each["reason"]
            )
            for each in sent["evidence"]
        ),
        usage=UsageReport(**{name: usage[name] for name in known}),
        warnings=tuple(sent["warnings"]),
        model=reader,
        how=sent.get("how", ""),
    )


def _split_setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


# Events that a server sent

# The display treats these apart; of all others it shows the line.
_KINDS = {
    kind.__name__.lower(): kind for kind in (Asked, Asking, Measured, Noted, Progressed, Writing)
}


@dataclass(frozen=True)
class ServerEvent(Event):
    """An event as the server sent it."""

    sent: Mapping[str, Any]

    def line(self) -> str:
        return str(self.sent.get("line", ""))

    def to_json(self) -> dict[str, Any]:
        """Return what the server sent."""
        return dict(self.sent)


def parse_event(sent: Mapping[str, Any]) -> Event:
    """Return the event that `Event.to_json` wrote; prompts may have been left out."""
    sent = {name: value for name, value in sent.items() if name != "at"}
    name = sent.get("event")
    if name == "queued":
        return Progressed("waiting", 0, 0, f"at place {sent.get('place')} in the server's queue")
    values = {key: value for key, value in sent.items() if key not in ("event", "line")}
    if name == "asked":
        values.setdefault("messages", ())
    try:
        event: Event = TypeAdapter(_KINDS[str(name)]).validate_python(values)
    except (KeyError, ValidationError):
        return ServerEvent(sent)
    return event
