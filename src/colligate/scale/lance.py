"""A library on Lance tables, in a folder or in an object store; for the extra `scale`.

catalogue.lance   documents with their texts, files, and facts: one table, so each change is one
                  commit
passages.lance    the passages' vectors and terms
words.lance       which passages have which terms, once there are many: made from the former

Readers take no lock. Each change to the catalogue also replaces one row, the clock: of two writers
at the same time one meets a conflict, reads again and repeats its change. So numbers are given out
and documents are taken or left as by one process. Passages are written by their numbers: written
twice they are there once.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from colligate.concurrency import in_thread
from colligate.errors import LibraryDamaged, LibraryError, LibraryLocked, UsageError
from colligate.library import schema
from colligate.library.catalogue import Catalogue
from colligate.library.protocols import PassageStore
from colligate.library.search import SearchStore
from colligate.library.store import LibraryStore
from colligate.private import make_private_folder
from colligate.scale.catalogue import LanceCatalogue
from colligate.scale.index import LanceIndex
from colligate.scale.tables import CATALOGUE, PASSAGES, TRIES, WORDS, Table, TablesPlace

_POLL = 0.1  # seconds between looks whether another process still holds the lock

_WRITER, _ERASING = "writer:", "erasing: "


class LanceStore(LibraryStore):
    """The parts of a library on Lance tables, in its folder or at `uri` in a bucket.

    In a folder, a lock lets one process write at a time. In a bucket many may write: each records
    that it does, so that nobody erases files that another one is about to commit. The folder then
    has what this machine keeps of the library: replies, runs, files that were sent or fetched.
    """

    catalogue_name = CATALOGUE

    def __init__(self, path: Path, uri: str = "") -> None:
        super().__init__(path)
        self.uri = uri or str(path)
        self._in_bucket = bool(uri)
        self._is_checked = self._is_erasing = False
        self._writer = ""  # the fact under which this process is recorded in a bucket
        http = {"allow_http": "true"} if uri and _endpoint().startswith("http:") else {}
        self._place = TablesPlace(self.uri, self._is_alone, http)

    async def lock_catalogue(self) -> Catalogue:
        """Take the lock of a folder, or record in a bucket that this process writes."""
        catalogue = await super().lock_catalogue()
        if self._in_bucket and not self._writer:
            await in_thread(self._register, catalogue, "")
        return catalogue

    async def lock_to_erase(self, *, force: bool) -> Catalogue:
        """Open the catalogue while no other process writes; with `force`, whatever is recorded."""
        catalogue = await super().lock_catalogue()
        if self._in_bucket:
            await in_thread(self._register, catalogue, _ERASING, force=force)
            self._is_erasing = True
        return catalogue

    def is_written_elsewhere(self) -> bool:
        if self._in_bucket:
            return isinstance(self._catalogue, LanceCatalogue) and any(
                each != self._writer and not _has_ended(each)
                for each in self._catalogue.list_facts(_WRITER)
            )
        return super().is_written_elsewhere()

    def keep_lock(self) -> None:
        """Do nothing: the catalogue's own lock guards a folder, and a bucket has no locks."""

    async def pin(self) -> SearchStore:
        """Return the catalogue and the index as they are now, whatever others write."""
        catalogue, index = await self.open_catalogue(), await self.open_index()
        if not isinstance(catalogue, LanceCatalogue):
            return self
        return await in_thread(_pin, catalogue, index)

    def list_snapshots(self) -> list[str]:
        table = self._place.open(CATALOGUE)
        return table.list_tags() if table else []

    async def take_snapshot(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            why = "a name has letters, digits, points, - and _"
            raise UsageError(f"cannot take the snapshot {name!r}", why, "choose another name")
        if name in await in_thread(self.list_snapshots):
            raise UsageError(f"cannot take the snapshot {name}", "it exists", "choose another name")
        pinned = await self.pin()
        if not isinstance(pinned, _PinnedStore):
            raise UsageError(f"cannot take a snapshot of {self.uri}", "there is no library")
        if pinned.index:
            await in_thread(pinned.index.table.tag, name)
        await in_thread(pinned.catalogue.table.tag, name)  # last: it is what counts

    def delete_snapshot(self, name: str) -> None:
        for table in self._open_tables():  # the catalogue's is the one that counts
            table.untag(name)

    def restore(self, name: str, catalogue: Catalogue) -> None:
        assert isinstance(catalogue, LanceCatalogue)
        _, *passages = self._open_tables()
        kept = [table for table in passages if name in table.list_tags()]
        for table in kept:
            table.restore(name)
        catalogue.database.restore(name)
        catalogue.set_meta(**dict.fromkeys(catalogue.list_facts(_WRITER)))
        if not kept:  # they were another embedder's, or there were none
            self.drop_index(catalogue)

    def _open_tables(self) -> list[Table]:
        """Open the catalogue's table, then those of the passages and words, if there are any."""
        tables = (self._place.open(each) for each in (CATALOGUE, PASSAGES, WORDS))
        return [table for table in tables if table]

    def end_change(self) -> None:
        """Let others erase."""
        if self._writer and isinstance(self._catalogue, LanceCatalogue):
            with suppress(LibraryError):  # the change itself has said so
                self._catalogue.set_meta(**{self._writer: None})
        self._writer, self._is_erasing = "", False

    def list_leftovers(self) -> list[str]:
        """Return the files of older versions, and of changes that were not finished."""
        return [file for table in self._open_tables() for file in table.list_leftovers()]

    @property
    def _is_writing(self) -> bool:
        return bool(self._writer) or self._lock.is_locked

    def _is_alone(self) -> bool:
        return self._is_erasing if self._in_bucket else self._is_writing

    def _register(self, catalogue: Catalogue, what: str, *, force: bool = False) -> None:
        """Record that this process writes; raise `LibraryLocked` if another one forbids it.

        Both look for others after they have recorded themselves, so one of two sees the other.
        """
        assert isinstance(catalogue, LanceCatalogue)
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        me = f"process {os.getpid()} on {platform.node()} since {since}"
        self._writer = f"{_WRITER}{uuid.uuid4().hex} {_name_process()}"
        gone = [each for each in catalogue.list_facts(_WRITER) if force or _has_ended(each)]
        catalogue.set_meta(**{**dict.fromkeys(gone), self._writer: what + me})
        found = catalogue.list_facts(_WRITER)
        del found[self._writer]
        for other in found.values():
            if what or other.startswith(_ERASING):
                self.end_change()
                raise LibraryLocked(
                    f"cannot {'erase' if what else 'write'} in the library {self.uri}",
                    f"another process writes it ({other})",
                    "wait; if its machine is gone, `colligate library erase --force`",
                )

    async def _hold(self) -> None:
        if self._in_bucket:
            if not self._is_checked:
                make_private_folder(self.path)
                await in_thread(check_conditional_put, self.uri)
                self._is_checked = True
        elif not self._lock.is_locked:
            await in_thread(self._check_folder)
            deadline = time.monotonic() + schema.WAIT_SECONDS
            while not await in_thread(self._try_lock):
                if time.monotonic() >= deadline:
                    why = "another process is writing it"
                    hint = "stop it, wait for it, or name another --library"
                    raise LibraryLocked(f"cannot open the library {self.path}", why, hint)
                await asyncio.sleep(_POLL)

    def close(self) -> None:
        """Close everything. Safe to call twice."""
        if self._catalogue is not None and self._lock.is_locked:
            self._catalogue.checkpoint()
        super().close()

    def _check_folder(self) -> None:
        if not self._in_bucket:
            super()._check_folder()

    def _open_catalogue(self, *, make: bool) -> Catalogue | None:
        if table := self._place.open(CATALOGUE):
            writable = self._in_bucket or os.access(self.path, os.W_OK)
            return LanceCatalogue.open(table, read_only=not writable)
        return LanceCatalogue.make(self._place) if make else None

    def _load_index(self, catalogue: Catalogue, dimension: int | None) -> PassageStore | None:
        table = self._place.open(PASSAGES)
        index = LanceIndex(table, self._place) if table else None
        searchable = catalogue.is_searchable()
        if index and dimension not in (None, index.dimension) and not searchable:
            self._delete_index()  # another embedder's, of documents that are gone
            index = None
        if index is None and dimension is not None:
            index = LanceIndex.make(self._place, dimension)
        if index is None and searchable:
            raise LibraryDamaged(
                f"cannot search the library {self.uri}",
                "its passages are missing",
                "rebuild them with `colligate library verify --repair`",
            )
        return index

    def _delete_index(self) -> None:
        self._place.delete(WORDS)
        self._place.delete(PASSAGES)


def _name_process() -> str:
    """Return what tells this process from those of all machines and containers that run now; empty
    where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getpid()}"
    except OSError:
        return ""


def _has_ended(writer: str) -> bool:
    """Tell whether a recorded process ran on this machine and has ended."""
    _, *here, process = writer.split(" ")
    if not process or here != _name_process().split(" ")[:-1]:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's
    return False


@dataclass(frozen=True, slots=True)
class _PinnedStore:
    """One version of the catalogue, and the version of the index that belongs to it."""

    catalogue: LanceCatalogue
    index: LanceIndex | None

    async def open_catalogue(self) -> Catalogue:
        return self.catalogue

    async def open_index(self) -> PassageStore | None:
        return self.index


def _pin(catalogue: LanceCatalogue, index: PassageStore | None) -> _PinnedStore:
    assert isinstance(index, LanceIndex | None)
    for _ in range(TRIES):
        pinned = _PinnedStore(catalogue.pin(), index.pin() if index else None)
        if pinned.catalogue.is_at(catalogue):  # nobody has written in between
            break
    return pinned


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")


def check_conditional_put(uri: str) -> None:
    """Raise `LibraryError` unless an object store refuses to write over an object when asked to.

    Without it two writers may both believe that they have made a version.
    """
    # Imported here: a folder needs none of it.
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import get_session

    bucket, _, name = uri.removeprefix("s3://").partition("/")
    config = Config(
        connect_timeout=10,
        retries={"total_max_attempts": 2},
        request_checksum_calculation="when_required",  # not every store has them
    )
    try:
        client = get_session().create_client(
            "s3", region_name=os.environ.get("AWS_REGION"), config=config
        )
        for _ in range(2):
            client.put_object(Bucket=bucket, Key=f"{name}/conditional-put", IfNoneMatch="*")
        why = "it writes over an object also when asked not to"
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
            return
        why = str(error)
    except BotoCoreError as error:
        why = str(error)
    hint = "check the AWS_* variables; the store must support conditional put (If-None-Match)"
    raise LibraryError(f"cannot write the library {uri}", why, hint)
