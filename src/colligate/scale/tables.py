"""Lance tables in a folder or an object store: versions, conflicts of writers, old files."""

# mypy: implicit-reexport
from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Any, TypeVar

from colligate.errors import LibraryDamaged, LibraryError, LibraryLocked, MissingExtra

# Lance would write lines of its own when a commit meets another writer's and is made again.
os.environ.setdefault("LANCE_LOG", "error")

try:
    import lance
    import pyarrow as pa  # other modules take it from here: what is missing must be told
    from lance.fragment import write_fragments
except ImportError as error:
    raise MissingExtra(
        "a library on Lance tables needs pylance",
        f"{error.name or 'it'} is not installed",
        "pip install 'colligate[scale]'",
    ) from error

T = TypeVar("T")

CATALOGUE, PASSAGES, WORDS = "catalogue.lance", "passages.lance", "words.lance"

TRIES = 100
"""Times that a change meets another writer's before it is given up."""
_COMMITS = 64  # after so many, small fragments are put together
_SPARE = 64 << 20  # bytes of the disk that must be free
_KEPT = timedelta(hours=1)  # age of versions that other processes may still read
# Seconds in which the newest version is not looked for again: in a bucket each look is a request.
_FRESH = 0.01

NUMBER = pa.field(
    "number", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
"""The key of a table's rows: what is written twice is there once."""

# From so many passages on, terms have an index, and so have vectors: of a bit for each number in
# partitions of about so many passages. The best of all partitions, several times as many as asked
# for, are compared exactly: of the 50 nearest of 50,000 and 200,000 it finds .998 and all.
INDEXED = 20_000
_PARTITION = 4096
EVERY_PARTITION = 1 << 20
COMPARED_EXACTLY = 4  # times the passages asked for


@dataclass
class TablesPlace:
    """Where a library's tables are; `alone` says that no other process writes them now."""

    uri: str
    alone: Callable[[], bool]
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self, name: str) -> Table | None:
        """Open a table; None if there is none."""
        with self.translate_errors():
            try:
                return Table(lance.dataset(self._name(name), storage_options=self._options), self)
            except ValueError as error:
                if "was not found" in str(error):
                    return None
                raise

    def make(self, name: str, rows: pa.Table) -> Table:
        """Make a table of these rows, or open the one that another process has just made."""
        with self.translate_errors():
            # Not by `write_dataset`: it writes over a table that was made while it wrote the rows.
            uri, options = self._name(name), self._options
            try:
                new = write_fragments(
                    rows, uri, mode="create", return_transaction=True, storage_options=options
                )
                made = lance.LanceDataset.commit(uri, new, max_retries=0, storage_options=options)
            except OSError:
                if found := self.open(name):
                    return found
                raise
            return Table(made, self)

    def replace(self, name: str, rows: pa.Table) -> Table:
        """Make these rows all that a table has, whether there is one already or not."""
        with self.translate_errors():
            made = lance.write_dataset(
                rows, self._name(name), mode="overwrite", storage_options=self._options
            )
            return Table(made, self)

    def delete(self, name: str) -> None:
        """Delete a table with all its versions."""
        with self.translate_errors():
            lance.LanceDataset.drop(self._name(name), self._options, ignore_not_found=True)

    def check_space(self) -> None:
        """Raise `LibraryError` if the disk of a folder is nearly full: Lance may not say so."""
        if "://" in self.uri:
            return
        free = shutil.disk_usage(self.uri).free
        if free < _SPARE:
            raise LibraryError(
                f"cannot write the passage index in {self.uri}",
                f"{free >> 20} MB are free on its disk, and at least {_SPARE >> 20} MB are needed",
                "free some space, or name a library elsewhere with --library",
            )

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise Lance's errors as errors of colligate."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            text = str(error).replace(self.uri.strip("/"), "")
            if "oncurrent" in text or "conflict" in text:
                why = "other processes write it at the same time"
                raise LibraryLocked(
                    f"cannot write the library {self.uri}", why, "try again"
                ) from error
            # Lance adds the places in its own source to what it says.
            why = re.split(r", /\S+\.rs:\d+|\n|: <\?xml", str(error))[0]
            hint = "check that the place can be reached, then run `colligate library verify`"
            raise LibraryDamaged(f"cannot use the library {self.uri}", why, hint) from error

    def _name(self, name: str) -> str:
        return f"{self.uri}/{name}"

    @property
    def _options(self) -> dict[str, str]:
        return dict(self.options)


class Table:
    """One Lance table; one thread changes it at a time.

    Reads see the version that was the newest at most `_FRESH` seconds ago; with `pinned` the one it
    was opened with, until that is erased.
    """

    def __init__(
        self, dataset: lance.LanceDataset, place: TablesPlace, *, pinned: bool = False
    ) -> None:
        self._dataset = dataset
        self._place = place
        self._pinned = pinned
        self._changing = threading.Lock()
        self._setting = threading.Lock()
        self._commits = 0
        self._looked = time.monotonic()

    @property
    def uri(self) -> str:
        return str(self._dataset.uri)

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    def refresh(self, *, again: bool = False) -> int:
        """Find which version is the newest, and return it; with `again` look in any case."""
        if self._pinned or (not again and time.monotonic() < self._looked + _FRESH):
            return int(self._dataset.version)
        with self._place.translate_errors():
            known = self._dataset
            newest = known.latest_version
            found = known if newest == known.version else known.checkout_version(newest)
            with self._setting:
                if self._dataset is known:  # otherwise a change here has made a newer one
                    self._dataset = found
            self._looked = time.monotonic()
            return int(self._dataset.version)

    def pin(self) -> Table:
        """Return this table as it is now: later changes are not seen."""
        self.refresh(again=True)
        return Table(self._dataset, self._place, pinned=True)

    def read(self, columns: Sequence[str], where: str | None = None, **more: Any) -> pa.Table:
        """Return the rows for which `where` holds."""
        self.refresh()
        try:
            return self._dataset.to_table(list(columns), filter=where, **more)
        except (OSError, ValueError):  # perhaps the files of this version were erased a moment ago
            self._pinned = False
            self.refresh(again=True)
        with self._place.translate_errors():
            return self._dataset.to_table(list(columns), filter=where, **more)

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return rows by their places in the version that was read last."""
        with self._place.translate_errors():
            return self._dataset.take(list(rows), list(columns))

    def is_large(self) -> bool:
        """Return whether its terms and vectors have an index."""
        return self.count() >= INDEXED

    def count(self) -> int:
        """Return the number of rows."""
        self.refresh()
        with self._place.translate_errors():
            return int(self._dataset.count_rows())

    def upsert(self, rows: pa.Table, version: int | None = None) -> int:
        """Write rows over those with the same number, and return the new version.

        With `version`, `LibraryLocked` is raised if others have written these rows since it.
        """
        with self._change(version) as data:
            merge = data.merge_insert("number")
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(TRIES if version is None else 0).execute(rows)
        self._tidy_sometimes()
        return int(data.version)

    def update(self, changes: dict[str, str], where: str) -> int:
        """Change columns, to SQL expressions, where `where` holds; return the new version."""
        with self._change() as data:
            data.update(changes, where)
        self._tidy_sometimes()
        return int(data.version)

    def delete(self, where: str) -> None:
        """Delete the rows for which `where` holds from this version and later ones."""
        with self._change() as data:
            data.delete(where)

    def tag(self, name: str) -> None:
        """Keep this version under a name."""
        with self._place.translate_errors():
            tags = self._dataset.tags
            change = tags.update if name in tags.list() else tags.create
            change(name, self._dataset.version)

    def untag(self, name: str) -> None:
        """Forget a name; the version is deleted with the other old ones."""
        with self._place.translate_errors(), suppress(ValueError):  # there is none
            self._dataset.tags.delete(name)

    def list_tags(self) -> list[str]:
        """Return the names of versions, in order."""
        with self._place.translate_errors():
            return sorted(self._dataset.tags.list())

    def restore(self, name: str) -> None:
        """Make the version of this name the newest, in one commit."""
        with self._changing, self._place.translate_errors():
            data = self._dataset.checkout_version(name)
            data.restore()
            with self._setting:
                self._dataset = data

    def tidy(self, rows_each: int = 1024, *, indexes: bool = False, erase: bool = False) -> None:
        """Put small fragments together, and delete versions that nobody reads any more.

        With `erase`, all older versions while no other process writes, except those with a name.
        With `indexes` those of documents and vectors are built anew: they have deleted rows.
        """
        alone = erase and self._place.alone()
        self.refresh(again=True)
        try:
            with self._change() as data:
                for known in data.describe_indices() if indexes else ():
                    data.drop_index(known.name)
                data.optimize.compact_files(
                    target_rows_per_fragment=rows_each, materialize_deletions_threshold=0.0
                )
                rows = data.count_rows() if indexes else 0
                if rows >= INDEXED:
                    data.create_scalar_index("document", "BTREE")
                    # Another process may have made it since it was dropped here.
                    partitions = -(-rows // _PARTITION)
                    data.create_index(
                        "vector", "IVF_RQ", metric="dot", num_partitions=partitions, replace=True
                    )
                data.cleanup_old_versions(
                    timedelta(0) if alone else _KEPT,
                    delete_unverified=alone,
                    error_if_tagged_old_versions=False,
                )
        except LibraryLocked:
            if alone:
                raise
            # Another process has changed the table; a later call will do it.

    def list_leftovers(self) -> list[str]:
        """Return the files of this table that are not of its newest version."""
        self.refresh(again=True)
        with self._place.translate_errors():
            found = self._dataset.explain_cleanup_old_versions(
                timedelta(0),
                delete_unverified=True,
                include_files=True,
                error_if_tagged_old_versions=False,
            )
        return [each.path for each in found.candidate_files]

    def check(self) -> list[str]:
        """Return what Lance itself finds wrong."""
        try:
            with self._place.translate_errors():
                self._dataset.validate()
        except LibraryDamaged as error:
            return [str(error)]
        return []

    @contextmanager
    def _change(self, version: int | None = None) -> Iterator[lance.LanceDataset]:
        """Yield a copy of the newest version to change: reads under way keep the one they have."""
        with self._changing, self._place.translate_errors():
            data = self._dataset.checkout_version(version or self._dataset.version)
            try:
                yield data
            except BaseException:
                self._looked = -inf  # another process may have changed the table
                raise
            with self._setting:
                self._dataset = data

    def _tidy_sometimes(self) -> None:
        self._commits += 1
        if self._commits % _COMMITS == 0:
            self.tidy()


def any_of(column: str, numbers: Iterable[int]) -> str:
    """Return the condition that a column has one of these numbers."""
    return f"{column} IN ({','.join(map(str, numbers))})"
