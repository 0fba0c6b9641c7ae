"""The report: its numbers are the rows', and its texts are text."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from colligate.lab.bench.outcome import Outcome, Row, read_rows
from colligate.lab.bench.report import write_report
from colligate.lab.bench.tables import digest_rows
from support.bench import DATASETS, METHODS, MadeRun, suite_text

Make = Callable[..., Any]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028 '\"`|*_[a](b)"


@pytest.fixture
def made_run(tmp_path: Path) -> Make:
    """Makes a run in a fresh folder; its arguments are `MadeRun`'s."""
    return lambda **changes: MadeRun(tmp_path / "run", **changes)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the drawings out of a report, most of its time, unless a test asks for `drawn`."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture
def drawn() -> None:
    """A report with its drawings."""
    pytest.importorskip("matplotlib")


def report(run: MadeRun) -> str:
    return write_report(run.write()).read_text("utf-8")


def table_after(text: str, heading: str) -> dict[str, list[str]]:
    """The cells of the first table below a heading, by the first of its row."""
    lines = text[text.index(f"\n## {heading}\n") :].splitlines()[2:]
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" |")])
    return {row[0]: row[1:] for row in rows}


def only(name: str) -> Callable[[Row], Row]:
    """Rows of which this strategy alone is right."""
    return lambda row: replace(
        row, metrics={"containment": float(row.strategy == name), "em": float(row.strategy == name)}
    )


def test_the_best_of_each_column_is_marked_and_so_is_what_differs_from_it(made_run: Make) -> None:
    table = table_after(report(made_run(questions=12, change=only("duquad"))), "The table")
    heads = table[""]
    assert len(heads) == len(table["DuQUAD"]) == 11
    at = next(number for number, head in enumerate(heads) if "EM" in head)
    assert table["DuQUAD"][at] == "**100.0** [100.0, 100.0]"
    others = [table[label][at] for label in METHODS.values() if label != "DuQUAD"]
    # p is 2 / 2**12, and eight strategies have 28 pairs: .014.
    assert {re.sub(r"[^*]", "", cell) for cell in others} == {"*"}


def test_published_numbers_stand_beside_ours_and_apart_from_them(made_run: Make) -> None:
    text = report(made_run(questions=2))
    # Two models, our eight rows and one that was not run.
    assert text.count("| *as printed (Llama 3.1 8B)* |") == 8
    assert text.count("| *OpenAI, only printed (Qwen2.5 7B)* |") == 1


def small_suite(columns: str, more: str = "", label: str = "") -> str:
    datasets = [f'[[datasets]]\nname = "{name}"\nfile = "f"\n' for name in DATASETS]
    labelled = f"label = {json.dumps(label)}\n" if label else ""
    methods = [f'[[strategies]]\nname = "{name}"\n{labelled}' for name in [*METHODS][:2]]
    return f'title = "t"\n{columns}\n{"".join(datasets)}{methods[0]}{methods[1]}{more}'


def test_a_group_is_the_mean_of_its_data_sets_each_weighing_alike(made_run: Make) -> None:
    def uneven(row: Row) -> Row | None:
        """NQ-1 has ten questions, all right; NQ-5 has two, both wrong."""
        number = int(row.question.split("-")[-1])
        if row.dataset == "NQ-5" and number > 1:
            return None
        return replace(row, metrics={"em": float(row.dataset == "NQ-1")})

    run = made_run(questions=10, methods=2, change=uneven)
    run.suite = small_suite(
        'columns = [{ dataset = "both", metric = "em", label = "EM", scale = 100 }]',
        '[[groups]]\nname = "both"\ndatasets = ["NQ-1", "NQ-5"]\n',
    )
    table = table_after(report(run), "The table")
    assert table[""] == ["EM (n = 12)"]
    # Neither data set varies, and each is drawn from by itself.
    assert table["full-context"] == ["50.0 [50.0, 50.0]"]


def test_a_metric_of_the_whole_run_stands_without_an_interval(made_run: Make) -> None:
    run = made_run(questions=3, methods=2)
    run.suite = small_suite(
        'columns = [{ dataset = "NQ-1", metric = "mauve", label = "Mau", scale = 100 }]'
    )
    folder = run.write()
    key = ("NQ-1", "full-context")
    rows = digest_rows(row for row in read_rows(folder) if row.key[::2] == key)
    total = {"dataset": key[0], "strategy": key[1], "rows": rows, "metrics": {"mauve": 0.625}}
    (folder / "totals.json").write_text(json.dumps([total]), "utf-8")
    table = table_after(write_report(folder).read_text("utf-8"), "The table")
    assert (table["full-context"], table["reorder-dense"]) == (["62.5"], ["–"])


def test_whatever_a_text_says_it_stays_text(made_run: Make, drawn: None) -> None:
    def hostile(row: Row) -> Row:
        error = HOSTILE if row.strategy == "full-context" else ""
        outcome = Outcome(text=f"{HOSTILE} [1]", short=HOSTILE, found=True, error=error)
        return replace(row, question_text=HOSTILE, answers=(HOSTILE,), outcome=outcome)

    run = made_run(questions=2, methods=2, change=hostile)
    quoted = json.dumps(HOSTILE)
    published = f"row = {quoted}\nvalues = [1.0]\nmodel = {quoted}\nnote = {quoted}\n"
    run.suite = small_suite(
        f'about = {quoted}\ncolumns = [{{ dataset = "NQ-1", metric = "em", label = {quoted} }}]',
        f'[[published]]\n{published}\n[[pictures]]\nkind = "pareto"\nlabel = {quoted}\n',
        HOSTILE,
    ).replace('title = "t"', f"title = {quoted}")
    written = re.sub(r"\\<", "", report(run))
    assert "<script" not in written
    assert "<img" not in written
    assert "alert" in written


def test_what_became_of_each_answer_and_which_to_read(made_run: Make) -> None:
    def become(row: Row) -> Row:
        """Right, wrong, refused, failed by turns; and two without an answer in the documents."""
        found, error, answerable, right = {
            "full-context": (True, "", True, 1.0),
            "reorder-dense": (True, "", True, 0.0),
            "reorder-bm25": (False, "", True, 0.0),
            "toa": (False, "it broke: badly; try again", True, 0.0),
            "main-rag": (False, "", False, 0.0),
            "fim": (True, "", False, 0.0),
        }[row.strategy]
        metrics = {"containment": right} if answerable else {"right_refusal": float(not found)}
        outcome = replace(row.outcome, found=found, error=error)
        return replace(row, outcome=outcome, answerable=answerable, metrics=metrics)

    text = report(made_run(questions=3, methods=6, change=become))
    counts = table_after(text, "What became of the answers")
    names = counts["strategy"]
    assert {
        label: names[next(at for at, count in enumerate(row) if count != "0")]
        for label, row in counts.items()
        if label in METHODS.values()
    } == {
        "Vanilla LLM": "right",
        "SBERT": "wrong",
        "BM25": "refused",
        "ToA": "failed",
        "MAIN-RAG": "right",
        "FiM": "wrong",
    }
    assert text.count("| failed | it broke: badly; try again |") == 10  # of 21
    assert "Answers of Vanilla LLM that" not in text
    assert "Answers of MAIN-RAG that" not in text
    assert len(set(re.findall(r"^\| ([\w-]+) [\w-]+ \| .* \| wrong \|", text, re.M))) > 3


@pytest.mark.parametrize(
    ("questions", "methods", "metrics"), [(0, 8, True), (1, 1, True), (3, 2, False)]
)
def test_small_and_unmeasured_runs_have_a_report_too(
    made_run: Make, drawn: None, questions: int, methods: int, metrics: bool
) -> None:
    def change(row: Row) -> Row:
        return row if metrics else replace(row, metrics={})

    text = report(made_run(questions=questions, methods=methods, change=change))
    assert text.startswith("# DuQUAD, Table 1")


def test_an_unfinished_run_and_missing_drawings_are_said(made_run: Make) -> None:
    def unfinished(row: Row) -> Row | None:
        return None if row.strategy == "duquad" and row.question.endswith("-3") else row

    text = report(made_run(questions=4, change=unfinished))
    table = table_after(text, "The table")
    assert "(n = 3)" in table["DuQUAD"][0]
    assert "n = " not in table["FiM"][0]
    assert "![" not in text
    assert "7 of 224 answers are missing" in text
    assert "matplotlib is not installed" in text


def test_attention_is_shown_by_the_place_of_the_gold(made_run: Make) -> None:
    rows = table_after(report(made_run(questions=5)), "Attention by position")
    at_ten = [
        float(re.split(r"[ \[]", cell.replace("−", "-"))[0]) for cell in rows["Gold document at 10"]
    ]
    assert len(at_ten) == 20
    assert at_ten[9] > max(at_ten[8], at_ten[10])  # the inner stroke of the W
    assert abs(fmean(at_ten)) < 0.01
    # Rows of earlier versions, whose strategies did ask, lack it too.
    without = report(made_run(questions=3, traced=False))
    assert "No row of this run has a strategy" in without


def test_it_is_written_where_asked_with_its_figures_beside_it(
    made_run: Make, drawn: None, tmp_path: Path
) -> None:
    out = tmp_path / "docs"
    out.mkdir()
    file = write_report(made_run(questions=2).write(), out / "of v1.5.md")
    assert file == out / "of v1.5.md"
    linked = re.findall(r"!\[.*\]\((.*)\)", file.read_text("utf-8"))
    figures = {each.name.replace(" ", "%20") for each in out.glob(f"{file.stem}-*.svg")}
    assert set(linked) == figures
    assert len(linked) == 4


def test_rows_of_one_label_and_a_named_reader_are_kept_apart(made_run: Make) -> None:
    run = made_run(questions=3, methods=2, suite=suite_text(2).replace('"SBERT"', '"Vanilla LLM"'))
    file = run.write() / "run.json"
    record = json.loads(file.read_text("utf-8")) | {"settings": {"reader": "plain"}}
    file.write_text(json.dumps(record), "utf-8")

    text = write_report(run.folder).read_text("utf-8")

    assert text.count("<summary>Answers of Vanilla LLM that are not right</summary>") == 2
    made_with = table_after(text, "Made with")
    assert made_with["reader"] == ["plain"]
    assert made_with["model: reader"][0].startswith("name: gguf:models/qwen2.5")
