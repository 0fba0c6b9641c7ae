"""A library as a LlamaIndex retriever, for the extra `llamaindex`.

with Library("papers.library") as library:
    retriever = ColligateLlamaIndexRetriever(library, k=5)
    nodes = retriever.retrieve("Which of these measured latency?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from colligate.documents import Hit
from colligate.errors import MissingExtra, UsageError
from colligate.library.sources import SearchMode
from colligate.sync import Library

try:
    from llama_index.core import schema
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
except ImportError as error:
    what = "the LlamaIndex retriever needs llama-index-core"
    raise MissingExtra.of(error, what, "llamaindex") from error

# Programs need these to find the place; a model does not.
_FOR_PROGRAMS = ["document", "source", "start", "end", "score"]


class ColligateLlamaIndexRetriever(BaseRetriever):
    """Finds the passages of a library, best first, each with its exact place.

    The retriever never closes the library. Awaited, it searches in a thread. `documents` are the
    ids of the documents to search; None searches all. The `metadata` of each node has document,
    title, source (the path of its file), section, page, row, date, start, end and score.

    Raises:
        UsageError: `k` is less than 1.
    """

    def __init__(
        self,
        library: Library,
        *,
        k: int = 10,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if k < 1:
            raise UsageError(f"cannot find {k} passages", "k must be at least 1")
        super().__init__(callback_manager=callback_manager)
        self._library = library
        self._options: Any = {"k": k, "mode": SearchMode(mode), "documents": documents}

    def _retrieve(self, query_bundle: schema.QueryBundle) -> list[schema.NodeWithScore]:
        hits = self._library.search(query_bundle.query_str, **self._options)
        return [_to_node(hit) for hit in hits]

    async def _aretrieve(self, query_bundle: schema.QueryBundle) -> list[schema.NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _to_node(hit: Hit) -> schema.NodeWithScore:
    passage, metadata = hit.passage, hit.to_json()
    unknown = [name for name in ("page", "row") if metadata[name] is None]
    source = {schema.NodeRelationship.SOURCE: schema.RelatedNodeInfo(node_id=passage.document_id)}
    node = schema.TextNode(
        id_=passage.id,
        text=passage.text,
        metadata=metadata,
        excluded_llm_metadata_keys=[*_FOR_PROGRAMS, *unknown],
        excluded_embed_metadata_keys=[*_FOR_PROGRAMS, "page", "row"],
        start_char_idx=passage.span.start,
        end_char_idx=passage.span.end,
        relationships=source,
    )
    return schema.NodeWithScore(node=node, score=hit.score)
