from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode

from colligate import InMemorySources
from colligate.errors import UsageError
from colligate.integrations.llamaindex import ColligateLlamaIndexRetriever


def test_each_node_has_its_exact_place(library):
    found = ColligateLlamaIndexRetriever(library, k=2).retrieve("otters diet fish too")
    for one in found:
        place = one.node.metadata
        text = library.document(place["document"]).text
        assert text[place["start"] : place["end"]] == one.node.get_content()
        assert one.node.node_id == f"{place['document']}:{place['start']}-{place['end']}"
        assert one.node.ref_doc_id == place["document"]
        assert one.score == place["score"]
    assert found[0].node.metadata["title"] == "Otters"
    assert found[0].node.metadata["section"] == ["Otters", "Diet"]
    assert found[0].score >= found[1].score


def test_a_model_is_shown_the_heading_and_no_offsets(library):
    (found,) = ColligateLlamaIndexRetriever(library, k=1).retrieve("otters diet fish too")
    shown = found.node.get_content(MetadataMode.LLM)
    assert "Diet" in shown
    assert found.node.metadata["source"].endswith("otter.md")
    assert "start" not in shown
    assert "otter.md" not in shown  # a path says where the files of a person are
    assert "page" not in shown  # it has none
    assert "row" not in shown


async def test_awaited_it_finds_the_same(library):
    retriever = ColligateLlamaIndexRetriever(library, k=3)
    assert await retriever.aretrieve("fish") == retriever.retrieve("fish")


async def test_sources_can_only_be_awaited(library):
    documents = [library.document(info.id) for info in library.documents()]
    retriever = ColligateLlamaIndexRetriever(InMemorySources(documents), k=1, mode="sparse")
    (found,) = await retriever.aretrieve("herons wade")
    assert found.node.metadata["title"] == "Herons"
    with pytest.raises(UsageError, match="await"):
        retriever.retrieve("herons wade")


def test_only_the_documents_named_are_searched(library):
    heron = next(info.id for info in library.documents() if info.title == "Herons")
    found = ColligateLlamaIndexRetriever(library, documents=[heron]).retrieve("fish")
    assert {one.node.metadata["document"] for one in found} == {heron}


def test_a_query_engine_answers_from_it(library):
    engine = RetrieverQueryEngine.from_args(
        ColligateLlamaIndexRetriever(library, k=1), llm=MockLLM()
    )
    response = engine.query("otters diet fish too")
    assert "fish too" in str(response)  # the mock repeats its prompt
    assert [one.node.metadata["title"] for one in response.source_nodes] == ["Otters"]


def test_less_than_one_passage_is_refused(library):
    with pytest.raises(UsageError, match="at least 1"):
        ColligateLlamaIndexRetriever(library, k=0)
