"""A library as a LlamaIndex retriever, for the extra `llamaindex`.

with Library("papers.library") as library:
    retriever = ColligateRetriever(library, k=5)
    nodes = retriever.retrieve("Which of these measured latency?")
"""

from __future__ import annotations

from collections.abc import Collection

from colligate.documents import Hit
from colligate.errors import MissingExtra, UsageError
from colligate.integrations.searching import Search, metadata
from colligate.library.sources import SearchMode, Sources
from colligate.sync import Library

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
except ImportError as error:
    raise MissingExtra(
        "the LlamaIndex retriever needs llama-index-core",
        f"{error.name or 'it'} is not installed",
        "pip install 'colligate[llamaindex]'",
    ) from error

# What a program needs to find the place again; to a model it would only be noise.
_FOR_PROGRAMS = ["document", "start", "end", "score"]


class ColligateRetriever(BaseRetriever):
    """Finds the passages of a library, best first, each with its exact place.

    `library` is a `colligate.Library`, or anything that is `Sources` (an `AsyncLibrary`, a view
    of one), which can only be awaited. It stays its owner's to close. `documents` are the ids
    of the documents to search; None searches all. The `metadata` of what is found are document,
    title, section, page, start, end and score.

    Raises:
        UsageError: `k` is not at least 1.
    """

    def __init__(
        self,
        library: Library | Sources,
        *,
        k: int = 10,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if k < 1:
            raise UsageError(f"cannot find {k} passages", "k is at least 1")
        super().__init__(callback_manager=callback_manager)
        self._search = Search(library, k, SearchMode(mode), documents)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in self._search.hits(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in await self._search.ahits(query_bundle.query_str)]


def _node(hit: Hit) -> NodeWithScore:
    passage = hit.passage
    unsaid = [*_FOR_PROGRAMS, "page"] if passage.page is None else _FOR_PROGRAMS
    node = TextNode(
        id_=passage.id,
        text=passage.text,
        metadata=metadata(hit),
        excluded_llm_metadata_keys=unsaid,
        excluded_embed_metadata_keys=[*_FOR_PROGRAMS, "page"],
        start_char_idx=passage.span.start,
        end_char_idx=passage.span.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=passage.document_id)},
    )
    return NodeWithScore(node=node, score=hit.score)
