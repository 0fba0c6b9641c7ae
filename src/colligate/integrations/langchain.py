"""A library as a LangChain retriever, for the extra `langchain`.

with Library("papers.library") as library:
    retriever = ColligateRetriever(library=library, k=5)
    documents = retriever.invoke("Which of these measured latency?")
"""

from __future__ import annotations

from colligate.documents import Hit
from colligate.errors import MissingExtra
from colligate.library.sources import SearchMode
from colligate.sync import Library

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import PositiveInt
except ImportError as error:
    what = "the LangChain retriever needs langchain-core"
    raise MissingExtra.of(error, what, "langchain") from error


class ColligateRetriever(BaseRetriever):
    """Finds the passages of a library, best first, each with its exact place.

    The retriever never closes the library. Awaited, it searches in a thread. The `metadata` of each
    document has document, title, source (the path of its file), section, page, row, date, start,
    end and score.
    """

    library: Library
    k: PositiveInt = 10
    mode: SearchMode = SearchMode.HYBRID
    documents: tuple[str, ...] | None = None
    """The ids of the documents to search; None searches all."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        hits = self.library.search(query, k=self.k, mode=self.mode, documents=self.documents)
        return [_to_document(hit) for hit in hits]


def _to_document(hit: Hit) -> Document:
    return Document(id=hit.passage.id, page_content=hit.passage.text, metadata=hit.to_json())
