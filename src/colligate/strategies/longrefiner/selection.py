"""What goes to the reader: the best nodes a budget holds, written out in the order of the text.

The selection is LongRefiner's as its paper has it (section 4.5 of the specification), and the
budget covers all that is written: a document's title once, a heading once, and the paragraphs.
Only what stands in the document is written; headings that a model made up are not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from colligate.documents import Passage, Span
from colligate.documents.sentences import word_spans
from colligate.documents.tokens import estimate_tokens
from colligate.models import ChatModel
from colligate.strategies.longrefiner.tree import Article, ArticleNode, same_title

_GAP = "\n\n"
_TITLE = -1  # the place of a document's title: before its first character
_DEEPEST = 6  # levels of headings that Markdown has


@dataclass(frozen=True)
class Selection:
    """What was chosen, an article each: paragraphs in document order, and whole inner nodes.

    `promoted` are the inner nodes all of whose paragraphs are chosen. `tokens` is the sum of the
    measures of all that `render` writes.
    """

    chosen: tuple[tuple[int, ...], ...]
    promoted: tuple[tuple[int, ...], ...]
    tokens: int


def pieces(article: Article) -> Iterator[str]:
    """Every text that `select` measures: the title, each heading and each paragraph."""
    written: dict[int, str] = {}
    for leaf in article.leaves:
        written.update(_written(article, leaf))
    yield from (text + _GAP for text in written.values())


def select(
    articles: Sequence[Article],
    scores: Sequence[Sequence[float]],
    budget: int,
    measure: Callable[[str], int],
    *,
    stop_at_first_overflow: bool = False,
) -> Selection:
    """Choose nodes by falling score, as long as what must be written for them fits the budget.

    `articles` are different documents in rank order, and `scores` has one for each node of each;
    equal scores go by rank, then by place. Choosing a node chooses all paragraphs under it. One
    that does not fit is passed over, or with `stop_at_first_overflow` ends the choice. `measure`
    counts tokens, 0 or more, and is asked for the texts of `pieces` alone. Where the budget holds
    no paragraph nothing is chosen: `shortened` gives what it holds.
    """
    drafts = [_Draft(article, measure) for article in articles]
    ranked = sorted(
        (-score, rank, node.id)
        for rank, (article, row) in enumerate(zip(articles, scores, strict=True))
        for node, score in zip(article.nodes, row, strict=True)
    )
    used = 0
    for _, rank, node_id in ranked:
        leaves = articles[rank].leaves_under[node_id]
        cost = drafts[rank].cost(leaves)
        if used + cost <= budget:
            drafts[rank].choose(leaves)
            used += cost
        elif stop_at_first_overflow:
            break
    return Selection(
        tuple(tuple(sorted(draft.chosen)) for draft in drafts),
        tuple(
            tuple(
                node.id
                for node in article.nodes
                if node.children and draft.chosen.issuperset(article.leaves_under[node.id])
            )
            for article, draft in zip(articles, drafts, strict=True)
        ),
        used,
    )


def render(articles: Sequence[Article], selection: Selection) -> str:
    """What was chosen as one text: documents in rank order, each in its own order.

    A document begins with its title, "# Title". Above a paragraph stand the headings the document
    has on the way to it, each once and by its depth ("##" the outermost).
    """
    texts: list[str] = []
    for article, chosen in zip(articles, selection.chosen, strict=True):
        written: dict[int, str] = {}
        for leaf in chosen:
            written.update(_written(article, leaf))
        texts.extend(written[place] for place in sorted(written))
    return _GAP.join(texts)


def passages(articles: Sequence[Article], selection: Selection) -> list[list[Passage]]:
    """What was chosen as passages, a list an article: neighbours in one section are one."""
    found: list[list[Passage]] = []
    for article, chosen in zip(articles, selection.chosen, strict=True):
        document = article.document
        spans: list[Span] = []
        last: ArticleNode | None = None
        for node in (article.nodes[leaf] for leaf in chosen):
            gap = document.text[last.span.end : node.span.start] if last else ""
            if last and last.parent == node.parent and not gap.strip():
                spans[-1] = Span(document.id, spans[-1].start, node.span.end)
            else:
                spans.append(node.span)
            last = node
        found.append([document.passage(span) for span in spans])
    return found


def shortened(
    articles: Sequence[Article],
    scores: Sequence[Sequence[float]],
    budget: int,
    measure: Callable[[str], int],
) -> Passage | None:
    """The beginning of the best paragraph: as many of its words as a small budget holds, or None.

    `measure` is asked for beginnings of that paragraph, which are not among `pieces`, and must
    not fall as they grow.
    """
    ranked = [
        (-row[leaf], rank, leaf)
        for rank, (article, row) in enumerate(zip(articles, scores, strict=True))
        for leaf in article.leaves
    ]
    if not ranked:
        return None
    _, rank, leaf = min(ranked)
    document, span = articles[rank].document, articles[rank].nodes[leaf].span
    text = document.slice(span)
    ends = [end for _, end in word_spans(text)]
    held = bisect_right(ends, budget, key=lambda end: measure(text[:end]))
    if held == 0:
        return None
    return document.passage(Span(document.id, span.start, span.start + ends[held - 1]))


class _Draft:
    """What is written of an article so far, and what more of it would cost."""

    def __init__(self, article: Article, measure: Callable[[str], int]) -> None:
        self.chosen: set[int] = set()
        self._places: dict[int, tuple[int, ...]] = {}  # of a paragraph: what stands above it, it
        self._tokens: dict[int, int] = {}
        self._written: set[int] = set()
        for leaf in article.leaves:
            written = _written(article, leaf)
            self._places[leaf] = tuple(written)
            for place, text in written.items():
                if place not in self._tokens:
                    self._tokens[place] = measure(text + _GAP)

    def cost(self, leaves: Iterable[int]) -> int:
        """The tokens of what is not yet written of these paragraphs and their headings."""
        return sum(self._tokens[place] for place in self._new(leaves))

    def choose(self, leaves: Iterable[int]) -> None:
        """Write these paragraphs and their headings."""
        self._written |= self._new(leaves)
        self.chosen.update(leaves)

    def _new(self, leaves: Iterable[int]) -> set[int]:
        places = {place for leaf in leaves for place in self._places[leaf]}
        return places - self._written


def _written(article: Article, leaf: int) -> dict[int, str]:
    """What a paragraph brings onto the page, by its place in the text: title, headings, itself."""
    document, span = article.document, article.nodes[leaf].span
    around = document.tree.node_at(span.start)
    sections = [
        node
        for node in reversed([around, *document.tree.ancestors(around)])
        if node.heading is not None and node.title
    ]
    if sections and same_title(sections[0].title, document.title):
        del sections[0]
    written = {_TITLE: f"# {_one_line(document.title)}"} if document.title.strip() else {}
    for depth, section in enumerate(sections, 2):
        assert section.heading is not None
        written[section.heading.start] = f"{'#' * min(depth, _DEEPEST)} {_one_line(section.title)}"
    written[span.start] = document.slice(span)
    return written


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Keeping the best nodes of some articles within a budget, in the tokens of a model.


@dataclass(frozen=True)
class Kept:
    """What fits: as text, as passages, its tokens, and those of all there was."""

    text: str
    passages: tuple[Passage, ...]
    tokens: int
    of_tokens: int


async def under_budget(
    articles: Sequence[Article],
    scores: Sequence[Sequence[float]],
    budget: int,
    model: ChatModel,
    *,
    stop_at_first_overflow: bool = False,
) -> Kept:
    """The best nodes whose text has at most `budget` tokens by the model's count.

    Where not even the best paragraph fits, its beginning is kept. Pieces are counted before they
    are chosen; should they have more tokens put together, less is chosen.
    """
    counts: dict[str, int] = {}
    of_tokens = 0
    for article in articles:
        of_tokens += await _count(list(pieces(article)), model, counts)
    room = budget
    while room > 0:
        selection = select(
            articles,
            scores,
            room,
            counts.__getitem__,
            stop_at_first_overflow=stop_at_first_overflow,
        )
        found = tuple(passage for each in passages(articles, selection) for passage in each)
        text = render(articles, selection)
        if not found:
            cut = shortened(articles, scores, room, estimate_tokens)
            found, text = ((cut,), cut.text) if cut else ((), "")
        tokens = await model.count_tokens(text)
        if tokens <= budget:
            return Kept(text, found, tokens, of_tokens)
        room -= tokens - budget
    return Kept("", (), 0, of_tokens)


async def _count(texts: Sequence[str], model: ChatModel, counts: dict[str, int]) -> int:
    """The tokens of each text into `counts`, and of all together: the model is asked once.

    A token across a boundary is counted on both sides of it.
    """
    spans = await model.token_spans("".join(texts))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    for text, stop in zip(texts, accumulate(map(len, texts)), strict=True):
        counts[text] = bisect_left(starts, stop) - bisect_right(ends, stop - len(text))
    return len(spans)
