"""A library as a retriever of LangChain and of LlamaIndex."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import UsageError

Found = list[tuple[str, str, dict[str, Any]]]
"""Of each passage its id, its text, and its metadata."""


@dataclass
class Adapter:
    make: Callable[..., Any]
    find: Callable[[Any, str], Found]
    await_: Callable[[Any, str], Awaitable[Found]]


def langchain() -> Adapter:
    pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")
    from colligate.integrations.langchain import ColligateRetriever

    def show(found: Any) -> Found:
        return [(each.id, each.page_content, each.metadata) for each in found]

    async def await_(retriever: Any, query: str) -> Found:
        return show(await retriever.ainvoke(query))

    return Adapter(
        lambda library, **options: ColligateRetriever(library=library, **options),
        lambda retriever, query: show(retriever.invoke(query)),
        await_,
    )


def llamaindex() -> Adapter:
    pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")
    from colligate.integrations.llamaindex import ColligateLlamaIndexRetriever

    def show(found: Any) -> Found:
        return [(each.node.node_id, each.node.get_content(), each.node.metadata) for each in found]

    async def await_(retriever: Any, query: str) -> Found:
        return show(await retriever.aretrieve(query))

    return Adapter(
        ColligateLlamaIndexRetriever,
        lambda retriever, query: show(retriever.retrieve(query)),
        await_,
    )


@pytest.fixture(params=[langchain, llamaindex])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    made: Adapter = request.param()
    return made


async def test_each_passage_has_its_exact_place(library, adapter):
    retriever = adapter.make(library, k=2)
    found = adapter.find(retriever, "otters diet fish too")
    for identity, text, place in found:
        whole = library.document(place["document"]).text
        assert whole[place["start"] : place["end"]] == text
        assert identity == f"{place['document']}:{place['start']}-{place['end']}"
    first, second = (metadata for _, _, metadata in found)
    assert set(first) == {
        *("document", "title", "source", "date", "section", "page", "row"),
        *("start", "end", "score"),
    }
    assert (first["title"], first["section"], first["page"]) == ("Otters", ["Otters", "Diet"], None)
    assert Path(first["source"]).name == "otter.md"
    assert first["score"] >= second["score"]
    assert await adapter.await_(retriever, "otters diet fish too") == found


def test_only_the_documents_named_are_searched(library, adapter):
    heron = next(info.id for info in library.documents() if info.title == "Herons")
    found = adapter.find(adapter.make(library, documents=(heron,)), "fish")
    assert {metadata["document"] for _, _, metadata in found} == {heron}


@pytest.mark.parametrize("wrong", [{"k": 0}, {"mode": "psychic"}])
def test_wrong_arguments_are_refused_at_once(library, adapter, wrong):
    with pytest.raises((UsageError, ValueError)):
        adapter.make(library, **wrong)


def test_langchains_works_in_a_chain_and_as_a_tool(library):
    adapter = langchain()
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough
    from langchain_core.tools import create_retriever_tool

    retriever = adapter.make(library, k=1)
    prompts = []

    def join(documents):
        prompts.extend(document.page_content for document in documents)
        return "\n".join(prompts)

    chain = (
        {"context": retriever | join, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | FakeListChatModel(responses=["Fish."])
    )
    assert chain.invoke("otters diet fish too").content == "Fish."
    assert ["fish too" in prompt for prompt in prompts] == [True]
    tool = create_retriever_tool(retriever, "animals", "Searches books about animals.")
    assert "fish too" in tool.invoke({"query": "otters diet fish too"})


def test_llamaindexs_answers_in_a_query_engine_and_shows_a_model_no_offsets(library):
    adapter = llamaindex()
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import MetadataMode

    retriever = adapter.make(library, k=1)
    response = RetrieverQueryEngine.from_args(retriever, llm=MockLLM()).query("otters diet fish")
    assert "fish too" in str(response)  # the mock repeats its prompt
    (found,) = response.source_nodes
    assert found.node.ref_doc_id == found.node.metadata["document"]
    shown = found.node.get_content(MetadataMode.LLM)
    assert "Diet" in shown
    assert "start" not in shown
    assert "otter.md" not in shown  # a path says where the files of a person are
    assert "page" not in shown  # it has none
    assert "row" not in shown
