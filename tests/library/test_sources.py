"""The promises of `Sources`, kept by a library, a view of it, and documents in memory."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import pytest_asyncio

from colligate.documents import Document, Hit, flat_tree
from colligate.documents.chunking import Structural
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import read_file
from colligate.errors import UnknownDocument, UsageError
from colligate.library import SearchMode, Sources
from colligate.library.in_memory import InMemorySources
from colligate.library.library import AsyncLibrary
from colligate.library.ranking import score_by_mode
from colligate.library.sources import cut_passages
from support.embedders import WordEmbedder

TEXTS = {
    "badger.md": "# Badgers\n\nBadgers dig setts in woods.\n\n## Diet\n\nThey eat earthworms.\n",
    "heron.md": "# Herons\n\nHerons wade in rivers.\n\n## Diet\n\nThey eat fish.\n",
    "otter.md": "# Otters\n\nOtters swim in rivers.\n\n## Diet\n\nThey eat fish.\n",
    "twin-y.md": "# Lighthouse\n\nThe lighthouse keeper counted puffins.\n",
    "twin-x.md": "# Lighthouse\n\nThe lighthouse keeper counted puffins.\n",
}


# Nothing here changes what is searched, so all tests share it, and one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in TEXTS]


@pytest.fixture(scope="module")
def documents(paths):
    return [read_file(path).documents[0] for path in paths]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["library", "view", "given"])
async def sources(request, tmp_path_factory, paths, documents):
    if request.param == "given":
        async with InMemorySources(documents, WordEmbedder()) as given:
            yield given
        return
    folder = tmp_path_factory.mktemp("library")
    async with AsyncLibrary(folder / "library", embedder=WordEmbedder()) as library:
        if request.param == "library":
            await library.add(paths)
            yield library
        else:
            elsewhere = folder / "elsewhere.md"
            elsewhere.write_text("# Otters elsewhere\n\nRivers and fish.\n")
            await library.add([elsewhere, *paths])
            yield library.view([document.id for document in documents])


@pytest.fixture(params=list(SearchMode))
def mode(request):
    return request.param


async def test_it_lists_its_documents_in_order(sources, documents):
    assert isinstance(sources, Sources)
    infos = await sources.documents()
    assert [info.id for info in infos] == [document.id for document in documents]
    assert [info.characters for info in infos] == [len(document) for document in documents]
    assert infos[0].title == "Badgers"
    assert infos[0].passages >= 2
    assert infos[0].source.endswith("badger.md")


async def test_it_gives_whole_documents(sources, documents):
    for document in documents:
        assert await sources.document(document.id) == document


async def test_a_document_out_of_view_is_unknown(sources):
    with pytest.raises(UnknownDocument, match="no document nothing-0000000000"):
        await sources.document("nothing-0000000000")
    with pytest.raises(UnknownDocument):
        await sources.search("fish", k=3, documents=["nothing-0000000000"])


async def test_the_best_passage_comes_first(sources, mode):
    hits = await sources.search("which animals dig setts in woods", k=3, mode=mode)
    assert "dig setts" in hits[0].passage.text
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_hits_are_passages_of_their_documents(sources, mode):
    hits = await sources.search("earthworms fish rivers", k=10, mode=mode)
    assert len(hits) > 2
    for hit in hits:
        document = await sources.document(hit.passage.document_id)
        assert hit.passage == document.passage(hit.passage.span)


async def test_headings_are_searched_too(sources, mode):
    hits = await sources.search("Badgers Diet", k=1, mode=mode)
    assert hits[0].passage.section[-1:] == ("Diet",)
    assert "earthworms" in hits[0].passage.text


@pytest.mark.parametrize("form", ["csv", "md"])
async def test_a_piece_of_a_long_table_is_found_by_the_heads_of_its_columns(tmp_path, form):
    def write(name, *columns):
        rows = [("Station", *columns)]
        rows += [(f"Weir{n}", *(f"{n + i}.5" for i in range(len(columns)))) for n in range(300)]
        path = tmp_path / f"{name}.{form}"
        if form == "csv":
            lines = [",".join(row) for row in rows]
        else:
            lines = [f"| {' | '.join(row)} |" for row in rows]
            lines.insert(1, "|---" * len(rows[0]) + "|")
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return read_file(path).documents[0]

    tables = [write("one", "Rainfall"), write("two", "Nitrate"), write("three", "Sediment")]
    embedder = WordEmbedder()
    async with InMemorySources(tables, embedder) as given:
        for table, column in zip(tables, ("rainfall", "nitrate", "sediment"), strict=True):
            hits = await given.search(f"{column} at weir150", k=1, mode=SearchMode.SPARSE)
            assert hits[0].passage.document_id == table.id
            assert "Weir150 " in hits[0].passage.text
            assert column not in hits[0].passage.text.casefold()
            row = hits[0].passage.text.partition(" |")[0].removeprefix("| Weir")
            assert hits[0].row == (int(row) + 2 if form == "csv" else None)
    assert all("Station | " in text for text in embedder.passages)  # what vectors are made of


async def test_search_keeps_within_chosen_documents(sources, documents, mode):
    heron = documents[1].id
    hits = await sources.search("rivers fish badgers", k=10, mode=mode, documents={heron})
    assert {hit.passage.document_id for hit in hits} == {heron}
    assert await sources.search("rivers", k=10, mode=mode, documents=[]) == []


async def test_equal_scores_come_in_document_order(sources, documents, mode):
    query = "lighthouse keeper counted puffins"
    twins = [documents[3].id, documents[4].id]
    hits = await sources.search(query, k=2, mode=mode)
    assert [hit.passage.document_id for hit in hits] == twins
    (first,) = await sources.search(query, k=1, mode=mode)
    assert first.passage.document_id == twins[0]


@pytest.mark.parametrize(
    ("query", "k", "count"),
    [
        ("fish rivers eat", 2, 2),
        ("fish", 0, 0),
        ("earthworms \ud800", 1, 1),  # half a surrogate pair is no word
        *((nothing, 5, 0) for nothing in ("", "  \n", "?!", "—…", "\ud800")),
    ],
)
async def test_how_many_are_found(sources, mode, query, k, count):
    assert len(await sources.search(query, k=k, mode=mode)) == count


async def test_a_word_that_is_nowhere_matches_nothing(sources):
    assert await sources.search("quasar", k=5, mode=SearchMode.SPARSE) == []


async def test_all_that_match_are_found_however_many_are_asked_for(sources, mode):
    hits = await sources.search("lighthouse badgers herons otters", k=1 << 70, mode=mode)
    assert {hit.passage.title for hit in hits} == {"Badgers", "Herons", "Otters", "Lighthouse"}


async def test_a_word_with_a_soft_hyphen_is_found_and_embedded_whole(open_library, write, embedder):
    text = "# Miet\u00advertrag\n\nDie Kündigungs\u00adfrist beträgt drei Monate.\n"
    async with open_library() as library:
        await library.add(write("lease.md", text))
        (hit,) = await library.search("Kündigungsfrist", k=1, mode=SearchMode.SPARSE)
        assert "Kündigungs\u00adfrist" in hit.passage.text
    (embedded,) = embedder.passages
    assert embedded.startswith("Mietvertrag")
    assert "Kündigungsfrist" in embedded


class Cosines:
    """A passage has the cosine that the first word found in it names."""

    name, dimension = "cosines", 2

    def __init__(self, cosines):
        self.cosines = cosines

    async def embed(self, texts, kind="passage"):
        def cosine(text):
            return next((c for word, c in self.cosines.items() if word in text), 0.0)

        found = [1.0 if kind == "query" else cosine(text) for text in texts]
        return np.array([[c, (1 - c * c) ** 0.5] for c in found], np.float32)

    async def aclose(self):
        pass


def given(texts, cosines):
    documents = [Document(t, t, t, flat_tree(t, len(t)), language="en") for t in texts]
    return InMemorySources(documents, Cosines(cosines))


EELS = [f"eel{n}" for n in range(60)]
NEARER = {text: 0.2 + n / 200 for n, text in reversed(list(enumerate(EELS)))}
FISH = ["weir weir reed", "weir pike reed", "eel carp tench", "ide bream tench"]
NEAR = {"weir weir": 0.5, "eel": 0.4, "ide": 0.3}


@pytest.mark.parametrize(
    ("cosines", "texts", "query", "found"),
    [
        # How much better a passage is counts, and not its place alone.
        ({"pike": 0.9} | NEAR, FISH, "weir", ["weir pike reed", "weir weir reed"]),
        ({"pike": 0.501} | NEAR, FISH, "weir", ["weir weir reed", "weir pike reed"]),
        # Where both searches are as sure of another passage the cosine counts more.
        ({"weir": 0.3, "pike": 1}, ["weir reed", "pike reed"], "weir", ["pike reed", "weir reed"]),
        # The only passage with a word comes first though others are nearer.
        ({"weir": 0.3} | NEARER, ["weir", *EELS], "weir", ["weir", *reversed(EELS)]),
        # If no word is found the cosine alone decides; what differs by noise is equal.
        (
            {"pike": 0.9, "carp": 0.500004, "tench": 0.5},
            ["eel", "tench", "carp", "pike"],
            "quasar",
            ["pike", "tench", "carp", "eel"],
        ),
        # If all are as near the words decide, then the order of documents.
        ({"": 0.5}, ["eel", "carp", "tench"], "tench", ["tench", "eel", "carp"]),
        ({"weir": 0.4}, ["weir"], "weir", ["weir"]),
    ],
)
async def test_hybrid_search_adds_z_scores(cosines, texts, query, found):
    async with given(texts, cosines) as sources:
        hits = await sources.search(query, k=100)
        assert [hit.passage.text for hit in hits][: len(found)] == found
        assert min(hit.score for hit in hits) == 0


async def test_a_library_and_memory_with_the_same_documents_find_the_same(
    open_library, paths, documents, embedder
):
    async with open_library() as library, InMemorySources(documents, embedder) as given:
        await library.add(paths)
        for query, mode in product(("fish in rivers", "setts", "puffins diet"), SearchMode):
            found = await given.search(query, k=8, mode=mode)
            stored = await library.search(query, k=8, mode=mode)
            assert [hit.passage for hit in found] == [hit.passage for hit in stored] != []
            scores = [hit.score for hit in stored]
            assert [hit.score for hit in found] == pytest.approx(scores, abs=1e-5)


async def test_memory_without_an_embedder_searches_words_alone(documents):
    async with InMemorySources(documents) as given:
        hits = await given.search("earthworms", k=3, mode=SearchMode.SPARSE)
        assert "earthworms" in hits[0].passage.text
        with pytest.raises(UsageError, match="without an embedder"):
            await given.search("earthworms", k=3)


async def test_two_documents_in_memory_with_one_id_are_refused(documents):
    with pytest.raises(UsageError, match="same id"):
        InMemorySources([documents[0], documents[0]])


async def test_a_view_keeps_its_own_order(open_library, paths):
    async with open_library() as library:
        ids = (await library.add(paths)).document_ids
        view = library.view(reversed(ids))
        assert [info.id for info in await view.documents()] == ids[::-1]
        hits = await view.search("lighthouse keeper counted puffins", k=2)
        assert [hit.passage.document_id for hit in hits] == [ids[4], ids[3]]
        with pytest.raises(UnknownDocument):
            await library.view(ids[:1]).document(ids[1])
        with pytest.raises(UnknownDocument):
            await library.view(ids[:1]).search("fish", k=1, documents=[ids[1]])


LICENCE = """# Licence

## 3. Responsibilities

### 3.1. Source form

All distribution is under these terms.

### 3.2. Reserved

## 4. Notices
"""


FACT = "Ann Lee wrote this report for the council of Marle."
SECTIONS = [f"## {title}\n\n{FACT}" for title in ("Funds", "Staff and pay", "Outlook")]


@pytest.mark.parametrize(
    ("first", "rest", "kept"),
    [
        # A heading above sub-sections is on the heading path of every passage below it.
        (LICENCE, [], [LICENCE.partition("sibilities\n\n")[2].strip()]),
        # A table of contents only repeats headings, with page numbers or links.
        ("Contents\n\nFunds 1 Staff and pay 2 Outlook 2", SECTIONS, SECTIONS),
        ("| Funds | 1 |\n|---|---|\n| Staff and pay | 2 |\n| Outlook | 12 |", SECTIONS, SECTIONS),
        ("- [Funds](#a)\n- [Staff and pay](#b)\n- [Outlook](#c)", SECTIONS, SECTIONS),
        ("Funds..........1\n\nStaff and pay........5\n\nOutlook......12", SECTIONS, SECTIONS),
        ("1.1\tFunds\t3\n\n1.2\tStaff and pay\t4\n\n1.3\tOutlook\t5", SECTIONS, SECTIONS),
        ("1 Funds 3\n\n2 Staff and pay 4\n\n3 Outlook 5", SECTIONS, SECTIONS),
        # What a title page has before it stays.
        ("Ann Lee\n\nFunds 1 Staff and pay 2 Outlook 2", SECTIONS, ["Ann Lee", *SECTIONS]),
        # Titles beside other figures, or without any, may be what is asked for.
        (f"{FACT}\n\nFunds 7 Staff and pay 4 Outlook 2", SECTIONS, None),
        (f"{FACT}\n\n- Funds\n- Staff and pay\n- Outlook", SECTIONS, None),
    ],
)
async def test_what_its_sections_say_better_is_no_passage(first, rest, kept):
    text = "\n\n".join([first, *rest])
    document = Document("a", "Report", text, markdown_tree(text, "a"))
    found = [document.slice(span) for span in cut_passages(document, Structural())]
    assert found == (kept or [first, *rest])


class OneRow:
    """Sources in which words find one row alone; its meaning is like that of all other rows."""

    def __init__(self, hits: list[Hit]) -> None:
        self._row, *self._alike = hits

    async def search(self, query, *, k, mode, documents=None):
        if mode is SearchMode.DENSE:
            return self._alike[:10]
        return [self._row, *(replace(hit, score=0.0) for hit in self._alike[10:])]


async def test_a_passage_that_words_alone_find_keeps_its_lead():
    document = Document("a", "Licence", LICENCE, markdown_tree(LICENCE, "a"))
    spans = [document.span(start, start + 1) for start in range(30)]
    hits = [Hit(document.passage(span), 9.0 - at / 10) for at, span in enumerate(spans)]
    scores = await score_by_mode("pump X-40317", hits[:11], OneRow(hits), SearchMode.HYBRID, None)
    assert max(scores) == scores[0]
