"""Some documents of a library, as if there were no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from colligate.documents import Document, Hit
from colligate.library.searching import Searching, unknown
from colligate.library.sources import DocumentInfo, SearchMode


class View:
    """`Sources` over some documents of a library, in the order given."""

    def __init__(self, searching: Searching, document_ids: Iterable[str]) -> None:
        self._searching = searching
        self._ids = list(dict.fromkeys(document_ids))
        self._known = frozenset(self._ids)

    async def documents(self) -> Sequence[DocumentInfo]:
        """The documents in view.

        Raises:
            UnknownDocument: if one of them is not in the library.
        """
        infos = {info.id: info for info in await self._searching.documents()}
        if gone := [document_id for document_id in self._ids if document_id not in infos]:
            raise unknown(gone[0])
        return [infos[document_id] for document_id in self._ids]

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it is not in view.
        """
        if document_id not in self._known:
            raise unknown(document_id)
        return await self._searching.document(document_id)

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """The `k` best passages in view.

        Raises:
            UnknownDocument: if one of `documents` is not in view.
        """
        if documents is None:
            return await self._searching.search(query, k, mode, self._ids, as_given=True)
        if outside := [document_id for document_id in documents if document_id not in self._known]:
            raise unknown(outside[0])
        within = set(documents)
        order = [document_id for document_id in self._ids if document_id in within]
        return await self._searching.search(query, k, mode, order, as_given=True)
