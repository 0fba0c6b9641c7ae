"""A retriever server: passages of a corpus that this machine does not hold.

It is asked as Search-R1's `/retrieve` and FlashRAG's `/search` are, with the fields of both in one
body; each leaves out those of the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Any, ClassVar
from urllib.parse import urlsplit

from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.documents import Document, Hit, clean_text
from colligate.documents.reading.source import document_id
from colligate.documents.tree import flat_tree, shorten_title
from colligate.errors import MalformedOutput
from colligate.models.base import redact_url
from colligate.models.openai_http import Endpoint, Garbled


class HTTPRetriever:
    """Asks a server for passages; each becomes a document of the run, so that it can be cited.

    `url` is the whole address; without a path it is Search-R1's, `/retrieve`.
    """

    name: ClassVar[str] = "http"
    needs: ClassVar[Needs] = Needs(required=frozenset())
    outside: ClassVar[bool] = True
    """It searches a corpus of its own, not the documents in view."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        folder, _, last = parts.path.rstrip("/").rpartition("/")
        self._path = f"/{last or 'retrieve'}"
        self._endpoint = Endpoint(parts._replace(path=folder).geturl())
        self._source = redact_url(url)

    def __repr__(self) -> str:
        return f"HTTPRetriever({self._source!r})"

    async def retrieve(
        self, query: str, run: Run, *, k: int, documents: Collection[str] | None = None
    ) -> list[Hit]:
        """Return the `k` best passages of the server; inside `documents`, those of them it finds.

        Raises:
            ModelError: the server does not answer, or not with passages.
        """
        body = {
            **{"queries": [query], "topk": k, "return_scores": True},  # Search-R1
            **{"query": query, "top_n": k, "return_score": True},  # FlashRAG
        }
        began = time.perf_counter()
        try:
            found = await self._endpoint.post(self._path, body, _read_passages)
        except MalformedOutput as error:
            hint = "is it a server such as Search-R1's /retrieve or FlashRAG's /search?"
            raise MalformedOutput(error.what, error.why, hint) from None
        run.meter.retrieval(time.perf_counter() - began)
        hits = []
        for passage, score in found[:k]:
            document = _make_document(passage, self._source)
            if document.text.strip() and (documents is None or document.id in documents):
                run.adopt(document)
                hits.append(Hit(document.passage(document.span(0, len(document))), score))
        return hits

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def _read_passages(answer: Any) -> list[tuple[dict[str, Any], float]]:
    """Return each passage with its score, best first; without scores, 1 divided by the rank."""
    try:
        if isinstance(answer, dict):  # Search-R1: {"result": [[{"document", "score"}, ...]]}
            rows = answer["result"][0]
            pairs = [
                (row["document"], row["score"]) if "document" in row else (row, None)
                for row in rows
            ]
        elif answer and isinstance(answer[0], list):  # FlashRAG: [[passage, ...], [score, ...]]
            pairs = list(zip(*answer, strict=True))
        else:
            pairs = [(row, None) for row in answer]
        found = [
            (dict(passage), 1 / rank if score is None else float(score))
            for rank, (passage, score) in enumerate(pairs, 1)
        ]
    except (KeyError, IndexError, TypeError, ValueError):
        raise Garbled("it has no passages") from None
    if not all(math.isfinite(score) for _, score in found):
        raise Garbled("a score is not finite")
    return found


def _make_document(passage: dict[str, Any], source: str) -> Document:
    """Return a passage as a document; its `contents` are the title, in quotes, above the text."""
    title, text = str(passage.get("title") or ""), str(passage.get("text") or "")
    if not text:
        text = str(passage.get("contents") or "")
        first, parted, rest = text.partition("\n")
        if parted:
            title, text = title or first.strip().strip('"'), rest
    text, title = clean_text(text), shorten_title(clean_text(title))
    name = document_id(title or "passage", text)
    facts = {"id": clean_text(str(passage["id"]))} if passage.get("id") is not None else {}
    tree = flat_tree(name, len(text))
    return Document(name, title, text, tree, source=source, metadata=facts)
