"""A run's folder as the bench leaves it, made up: rows, provenance, traces."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from colligate.lab.bench.outcome import ROWS, Outcome, Piece, Row
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.jobs.identity import ModelRecord
from colligate.lab.jobs.job import Invocation

METHODS = (
    ("full-context", "Vanilla LLM", 0.55, 3200),
    ("reorder-dense", "SBERT", 0.56, 3300),
    ("reorder-bm25", "BM25", 0.54, 3250),
    ("toa", "ToA", 0.42, 14200),
    ("main-rag", "MAIN-RAG", 0.47, 9100),
    ("fim", "FiM", 0.53, 3400),
    ("longllmlingua", "LongLLMLingua", 0.5, 1500),
    ("duquad", "DuQUAD", 0.63, 21000),
)
PLACES = (0, 4, 9, 14, 19)
ASKED = (
    ("Who got the first Nobel Prize in physics?", "Wilhelm Conrad Röntgen"),
    ("When does the next Deadpool movie come out?", "May 18, 2018"),
    ("What does the word China mean in Chinese?", "Middle Kingdom"),
    ("How many episodes are in series 7 of Game of Thrones?", "seven"),
    ("Where did the general who was shot by his own men die?", "Guinea Station"),
)
MODELS = ("Llama 3.1 8B", "Qwen2.5 7B")


def suite_text(places: tuple[int, ...] = PLACES, methods: int = len(METHODS)) -> str:
    """A suite like DuQUAD's Table 1, its published numbers made up."""
    parts = [
        'title = "DuQUAD, Table 1"\npaper = "DuQUAD"\n'
        'about = "Accuracy by the place of the gold document among twenty, and on two sets of '
        'questions that need several documents."\n'
    ]
    names = [f"NQ-{place + 1}" for place in places] + ["MuSiQue", "HotpotQA"]
    columns = []
    for name in names:
        parts.append(f'[[datasets]]\nname = "{name}"\nfile = "{name}.jsonl.gz"\nquestions = 50\n')
        metrics = [("containment", "Acc")]
        if not name.startswith("NQ"):
            metrics += [("em", "EM"), ("f1", "F1")]
        columns += [(name, *metric) for metric in metrics]
    for name, label, _, _ in METHODS[:methods]:
        parts.append(f'[[strategies]]\nname = "{name}"\nlabel = "{label}"\n')
    for name, metric, label in columns:
        parts.append(
            f'[[columns]]\ndataset = "{name}"\nmetric = "{metric}"\n'
            f'label = "{label}"\nscale = 100\n'
        )
    draws = random.Random(5)
    for model in MODELS:
        for row in [label for _, label, _, _ in METHODS] + ["OpenAI"]:
            for name, metric, _ in columns:
                value = round(draws.uniform(30, 80), 1)
                parts.append(
                    f'[[published]]\nrow = "{row}"\ndataset = "{name}"\nmetric = "{metric}"\n'
                    f'value = {value}\nmodel = "{model}"\n'
                )
    for kind in ("by-gold-position", "attention-by-position", "recall-at-k", "pareto"):
        parts.append(f'[[pictures]]\nkind = "{kind}"\n')
    return "\n".join(parts)


@dataclass
class MadeRun:
    """Writes a run of made-up rows below a folder; `change` may alter a row before it is kept."""

    folder: Path
    questions: int = 12
    methods: int = len(METHODS)
    places: tuple[int, ...] = PLACES
    traced: bool = True
    suite: str = ""
    fusion: str = "sfs"
    change: Callable[[Row], Row | None] = field(default=lambda row: row)

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = self.suite or suite_text(self.places, self.methods)
        names = [f"NQ-{place + 1}" for place in self.places] + ["MuSiQue", "HotpotQA"]
        with (self.folder / ROWS.name).open("w", encoding="utf-8") as lines:
            for at, name in enumerate(names):
                gold = self.places[at] if at < len(self.places) else None
                for number in range(self.questions):
                    for method in METHODS[: self.methods]:
                        row = self.change(self.row(name, number, gold, method))
                        if row is not None:
                            lines.write(json.dumps(row.to_json()) + "\n")
        hardware = {"processor": "AMD EPYC", "cores": 16, "memory_gb": 128, "gpus": ["NVIDIA H200"]}
        began = "2026-11-21T20:01:07+00:00"
        made = Provenance(
            suite="duquad-table1",
            suite_text=text,
            seed=7,
            models={
                "reader": ModelRecord("gguf:models/qwen2.5-1.5b-q4_k_m.gguf", "ab12" * 16),
                "scorer": ModelRecord("hf:Qwen/Qwen2.5-0.5B-Instruct", "cd34" * 10),
                "embedder": ModelRecord("minilm", "ef56" * 16),
            },
            datasets=tuple(names),
            strategies=tuple(name for name, *_ in METHODS[: self.methods]),
            questions=dict.fromkeys(names, self.questions),
            limit=50,
            settings={"max_tokens": 300},
            prompts={"core/reader.py": "77aa" * 16},
            data={"nq20.jsonl.gz": "99bb" * 16},
            versions={"python": "3.11.9", "colligate": "0.1.0"},
            sessions=(
                Invocation(began, "2026-11-21T20:40:00+00:00", "abc1234"),
                Invocation(began, "", "abc1234", hardware, {"limit": 50, "seed": 7}),
            ),
        )
        RUN.write(self.folder, made)
        return self.folder

    def row(
        self, dataset: str, number: int, gold: int | None, method: tuple[str, str, float, int]
    ) -> Row:
        name, _, skill, tokens = method
        draws = random.Random(f"{dataset}{number}{name}")
        luck = random.Random(f"{dataset}{number}").uniform(-0.3, 0.3)
        text, right_answer = ASKED[number % len(ASKED)]
        text += " Once more." * (number // len(ASKED))  # each question is another one
        edge = 0.0 if gold is None or name == "duquad" else 0.14 - 0.018 * min(gold, 19 - gold)
        right = draws.random() < skill + edge + luck
        error, found = "", True
        if name == "toa" and draws.random() < 0.06:
            error = (
                "no reply could be read: the model wrote no JSON in 3 attempts; use a larger one"
            )
            right = found = False
        elif not right and draws.random() < 0.3:
            found = False
        documents = [f"{dataset}:{number}:{place}" for place in range(20)]
        quote = f"This is what the document says of it. The answer is {right_answer}."
        first = Piece(documents[gold or 3], 0, 90, quote, "List of things", ((0, 20),))
        second = Piece(documents[7], 5, 60, "Another passage, of something else.", "Something else")
        said = right_answer if right else "Marie Curie"
        values = {
            "containment": float(right),
            "em": float(right and draws.random() < 0.6),
            "f1": float(right) * draws.uniform(0.5, 1) or draws.uniform(0, 0.2) * found,
            "tokens": float(tokens),
        }
        share = 0.3
        for k in (1, 5, 10, 20, 50, 100):
            share = min(1.0, share + draws.uniform(0, 0.25))
            values[f"recall_at_{k}"] = share
            values[f"ndcg_at_{k}"] = share * 0.9
        usage = {
            "calls": 1 if tokens < 5000 else tokens // 1500,
            "input_tokens": int(tokens * draws.uniform(0.9, 1.1)),
            "output_tokens": draws.randrange(40, 300),
            "cost_usd": 0.0,
        }
        trace = None
        if self.traced and name == "duquad":
            trace = f"traces/{dataset}-{number}.jsonl.gz"
            self.trace(self.folder / trace, gold, draws)
        return Row(
            dataset=dataset,
            question=f"{dataset}-{number}",
            strategy=name,
            question_text=text,
            answers=(right_answer,),
            outcome=Outcome(
                text=f"It was {said}. [1] Some say otherwise. [uncited]" if found else "",
                short=said if found else "",
                found=found,
                citations=(first,) if found else (),
                evidence=(first, second),
                retrieved=(first, second),
                usage=usage,
                seconds=tokens / 2000 * draws.uniform(0.8, 1.3),
                warnings=("a citation was dropped: there is no passage 9",) if number == 1 else (),
                error=error,
            ),
            metrics=values,
            gold_at=gold,
            trace=trace,
            began="2026-11-21T20:02:00+00:00",
        )

    def trace(self, file: Path, gold: int | None, draws: random.Random) -> None:
        """A trace with the attention of twenty documents: high at both ends and at the gold."""
        file.parent.mkdir(exist_ok=True)
        values = [
            0.01 + abs(place - 9.5) / 300 + 0.03 * (place == gold) + draws.uniform(0, 0.012)
            for place in range(20)
        ]
        weighted = {"event": "weighted", "fusion": self.fusion, "signals": {"attention": values}}
        events = [{"event": "asked", "reply": "so"}, weighted]
        with gzip.open(file, "wt", encoding="utf-8") as lines:
            lines.writelines(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def made_run(tmp_path: Path) -> Callable[..., MadeRun]:
    """Makes a run in a fresh folder; its arguments are `MadeRun`'s."""
    return lambda **changes: MadeRun(tmp_path / "run", **changes)
