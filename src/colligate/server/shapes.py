"""The JSON of responses, and of conversations, for the OpenAPI document and the MCP tools.

Offsets count code points and are half-open; pages count from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NotRequired, cast

from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from colligate.core.answer import Ground
from colligate.core.parameters import list_parameters, split_setting
from colligate.core.strategy import list_strategies
from colligate.documents import Hit, Span
from colligate.engine import DEFAULT_STRATEGY
from colligate.errors import UsageError
from colligate.library.web import hide_folders
from colligate.plugins import load_plugin, plugins
from colligate.readers.followup import Turn
from colligate.retrievers import make_retriever, split_retriever
from colligate.table import Column, Layout, Row, Table, parse_columns

OnEvent = Callable[[Mapping[str, Any]], None]
"""Gets each event of a run as JSON; may be called from any thread."""

MOST_TURNS = 100
LONGEST_TURN = 100_000  # characters of a question, or of an answer


class CitedPlace(BaseModel, extra="forbid"):
    """A stretch of a document."""

    document: Annotated[str, Field(max_length=1000)]
    start: Annotated[int, Field(ge=0, le=1 << 53)]
    end: Annotated[int, Field(ge=0, le=1 << 53)]


class EarlierTurn(BaseModel, extra="forbid"):
    """A question of a conversation, its answer, and the passages that the answer cites."""

    question: Annotated[str, Field(max_length=LONGEST_TURN)]
    answer: Annotated[str, Field(max_length=LONGEST_TURN)] = ""
    cited: Annotated[list[CitedPlace], Field(max_length=1000)] = []

    def to_turn(self) -> Turn:
        """Return what an engine takes; a place that ends before it starts is left out."""
        spans = [Span(p.document, p.start, p.end) for p in self.cited if p.start <= p.end]
        return Turn(self.question, self.answer, tuple(spans))


History = Annotated[
    list[EarlierTurn],
    Field(
        max_length=MOST_TURNS,
        description="The conversation so far, oldest first: the question may point back to it.",
    ),
]

Setting = str | int | float | bool | None

StrategyName = Annotated[
    str,
    Field(
        max_length=100,
        description="How to find the answer. The default, auto, suits any question.",
        json_schema_extra={"enum": sorted(list_strategies())},
    ),
]
RetrieverName = Annotated[
    str,
    Field(
        max_length=1000,
        description="How evidence is found in every search: hybrid, dense, sparse, sfs, rdr2, "
        "longrefiner:budget=512 (any NAME:k=v,...), as `--retriever`; no address.",
    ),
]
Conditions = Annotated[
    list[str],
    Field(
        max_length=20,
        description='Conditions that documents must meet, such as "date>=2024" or "title~annual".',
    ),
]

DocumentIds = Annotated[
    list[str] | None,
    Field(max_length=10_000, description="Ids to answer over; without, the whole library."),
]
MostTokens = Annotated[int | None, Field(ge=1, le=1 << 53)]
Seconds = Annotated[float | None, Field(gt=0, le=86_400, description="Seconds.")]
Streamed = Annotated[bool, Field(description="Send events as they come.")]

Risk = Annotated[
    float | str,
    Field(
        description="The share of the answers given that may be wrong; less sure ones are left out:"
        " a number above 0 and below 1, or careful (0.1), balanced (0.2) or eager (0.4)."
    ),
]


def refuse_loading(kind: type, settings: Iterable[str]) -> None:
    """Refuse settings that name a model or a file: the server would load any that is named."""
    texts = {each.name for each in list_parameters(kind) if each.type in ("str", "str|none")}
    for name, _, value in map(split_setting, settings):
        if name in texts and value != "none":
            what = f"{name} of {getattr(kind, 'name', kind.__name__)} cannot be set here"
            raise UsageError(what, "a server loads no model that a question names")


_FAULTS = {
    "string_too_short": "it is empty",
    "too_short": "it is empty",
    "missing": "it is missing",
    "json_invalid": "it is not JSON",
    "model_attributes_type": "expected JSON, sent with the header Content-Type: application/json",
}


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a value that pydantic refuses, in plain words."""
    return _FAULTS.get(fault["type"]) or str(fault["msg"])


class AskRequest(BaseModel, extra="forbid"):
    """A question, and how it is to be answered."""

    makes: ClassVar[str] = "answer"
    question: Annotated[str, Field(min_length=1, description="The question.")]
    strategy: StrategyName = DEFAULT_STRATEGY
    parameters: Annotated[
        dict[str, Setting | list[Setting]],
        Field(max_length=100, description="Parameters of the strategy, by name."),
    ] = {}
    retriever: RetrieverName | None = None
    documents: DocumentIds = None
    where: Conditions = []
    max_tokens_total: MostTokens = None
    timeout: Seconds = None
    risk: Risk | None = None
    json_schema: Annotated[
        dict[str, Any] | None,
        Field(description="The shape of the answer; each value is cited, or null."),
    ] = None
    yes: Annotated[
        bool, Field(description="Allow work that takes many calls, as an agent for each document.")
    ] = False
    history: History = []
    stream: Streamed = False

    @property
    def earlier(self) -> list[str] | None:
        """Documents that the answers in `history` cite; None if one is without citations."""
        if any(turn.answer and not turn.cited for turn in self.history):
            return None
        return sorted({place.document for turn in self.history for place in turn.cited})

    def check_retriever(self) -> None:
        """Refuse a retriever that does not exist, or that makes the server open something.

        UsageError if it is an address, has a wrong name or parameter, or names a model.
        """
        if self.retriever is None:
            return
        kind, settings = split_retriever(self.retriever)
        if kind in ("http", "https"):
            why = "only who runs the server names a retriever server"
            hint = "by COLLIGATE_RETRIEVER, or `retriever` in colligate.toml"
            raise UsageError("a question cannot name an address to search at", why, hint)
        if kind in plugins("retrievers"):
            refuse_loading(load_plugin("retrievers", kind, type), settings)
        make_retriever(self.retriever)


class TableRequest(BaseModel, extra="forbid"):
    """The columns of a table, and the documents that it has rows for."""

    makes: ClassVar[str] = "table"
    columns: Annotated[
        str | list[Column],
        Field(description='"rent: money; ends on: date; status: open|closed", or objects.'),
    ]
    rows: Annotated[
        str, Field(max_length=1000, description='What a row is, if not a document: "each loan".')
    ] = ""
    documents: DocumentIds = None
    where: Conditions = []
    max_tokens_total: MostTokens = None
    timeout: Seconds = None
    stream: Streamed = False

    @property
    def layout(self) -> Layout:
        given = self.columns
        return Layout(parse_columns(given) if isinstance(given, str) else tuple(given), self.rows)


RunRequest = AskRequest | TableRequest


class Correction(BaseModel, extra="forbid"):
    """What a person says of a cell; `row` names a record of the document, if rows are records."""

    document: Annotated[str, Field(max_length=1000)]
    column: Annotated[str, Field(max_length=200)]
    row: Annotated[str, Field(max_length=1000)] = ""
    text: Annotated[
        str | None,
        Field(
            max_length=2000,
            description='What the cell must say; "" if the document lacks it, null if it is right.',
        ),
    ]


class Feedback(BaseModel, extra="forbid"):
    """What a person says of an answer."""

    good: bool
    note: Annotated[str, Field(max_length=2000)] = ""


class TableShape(TypedDict):
    """The object that `colligate table --json` prints; over HTTP with its run and its seconds.

    `row` says what a row is, if not a document; each cell has `doubt`, why to look at it.
    """

    columns: list[dict[str, Any]]
    row: str
    rows: list[dict[str, Any]]
    usage: dict[str, Any]
    warnings: list[str]
    run: NotRequired[str]
    seconds: NotRequired[float]


class EstimateShape(TypedDict):
    """What a table takes: the documents that are not filled yet, about how many calls, tokens."""

    columns: list[str]
    documents: int
    calls: int
    tokens: int


def describe_row(row: Row) -> dict[str, Any]:
    """Return a row as JSON, with what is doubtful in each cell and no folder of this machine."""
    shown = row.to_json() | {"source": hide_folders(row.source)}
    for name, cell in shown["cells"].items():
        cell["doubt"] = row.cells[name].doubt
        for citation in filter(None, (value["citation"] for value in cell["values"])):
            citation["source"] = hide_folders(citation["source"])
    return shown


def describe_filled(table: Table) -> dict[str, Any]:
    """Return a table as `TableShape`."""
    return {**table.to_json(), "rows": [describe_row(row) for row in table.rows]}


class AnswerShape(TypedDict):
    """The object that `colligate ask --json` prints; over HTTP with its run and its seconds."""

    question: str
    strategy: str
    answer: str
    short_answer: str | None
    found: bool
    ground: Ground
    how: str
    probability: NotRequired[float | None]
    filled: NotRequired[dict[str, Any]]
    values: NotRequired[list[dict[str, Any]]]
    citations: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    usage: dict[str, Any]
    warnings: list[str]
    run: NotRequired[str]
    seconds: NotRequired[float]


class LibraryShape(TypedDict):
    """A library and how much is in it."""

    name: str
    documents: int
    pages: int
    passages: int


class DocumentShape(BaseModel, from_attributes=True):
    """A document without its text; `source` is the name of its file."""

    id: str
    title: str
    characters: int
    pages: int
    passages: int
    language: str
    date: str
    source: Annotated[str, AfterValidator(hide_folders)]


class PageShape(TypedDict):
    """A page's place in the text."""

    number: int
    start: int
    end: int


class DocumentText(TypedDict):
    """A range of a document's text, and its pages."""

    id: str
    title: str
    characters: int
    language: str
    media_type: str
    pages: list[PageShape]
    text: str
    start: int
    end: int


class PassageShape(TypedDict):
    """A passage that a search found; `source` is the name of its file."""

    document: str
    title: str
    source: str
    section: list[str]
    page: int | None
    row: int | None
    date: str
    start: int
    end: int
    text: str
    score: float


def describe_passage(hit: Hit) -> PassageShape:
    """Return a search hit as JSON with the name of its file."""
    name = PurePath(hit.passage.source).name
    return cast(PassageShape, {**hit.to_json(), "source": name, "text": hit.passage.text})
