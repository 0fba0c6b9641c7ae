"""Folders of bench runs as the bench leaves them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colligate.lab.bench.metrics import Backends
from colligate.lab.bench.outcome import ROWS, Outcome, Piece, Row
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.bench.question import Candidate, Question, QuestionReading, QuestionTask
from colligate.lab.jobs.identity import ModelRecord
from colligate.lab.jobs.job import Invocation
from colligate.testing import ScriptedModel


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    with ROWS.open(folder, {}) as file:
        for row in rows:
            ROWS.append(file, row.key, row)


def write_run(folder: Path, suite: str, rows: Iterable[Row]) -> Path:
    """A run of the strategies "a" and "b" with seed 7."""
    folder.mkdir(exist_ok=True)
    models = {"reader": ModelRecord("m")}
    RUN.write(folder, Provenance("s", suite, 7, models, ("d",), ("a", "b")))
    write_rows(folder, rows)
    return folder


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The whole rows of a run's folder, in the order of the file."""
    file = out / "rows.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


_OF_ONE_RUN = {"began", "seconds", "online_seconds", "split"}


def lasting(out: Path) -> dict[tuple[str, str, str], Any]:
    """The rows by data set, question and strategy, without what time does to them."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(each) for name, each in value.items() if name not in _OF_ONE_RUN}
        return [strip(each) for each in value] if isinstance(value, list) else value

    rows = rows_of(out)
    found = {(row["dataset"], row["question"], row["strategy"]): strip(row) for row in rows}
    assert len(found) == len(rows), "a question has two rows"
    return found


# A run like DuQUAD's Table 1, made up

METHODS = {
    "full-context": "Vanilla LLM",
    "reorder-dense": "SBERT",
    "reorder-bm25": "BM25",
    "toa": "ToA",
    "main-rag": "MAIN-RAG",
    "fim": "FiM",
    "longllmlingua": "LongLLMLingua",
    "duquad": "DuQUAD",
}
PLACES = {"NQ-1": 0, "NQ-5": 4, "NQ-10": 9, "NQ-15": 14, "NQ-20": 19}
DATASETS = (*PLACES, "MuSiQue", "HotpotQA")
MODELS = ("Llama 3.1 8B", "Qwen2.5 7B")


def suite_text(methods: int = len(METHODS)) -> str:
    """A suite like DuQUAD's Table 1, its published numbers made up."""
    of_long = [("containment", "Acc"), ("em", "EM"), ("f1", "F1")]
    columns = [
        {"dataset": name, "metric": metric, "label": label, "scale": 100}
        for name in DATASETS
        for metric, label in (of_long if name not in PLACES else of_long[:1])
    ]
    rows = [*METHODS.values(), "OpenAI"]
    parts: dict[str, list[dict[str, object]]] = {
        "datasets": [{"name": name, "file": f"{name}.jsonl.gz"} for name in DATASETS],
        "strategies": [{"name": n, "label": METHODS[n]} for n in [*METHODS][:methods]],
        "columns": columns,
        "published": [
            {"row": row, "model": model, "values": [30.0 + at for at, _ in enumerate(columns)]}
            for model in MODELS
            for row in rows
        ],
        "pictures": [
            {"kind": kind}
            for kind in ("by-gold-position", "attention-by-position", "recall-at-k", "pareto")
        ],
    }
    text = 'title = "DuQUAD, Table 1"\npaper = "DuQUAD"\nabout = "By the place of the gold."\n'
    for name, entries in parts.items():
        for entry in entries:
            lines = (f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
            text += f"[[{name}]]\n{''.join(lines)}"
    return text


@dataclass
class MadeRun:
    """Writes a run of made-up rows below a folder; `change` may alter a row before it is kept."""

    folder: Path
    questions: int = 12
    methods: int = len(METHODS)
    traced: bool = True
    suite: str = ""
    change: Callable[[Row], Row | None] = field(default=lambda row: row)

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rows.jsonl").unlink(missing_ok=True)
        names = [*METHODS][: self.methods]
        made = (
            self.change(self.row(dataset, number, method))
            for dataset in DATASETS
            for number in range(self.questions)
            for method in names
        )
        write_rows(self.folder, [row for row in made if row is not None])
        began = "2026-11-21T20:01:07+00:00"
        hardware = {"processor": "AMD EPYC", "cores": 16, "gpus": ["NVIDIA H200"]}
        record = Provenance(
            suite="duquad-table1",
            suite_text=self.suite or suite_text(self.methods),
            seed=7,
            models={"reader": ModelRecord("gguf:models/qwen2.5-1.5b-q4_k_m.gguf", "ab12" * 16)},
            datasets=DATASETS,
            strategies=tuple(names),
            questions=dict.fromkeys(DATASETS, self.questions),
            sessions=(Invocation(began, "", "abc1234", hardware, {"limit": 50, "seed": 7}),),
        )
        RUN.write(self.folder, record)
        return self.folder

    def row(self, dataset: str, number: int, method: str) -> Row:
        at, gold = [*METHODS].index(method), PLACES.get(dataset)
        right = (number + at) % 3 != 0
        documents = [f"{dataset}:{number}:{place}" for place in range(20)]
        first = Piece(documents[gold or 3], 0, 90, "The answer is Röntgen.", "List")
        second = Piece(documents[7], 5, 60, "Another passage.", "Something else")
        said = "Röntgen" if right else "Marie Curie"
        metrics = {"containment": float(right), "em": float(right), "f1": 0.5 + right / 2}
        metrics |= {"tokens": 3000.0 * (at + 1)}
        metrics |= {f"recall_at_{k}": min(1.0, 0.3 + k / 50) for k in (1, 5, 10, 20, 50, 100)}
        trace, attention = None, ()
        if self.traced and method == "duquad":
            trace = f"traces/{dataset}-{number}.jsonl.gz"
            (self.folder / trace).parent.mkdir(exist_ok=True)
            (self.folder / trace).write_bytes(b"")
            # High at both ends and at the gold.
            attention = tuple(0.01 + abs(at - 9.5) / 300 + 0.03 * (at == gold) for at in range(20))
        return Row(
            dataset,
            f"{dataset}-{number}",
            method,
            question_text=f"Who got the Nobel Prize of {1901 + number}?",
            answers=("Röntgen",),
            outcome=Outcome(
                text=f"It was {said}. [1] Some say otherwise. [uncited]",
                short=said,
                found=True,
                citations=(first,),
                evidence=(first, second),
                usage={"calls": at + 1, "input_tokens": 3000 * (at + 1), "cost_usd": 0.0},
                seconds=1.5 * (at + 1),
                attention=attention,
            ),
            metrics=metrics,
            gold_at=gold,
            trace=trace,
        )


# A question of each kind, and an answer that most metrics say something of

GOLD = Piece("g", 0, 30, "Ann Lee wrote it in 1932.", title="Ann Lee")
ANSWERED = Outcome(
    "Ann Lee wrote it. [1]",
    "Ann Lee",
    found=True,
    citations=(GOLD,),
    evidence=(GOLD,),
    retrieved=(Piece("x", 0, 1, "x"), GOLD),
    stages={"kept": ("g",)},
    usage={"calls": 2, "input_tokens": 9, "output_tokens": 3, "retrieval_rounds": 1},
    seconds=0.5,
)
QUESTIONS = {
    "short": Question(
        "s", "who?", ("Ann Lee",), documents=(Candidate("g", text="one two"),), gold=("g",)
    ),
    "readings": Question(
        "r",
        "who?",
        task=QuestionTask.READINGS,
        readings=(QuestionReading("who?", ("Ann Lee", "Lee")), QuestionReading("when?", ("1932",))),
        long_answers=("Ann Lee wrote it in 1932.",),
    ),
    "set": Question("m", "who?", task=QuestionTask.SET, members=(("Ann Lee",), ("Bo",))),
    "long": Question(
        "l",
        "why?",
        task=QuestionTask.LONG,
        long_answers=("Ann Lee wrote it.",),
        claims=("it was Ann",),
    ),
    "judged": Question("j", "who?", ("Ann",), task=QuestionTask.JUDGED),
    "unanswerable": Question("u", "who?", ("kept",), gold=("g",), answerable=False),
}


async def entail_all(premise: str, hypothesis: str) -> bool:
    return True


async def read_year(question: str, context: str) -> str:
    return "1932" if context.strip() else ""


def backends() -> Backends:
    judge = ScriptedModel(lambda call: "Yes [[90]]")
    return Backends(judge=judge, nli=entail_all, qa=read_year)
