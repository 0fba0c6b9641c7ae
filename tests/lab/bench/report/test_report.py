"""The report: its numbers are the rows', its texts are text, and it needs nothing but itself."""

import gzip
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

from colligate.errors import ColligateError, MissingPath
from colligate.lab.bench import report as report_module
from colligate.lab.bench.outcome import Outcome, Piece, Row, read_rows
from colligate.lab.bench.report import write_report

Make = Callable[..., Any]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028 '\"`|*_[a](b)"


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


def test_the_table_has_the_means_of_the_rows(made_run: Make) -> None:
    folder = made_run(questions=12).write()
    page, _ = write_report(folder)
    heads, rows = results(page)
    assert len(heads) == 11
    values = [
        row.metrics["containment"]
        for row in read_rows(folder)
        if (row.dataset, row.strategy) == ("NQ-10", "fim")
    ]
    assert words(rows["FiM"][2]).startswith(f"{100 * fmean(values):.1f}")
    assert all(len(cells) == 11 for cells in rows.values())


def test_the_best_of_each_column_is_marked_and_so_is_what_differs_from_it(made_run: Make) -> None:
    def skilled(row: Row) -> Row:
        return replace(row, metrics={**row.metrics, "em": float(row.strategy == "duquad")})

    page, text = write_report(made_run(questions=12, change=skilled).write())
    heads, rows = results(page)
    at = [number for number, head in enumerate(heads) if head.startswith("EM")]
    for number in at:
        assert rows["DuQUAD"][number].get("class") == "best"
        assert "100.0" in words(rows["DuQUAD"][number])
        others = [cells[number] for label, cells in rows.items() if label != "DuQUAD"]
        assert all(cell.get("class") is None for cell in others)
        # p is 2 / 2**12, and eight strategies have 28 pairs: .014.
        assert {re.sub(r"[^*]", "", words(cell)) for cell in others} == {"*"}
    assert "**100.0** [100.0, 100.0]" in text.read_text("utf-8")


def test_two_strategies_need_no_correction_and_the_numbers_show_both_p(made_run: Make) -> None:
    def skilled(row: Row) -> Row:
        return replace(row, metrics={"containment": float(row.strategy == "reorder-dense")})

    two, three = (
        results(write_report(made_run(questions=6, methods=n, change=skilled).write())[0])[1]
        for n in (2, 3)
    )
    assert words(two["Vanilla LLM"][0]).startswith("0.0*")
    assert "*" not in words(three["Vanilla LLM"][0])


def test_too_few_questions_have_no_stars_no_best_and_no_interval(made_run: Make) -> None:
    def skilled(row: Row) -> Row:
        return replace(row, metrics={"containment": float(row.strategy == "duquad")})

    five, six = (
        write_report(made_run(questions=count, change=skilled).write())[1].read_text("utf-8")
        for count in (5, 6)
    )
    of_five = next(line for line in five.splitlines() if line.startswith("| DuQUAD"))
    of_six = next(line for line in six.splitlines() if line.startswith("| DuQUAD"))
    assert "100.0" in of_five
    assert "**" not in of_five
    assert "[" not in of_five
    assert "**100.0** [100.0, 100.0]" in of_six
    assert "\\*" not in re.sub(r"Bold: .*", "", five + six), "p .031 of one of 28 pairs"
    assert "Differences from the best" in six
    assert "Differences from the best" not in five


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
    # A number that lost its last zero in the file is printed as the others of its column are.
    numbers = [words(row.xpath("./td")[0]) for row in printed]
    assert all(re.fullmatch(r"\d+\.\d", number) for number in numbers)


def small_suite(more: str, columns: str) -> str:
    datasets = ("NQ-1", "NQ-5", "NQ-10", "NQ-15", "NQ-20", "MuSiQue", "HotpotQA")
    parts = [f'[[datasets]]\nname = "{name}"\nfile = "f"\n' for name in datasets]
    methods = [f'[[strategies]]\nname = "{name}"\n' for name in ("full-context", "reorder-dense")]
    return f'title = "t"\n{columns}\n{"".join(parts)}\n{"".join(methods)}\n{more}'


def test_a_group_is_the_mean_of_its_data_sets_each_weighing_alike(made_run: Make) -> None:
    def uneven(row: Row) -> Row | None:
        """NQ-1 has ten questions, all right; NQ-5 has two, both wrong."""
        number = int(row.question.split("-")[-1])
        if row.dataset == "NQ-5" and number > 1:
            return None
        return replace(row, metrics={"em": float(row.dataset == "NQ-1")})

    run = made_run(questions=10, methods=2, change=uneven)
    run.suite = small_suite(
        '[[groups]]\nname = "both"\ndatasets = ["NQ-1", "NQ-5"]\n',
        'columns = [{ dataset = "both", metric = "em", label = "EM", scale = 100 }]',
    )
    heads, rows = results(write_report(run.write())[0])
    assert heads == ["EM n = 12"]
    # Neither data set varies, and each is drawn from by itself.
    assert words(rows["full-context"][0]) == "50.0 50.0–50.0"


def test_a_metric_of_the_whole_run_stands_without_an_interval(made_run: Make) -> None:
    run = made_run(questions=3, methods=2)
    run.suite = small_suite(
        "", 'columns = [{ dataset = "NQ-1", metric = "mauve", label = "Mau", scale = 100 }]'
    )
    folder = run.write()
    total = {"dataset": "NQ-1", "strategy": "full-context", "metrics": {"mauve": 0.625}}
    (folder / "totals.json").write_text(json.dumps([total]), "utf-8")
    page, text = write_report(folder)
    _, rows = results(page)
    assert words(rows["full-context"][0]) == "62.5"
    assert words(rows["reorder-dense"][0]) == "–"
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
            usage=row.outcome.usage,
            warnings=(HOSTILE,),
            error=HOSTILE if row.strategy == "toa" else "",
        )
        return replace(
            row,
            question_text=HOSTILE,
            answers=(HOSTILE,),
            outcome=outcome,
            unmeasured={"judge": HOSTILE},
            trace="../../etc/passwd",
        )

    run = made_run(questions=2, methods=4, change=hostile)
    quoted = json.dumps(HOSTILE)
    run.suite = (
        f"title = {quoted}\nabout = {quoted}\n"
        + "".join(
            f'[[datasets]]\nname = "{name}"\nfile = "f"\n'
            for name in ("NQ-1", "NQ-5", "NQ-10", "NQ-15", "NQ-20", "MuSiQue", "HotpotQA")
        )
        + "".join(
            f'[[strategies]]\nname = "{name}"\nlabel = {quoted}\n'
            for name in ("full-context", "reorder-dense", "reorder-bm25", "toa")
        )
        + f'[[columns]]\ndataset = "NQ-1"\nmetric = "em"\nlabel = {quoted}\n'
        + f'[[published]]\nrow = {quoted}\ndataset = "NQ-1"\nmetric = "em"\nvalue = 1.0\n'
        + f"model = {quoted}\nnote = {quoted}\n"
    )
    page, text = write_report(run.write())
    tree = opened(page)
    assert len(tree.xpath("//script")) == 2
    assert not tree.xpath("//img[not(starts-with(@src, 'data:'))]")
    assert not tree.xpath("//@*[starts-with(name(), 'on')]")
    assert tree.xpath("//h1")[0].text == HOSTILE
    [question, *_] = data(page)["questions"]
    assert question["text"] == HOSTILE
    assert question["pieces"][0]["text"] == HOSTILE
    assert {answer["trace"] for answer in question["answers"]} == {""}
    written = text.read_text("utf-8")
    assert "<script" not in re.sub(r"\\<", "", written)
    assert "<img" not in re.sub(r"\\<", "", written)


def test_the_page_needs_nothing_but_itself(made_run: Make, drawn: None) -> None:
    page, _ = write_report(made_run(questions=2).write())
    tree = opened(page)
    assert not tree.xpath("//link | //iframe | //script[@src] | //style[contains(., '@import')]")
    assert all(each.startswith("data:image/svg+xml;base64,") for each in tree.xpath("//@src"))
    assert all(link.startswith("#") for link in tree.xpath("//a/@href"))
    assert not re.search(r"url\(", "".join(tree.xpath("//style/text()")))
    script = tree.xpath("//script[not(@type)]")[0].text
    assert "innerHTML" not in script
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


def test_a_failed_answer_counts_as_wrong_in_every_mean(made_run: Make) -> None:
    def half_broken(row: Row) -> Row:
        broken = int(row.question.split("-")[-1]) % 2 == 0
        outcome = replace(row.outcome, error="no answer" if broken else "", found=not broken)
        return replace(row, outcome=outcome, metrics={"containment": float(not broken)})

    page, _ = write_report(made_run(questions=4, change=half_broken).write())
    _, rows = results(page)
    assert words(rows["DuQUAD"][0]).startswith("50.0")


def test_an_unfinished_run_says_what_is_missing(made_run: Make) -> None:
    def unfinished(row: Row) -> Row | None:
        return None if row.strategy == "duquad" and row.question.endswith("-3") else row

    page, text = write_report(made_run(questions=4, change=unfinished).write())
    _, rows = results(page)
    assert "n = 3" in words(rows["DuQUAD"][0])
    assert "n = " not in words(rows["FiM"][0])
    assert "7 of 224 answers are missing" in page.read_text("utf-8")
    assert "7 of 224 answers are missing" in text.read_text("utf-8")


@pytest.mark.parametrize(
    ("questions", "methods", "metrics"), [(0, 8, True), (1, 1, True), (3, 1, True), (3, 2, False)]
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


def test_recall_position_attention_and_cost_are_drawn(made_run: Make, drawn: None) -> None:
    tree = opened(write_report(made_run(questions=3).write())[0])
    titles = [words(each) for each in tree.xpath("//figure//h3")]
    assert titles == [
        "Containment by the place of the gold document",
        "Attention by position",
        "Recall against k",
        "Cost against quality",
    ]
    for figure in tree.xpath("//figure"):
        assert figure.xpath(".//img")
        assert figure.xpath(".//details//table")  # the same as numbers


def test_a_picture_without_numbers_says_why(made_run: Make, drawn: None) -> None:
    page, _ = write_report(made_run(questions=3, traced=False).write())
    [figure] = opened(page).xpath("//figure[@id='attention-by-position']")
    assert "No trace of this run has" in words(figure)
    assert not figure.xpath(".//img")


def test_without_matplotlib_a_report_has_its_numbers_and_says_what_is_missing(
    made_run: Make,
) -> None:
    page, text = write_report(made_run(questions=6).write())
    tree = opened(page)
    assert not tree.xpath("//img")
    assert len(tree.xpath("//figure//details//table")) == 4
    for file in (page, text):
        assert "matplotlib is not installed" in file.read_text("utf-8")


def test_attention_is_drawn_from_the_traces_and_marks_the_gold(made_run: Make) -> None:
    page, _ = write_report(made_run(questions=5).write())
    [figure] = opened(page).xpath("//figure[starts-with(@id, 'attention')]")
    rows = {words(row[0]): [words(cell) for cell in row[1:]] for row in figure.xpath(".//tbody/tr")}
    at_ten = [
        float(re.split(r"[ \[]", cell.replace("−", "-"))[0]) for cell in rows["Gold document at 10"]
    ]
    assert len(at_ten) == 20
    neighbours = at_ten[8], at_ten[10]
    assert at_ten[9] > max(neighbours)  # the inner stroke of the W
    assert abs(fmean(at_ten)) < 0.01


def test_torn_missing_and_foreign_traces_are_passed_over(made_run: Make, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere.jsonl.gz"
    with gzip.open(secret, "wt") as lines:
        lines.write(
            json.dumps({"event": "weighted", "fusion": "sfs", "signals": {"attention": [1, 2, 3]}})
            + "\n"
        )

    def foreign(row: Row) -> Row:
        return replace(row, trace="../elsewhere.jsonl.gz" if row.trace else None)

    folder = made_run(questions=3, change=foreign).write()
    page, _ = write_report(folder)
    assert "No trace of this run has" in page.read_text("utf-8")

    folder = made_run(questions=3).write()
    for number, file in enumerate(sorted(folder.glob("traces/*"))):
        if number % 3 == 0:
            file.write_bytes(file.read_bytes()[:30])
        elif number % 3 == 1:
            file.unlink()
    page, _ = write_report(folder)
    assert "averaged over 7 traces" in page.read_text("utf-8")


def test_attention_asked_in_another_order_says_nothing_of_positions(made_run: Make) -> None:
    page, _ = write_report(made_run(questions=3, fusion="calibrated").write())
    assert "No trace of this run has" in page.read_text("utf-8")


def test_answers_link_to_their_traces_from_where_the_page_stands(
    made_run: Make, tmp_path: Path
) -> None:
    folder = made_run(questions=1).write()
    page, _ = write_report(folder, tmp_path / "pages" / "a.html")
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


def test_where_it_is_written(made_run: Make, tmp_path: Path) -> None:
    folder = made_run(questions=1).write()
    assert write_report(folder) == (folder / "report.html", folder / "report.md")
    wanted = tmp_path / "docs"
    wanted.mkdir()
    assert write_report(folder, wanted) == (wanted / "report.html", wanted / "report.md")
    named = (wanted / "v1.5.html", wanted / "v1.5.md")
    assert write_report(folder, wanted / "v1.5.html") == named
    assert write_report(folder, wanted / "v1.5.md") == named
    assert all(file.is_file() for file in named)
    numbered = (wanted / "v1.6.html", wanted / "v1.6.md")
    assert write_report(folder, wanted / "v1.6") == numbered


def test_no_run_and_no_room_are_said_in_a_line(made_run: Make, tmp_path: Path) -> None:
    with pytest.raises(MissingPath, match="is not a run"):
        write_report(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ColligateError, match="cannot write"):
        write_report(made_run(questions=1).write(), tmp_path / "file" / "report.html")


def test_every_table_of_the_markdown_is_one(made_run: Make) -> None:
    def piped(row: Row) -> Row:
        outcome = replace(row.outcome, error="a | b\nc" if row.strategy == "toa" else "")
        return replace(row, outcome=outcome)

    _, text = write_report(made_run(questions=2, change=piped).write())
    tables = re.findall(r"(?:^\|.*\n)+", text.read_text("utf-8"), re.MULTILINE)
    assert len(tables) > 8
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio."""
    first, second = sorted((luminance(one), luminance(other)), reverse=True)
    return (first + 0.05) / (second + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
