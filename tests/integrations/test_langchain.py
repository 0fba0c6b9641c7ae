from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")

from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from pydantic import ValidationError

from colligate import InMemorySources
from colligate.errors import UsageError
from colligate.integrations.langchain import ColligateRetriever


def test_each_document_has_its_exact_place(library):
    found = ColligateRetriever(library=library, k=2).invoke("otters diet fish too")
    assert [document.metadata["title"] for document in found][:1] == ["Otters"]
    for document in found:
        place = document.metadata
        text = library.document(place["document"]).text
        assert text[place["start"] : place["end"]] == document.page_content
        assert document.id == f"{place['document']}:{place['start']}-{place['end']}"
    assert set(found[0].metadata) == {
        *("document", "title", "source", "date", "section", "page", "row"),
        *("start", "end", "score"),
    }
    assert found[0].metadata["section"] == ["Otters", "Diet"]
    assert Path(found[0].metadata["source"]).name == "otter.md"
    assert found[0].metadata["page"] is None
    assert found[0].metadata["score"] >= found[1].metadata["score"]


async def test_awaited_it_finds_the_same(library):
    retriever = ColligateRetriever(library=library, k=3)
    assert await retriever.ainvoke("fish") == retriever.invoke("fish")
    assert len(await retriever.abatch(["fish", "wade"])) == 2


async def test_sources_can_only_be_awaited(library):
    documents = [library.document(info.id) for info in library.documents()]
    retriever = ColligateRetriever(library=InMemorySources(documents), k=1, mode="sparse")
    (found,) = await retriever.ainvoke("herons wade")
    assert found.metadata["title"] == "Herons"
    with pytest.raises(UsageError, match="await"):
        retriever.invoke("herons wade")


def test_only_the_documents_named_are_searched(library):
    heron = next(info.id for info in library.documents() if info.title == "Herons")
    retriever = ColligateRetriever(library=library, documents=(heron,))
    assert {document.metadata["document"] for document in retriever.invoke("fish")} == {heron}


def test_it_works_in_a_chain_and_as_a_tool(library):
    retriever = ColligateRetriever(library=library, k=1)
    prompts = []

    def join(documents):
        prompts.extend(document.page_content for document in documents)
        return "\n".join(prompts)

    chain = (
        {"context": retriever | join, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | FakeListChatModel(responses=["Fish."])
        | StrOutputParser()
    )
    assert chain.invoke("otters diet fish too") == "Fish."
    assert len(prompts) == 1
    assert "fish too" in prompts[0]
    tool = create_retriever_tool(retriever, "animals", "Searches books about animals.")
    assert "fish too" in tool.invoke({"query": "otters diet fish too"})


@pytest.mark.parametrize("wrong", [{"k": 0}, {"mode": "psychic"}, {"library": "a folder"}])
def test_wrong_arguments_are_refused_at_once(library, wrong):
    with pytest.raises(ValidationError):
        ColligateRetriever(**{"library": library, **wrong})
