"""The report: its numbers are the rows', its texts are text, and it needs nothing but itself."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from lxml import html

from colligate.lab.bench import report as report_module
from colligate.lab.bench.outcome import Outcome, Piece, Row, read_rows
from colligate.lab.bench.report import write_report
from colligate.lab.bench.tables import digest_rows
from support.bench import DATASETS, METHODS, MadeRun

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


def opened(page: Path) -> html.HtmlElement:
    return html.document_fromstring(page.read_text("utf-8"))


def data(page: Path) -> dict[str, Any]:
    [script] = opened(page).xpath("//script[@type='application/json']")
    found: dict[str, Any] = json.loads(script.text)
    return found


def words(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def results(page: Path) -> tuple[list[str], dict[str, list[html.HtmlElement]]]:
    """The table's columns, and the cells of our rows by label."""
    [table] = opened(page).xpath("//table[@class='results']")
    heads = [words(head) for head in table.xpath(".//thead//th[@scope='col']")]
    rows = {
        words(row.xpath("./th")[0]): row.xpath("./td")
        for row in table.xpath(".//tr[@class='ours']")
    }
    return heads, rows


def only(name: str) -> Callable[[Row], Row]:
    """Rows of which this strategy alone is right."""
    return lambda row: replace(
        row, metrics={"containment": float(row.strategy == name), "em": float(row.strategy == name)}
    )


def test_the_best_of_each_column_is_marked_and_so_is_what_differs_from_it(made_run: Make) -> None:
    folder = made_run(questions=12, change=only("duquad")).write()
    page, text = write_report(folder)
    heads, rows = results(page)
    assert len(heads) == 11
    assert all(len(cells) == 11 for cells in rows.values())
    at = next(number for number, head in enumerate(heads) if "EM" in head)
    assert rows["DuQUAD"][at].get("class") == "best"
    assert "100.0" in words(rows["DuQUAD"][at])
    others = [cells[at] for label, cells in rows.items() if label != "DuQUAD"]
    assert all(cell.get("class") is None for cell in others)
    # p is 2 / 2**12, and eight strategies have 28 pairs: .014.
    assert {re.sub(r"[^*]", "", words(cell)) for cell in others} == {"*"}
    assert "**100.0** [100.0, 100.0]" in text.read_text("utf-8")


@pytest.mark.parametrize(
    ("questions", "methods", "stars"), [(5, 2, False), (6, 2, True), (6, 3, False)]
)
def test_stars_need_six_questions_and_are_corrected_for_all_pairs(
    made_run: Make, questions: int, methods: int, stars: bool
) -> None:
    run = made_run(questions=questions, methods=methods, change=only("reorder-dense"))
    page, text = write_report(run.write())
    cell = words(results(page)[1]["Vanilla LLM"][0])
    assert cell.startswith("0.0*") == stars
    assert ("Differences from the best" in text.read_text("utf-8")) == (questions >= 6)
    assert ("[0.0, 0.0]" in cell) == (questions >= 6)


def test_published_numbers_stand_beside_ours_and_apart_from_them(made_run: Make) -> None:
    page, text = write_report(made_run(questions=2).write())
    [table] = opened(page).xpath("//table[@class='results']")
    printed = table.xpath(".//tr[contains(@class, 'published')]")
    assert len(printed) == 2 * 9  # two models, our eight rows and one that was not run
    labels = {words(row.xpath("./th")[0]) for row in printed}
    assert labels == {
        *("paper, Llama 3.1 8B", "paper, Qwen2.5 7B"),
        *("OpenAI Llama 3.1 8B", "OpenAI Qwen2.5 7B"),
    }
    bodies = [words(body) for body in table.xpath("./tbody")]
    assert bodies[-2] == "Not run here"
    assert bodies[-1].startswith("OpenAI")
    assert "*as printed (Llama 3.1 8B)*" in text.read_text("utf-8")


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
    heads, rows = results(write_report(run.write())[0])
    assert heads == ["EM n = 12"]
    # Neither data set varies, and each is drawn from by itself.
    assert words(rows["full-context"][0]) == "50.0 [50.0, 50.0]"


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
    page, text = write_report(folder)
    _, table = results(page)
    assert words(table["full-context"][0]) == "62.5"
    assert words(table["reorder-dense"][0]) == "–"
    assert "| full-context | 62.5 |" in text.read_text("utf-8")


def test_whatever_a_text_says_it_stays_text(made_run: Make, drawn: None) -> None:
    piece = Piece("d", 0, 5, HOSTILE, HOSTILE, ((0, 4),))

    def hostile(row: Row) -> Row:
        outcome = Outcome(
            text=f"{HOSTILE} [1]",
            short=HOSTILE,
            found=True,
            citations=(piece,),
            evidence=(piece,),
            warnings=(HOSTILE,),
            error=HOSTILE if row.strategy == "full-context" else "",
        )
        changes = {"question_text": HOSTILE, "answers": (HOSTILE,), "outcome": outcome}
        return replace(row, **changes, unmeasured={"judge": HOSTILE}, trace="../../etc/passwd")

    run = made_run(questions=2, methods=2, change=hostile)
    quoted = json.dumps(HOSTILE)
    published = f"row = {quoted}\nvalues = [1.0]\nmodel = {quoted}\nnote = {quoted}\n"
    run.suite = small_suite(
        f'about = {quoted}\ncolumns = [{{ dataset = "NQ-1", metric = "em", label = {quoted} }}]',
        f"[[published]]\n{published}",
        HOSTILE,
    ).replace('title = "t"', f"title = {quoted}")
    page, text = write_report(run.write())
    tree = opened(page)
    assert len(tree.xpath("//script")) == 2
    assert not tree.xpath("//img[not(starts-with(@src, 'data:'))]")
    assert not tree.xpath("//@*[starts-with(name(), 'on')]")
    assert tree.xpath("//h1")[0].text == HOSTILE
    [question, *_] = data(page)["questions"]
    assert question["text"] == question["pieces"][0]["text"] == HOSTILE
    assert {answer["trace"] for answer in question["answers"]} == {""}
    written = re.sub(r"\\<", "", text.read_text("utf-8"))
    assert "<script" not in written
    assert "<img" not in written


def test_the_page_needs_nothing_but_itself(made_run: Make, drawn: None) -> None:
    page, _ = write_report(made_run(questions=2).write())
    tree = opened(page)
    assert not tree.xpath("//link | //iframe | //script[@src] | //style[contains(., '@import')]")
    assert all(each.startswith("data:image/svg+xml;base64,") for each in tree.xpath("//@src"))
    assert all(link.startswith("#") for link in tree.xpath("//a/@href"))
    assert not re.search(r"url\(", "".join(tree.xpath("//style/text()")))
    assert "innerHTML" not in tree.xpath("//script[not(@type)]")[0].text
    assert not re.search(r"https?://", page.read_text("utf-8"))


def test_everything_on_the_page_has_a_name(made_run: Make, drawn: None) -> None:
    tree = opened(write_report(made_run(questions=2).write())[0])
    assert tree.get("lang") == "en"
    assert len(tree.xpath("//h1")) == 1
    assert not tree.xpath("//img[not(@alt)] | //svg")
    assert not tree.xpath("//table[not(.//th)]")
    assert not tree.xpath("//th[not(@scope)]")
    assert all(field.xpath("ancestor::label") for field in tree.xpath("//input | //select"))
    names = tree.xpath("//@id")
    assert len(names) == len(set(names))
    for link in tree.xpath("//a/@href"):
        assert link.removeprefix("#") in names
    # What scrolls sideways can be reached by the keyboard.
    assert not tree.xpath("//*[contains(@class, 'scroll') and not(@tabindex)]")


def test_what_became_of_each_answer(made_run: Make) -> None:
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

    page, text = write_report(made_run(questions=3, methods=6, change=become).write())
    read = data(page)
    kinds = {
        read["methods"][answer["m"]]: read["verdicts"][answer["v"]]
        for question in read["questions"]
        for answer in question["answers"]
    }
    assert kinds == {
        "Vanilla LLM": "right",
        "SBERT": "wrong",
        "BM25": "refused",
        "ToA": "failed",
        "MAIN-RAG": "right",
        "FiM": "wrong",
    }
    [section] = opened(page).xpath("//section[@id='verdicts']")
    assert "it broke: badly; try again" in words(section)
    assert "| it broke | ToA | 21 | it broke: badly; try again |" in text.read_text("utf-8")


@pytest.mark.parametrize(
    ("questions", "methods", "metrics"), [(0, 8, True), (1, 1, True), (3, 2, False)]
)
def test_small_and_unmeasured_runs_have_a_report_too(
    made_run: Make, drawn: None, questions: int, methods: int, metrics: bool
) -> None:
    def change(row: Row) -> Row:
        return row if metrics else replace(row, metrics={})

    run = made_run(questions=questions, methods=methods, change=change)
    page, text = write_report(run.write())
    assert len(data(page)["questions"]) == 7 * questions
    assert text.read_text("utf-8").startswith("# DuQUAD, Table 1")


def test_an_unfinished_run_and_missing_drawings_are_said(made_run: Make) -> None:
    def unfinished(row: Row) -> Row | None:
        return None if row.strategy == "duquad" and row.question.endswith("-3") else row

    page, text = write_report(made_run(questions=4, change=unfinished).write())
    _, rows = results(page)
    assert "n = 3" in words(rows["DuQUAD"][0])
    assert "n = " not in words(rows["FiM"][0])
    assert not opened(page).xpath("//img")
    assert len(opened(page).xpath("//figure//details//table")) == 4
    for file in (page, text):
        assert "7 of 224 answers are missing" in file.read_text("utf-8")
        assert "matplotlib is not installed" in file.read_text("utf-8")


def test_attention_is_drawn_by_the_place_of_the_gold(made_run: Make) -> None:
    page, _ = write_report(made_run(questions=5).write())
    [figure] = opened(page).xpath("//figure[starts-with(@id, 'attention')]")
    rows = {words(row[0]): [words(cell) for cell in row[1:]] for row in figure.xpath(".//tbody/tr")}
    at_ten = [
        float(re.split(r"[ \[]", cell.replace("−", "-"))[0]) for cell in rows["Gold document at 10"]
    ]
    assert len(at_ten) == 20
    assert at_ten[9] > max(at_ten[8], at_ten[10])  # the inner stroke of the W
    assert abs(fmean(at_ten)) < 0.01
    # Rows of earlier versions, whose strategies did ask, lack it too.
    without, _ = write_report(made_run(questions=3, traced=False).write())
    assert "No row of this run has a strategy" in without.read_text("utf-8")


@pytest.mark.parametrize("name", ["", "v1.5.html", "v1.5.md", "v1.5"])
def test_it_is_written_where_asked_and_links_to_the_traces(
    made_run: Make, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "docs"
    out.mkdir()
    page, text = write_report(made_run(questions=1).write(), out / name)
    stem = "v1.5" if name else "report"
    assert (page, text) == (out / f"{stem}.html", out / f"{stem}.md")
    assert text.is_file()
    links = [a["trace"] for q in data(page)["questions"] for a in q["answers"] if a["trace"]]
    assert len(links) == 7
    assert all((page.parent / link).is_file() for link in links)


def test_more_than_a_page_can_hold_is_sampled_and_said(
    made_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "MOST_CHARACTERS", 20_000)

    def broken(row: Row) -> Row:
        error = "it broke" if row.question == "MuSiQue-29" else ""
        return replace(row, outcome=replace(row.outcome, error=error))

    folder = made_run(questions=30, methods=2, traced=False, change=broken).write()
    page, _ = write_report(folder)
    shown = data(page)["questions"]
    assert 5 < len(shown) < 210
    assert f"This page has {len(shown)} of 210 questions" in page.read_text("utf-8")
    assert "MuSiQue-29" in [question["id"] for question in shown]
    assert len({question["dataset"] for question in shown}) > 3
    write_report(folder)
    assert data(page)["questions"] == shown  # the same ones each time
