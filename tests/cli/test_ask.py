"""`colligate ask`: what it prints where, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colligate import Answer
from colligate.cli.ask import show
from colligate.cli.options import RunOptions
from colligate.cli.progress import Watcher
from support.cli import asking

COMMAND = [sys.executable, "-m", "colligate"]
KEYS = [
    "question", "strategy", "answer", "short_answer", "found", "ground", "how",
    "probability", "citations", "evidence", "usage", "warnings",
]  # fmt: skip
CITATION = {"document", "title", "section", "page", "start", "end", "quote"}
USAGE = [
    "calls", "input_tokens", "cached_tokens", "output_tokens", "scoring_passes",
    "scoring_tokens", "retrieval_rounds", "seconds", "cost_usd", "by_role", "remembered",
    "offline", "by_step", "split",
]  # fmt: skip


def fault(done: Any) -> str:
    """The one line that says what went wrong; nothing is printed as a result."""
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("colligate: ")]
    assert len(said) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == said[0]
    return str(said[0])


def test_json_is_one_object_whose_citations_are_slices_of_the_document(ask, colligate, folder):
    done = ask(folder, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert list(answer) == KEYS
    assert list(answer["usage"]) == USAGE
    assert answer["question"] == "When was the tower built?"
    assert (answer["strategy"], answer["found"], answer["short_answer"]) == ("auto", True, "1871")
    [citation] = answer["citations"]
    assert set(citation) >= CITATION
    assert citation["section"] == ["The lighthouse", "Building"]
    text = colligate.here("library", "show", citation["document"], "--text").stdout
    assert text[citation["start"] : citation["end"]] == citation["quote"]
    assert "1871" in citation["quote"]
    for start, end in citation["answer_spans"]:
        assert "1871" in answer["answer"][start:end]
    for evidence in answer["evidence"]:
        assert set(evidence) == {"document", "start", "end", "score", "reason"}


def test_the_answer_is_on_standard_output_and_all_else_on_standard_error(colligate, asked, folder):
    done = colligate(*asked(folder, "--effort", "low"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "1871: “The tower was built in 1871 by Ada Mercer.” [1]"  # without a call
    assert lines[2] == f"[1] The lighthouse › Building ({folder / 'tower.md'})"
    assert lines[3].startswith("    The tower was built in 1871 by Ada Mercer.")
    assert "reading 0 of 2" in done.stderr
    assert "located: The lighthouse" in done.stderr
    assert done.stderr.index("located: ") < done.stderr.index("read 2 passages of 2 documents")
    assert "0 calls" in done.stderr
    assert "likely right: " in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_the_answer_is_written_to_a_file_as_well(ask, folder, tmp_path):
    file = tmp_path / "answer.md"
    done = ask(folder, "--json", "-o", file)
    assert json.loads(done.stdout)["short_answer"] == "1871"
    assert f"written to {file}" in done.stderr
    where, quote = file.read_text("utf-8").split("\n\n")[4:6]
    assert where == f"[1] The lighthouse › Building ({folder / 'tower.md'})"
    assert quote.startswith("> The tower was built in 1871 by Ada Mercer.")
    ask(folder, "-o", tmp_path / "answer.bib", "-o", tmp_path / "answer.html")
    assert "Ada Mercer" in (tmp_path / "answer.html").read_text("utf-8")
    assert "title = {{The lighthouse}}" in (tmp_path / "answer.bib").read_text("utf-8")
    (folder / "tower.md").unlink()
    assert ask(folder, "-o", file).returncode == 3
    assert "What was read" in file.read_text("utf-8")


def test_parameters_of_the_strategy_are_set(colligate, tower_reader, folder, tmp_path):
    model = f"openai:reader@{tower_reader.url}"
    trace = tmp_path / "trace.jsonl"
    done = colligate.here(
        "ask", "When was the tower built?", folder, "--model", model, "--embedder", "static",
        "--strategy", "retrieve-read", "--set", "k=2", "--set", "mode=sparse", "--set", "k=1",
        "--trace", trace, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["evidence"]) == 1
    [retrieved] = [event for event in _events(trace) if event["event"] == "retrieved"]
    assert (retrieved["how"], len(retrieved["spans"])) == ("sparse", 1)


def test_a_risk_is_of_no_use_where_no_probability_is_known(ask, folder):
    for given, said in (([], False), (["--risk", "eager"], True)):
        done = ask(folder, "--strategy", "direct", *given)
        assert ("so --risk says nothing about it" in done.stderr) is said


def test_how_likely_an_answer_is_right_is_said_where_it_is_known(capsys):
    sure = Answer("When?", "auto", "In 1871. [1]", found=True, probability=0.996)
    for answer in (sure, replace(sure, probability=None), replace(sure, found=False)):
        show(answer, RunOptions(), Watcher(None))
        assert ("likely right: 99%" in capsys.readouterr().err) is (answer is sure)


def test_what_has_no_source_is_struck_out_in_a_terminal(colligate, openai_server, folder):
    quoted = {"passage": 1, "quote": "The tower was built in 1871 by Ada Mercer."}
    said = [
        {**quoted, "sentence": "It was built in 1871."},
        {**quoted, "quote": "nowhere", "sentence": "It is made of gold."},
    ]
    openai_server.answer = json.dumps({"statements": said, "short_answer": "1871", "found": True})
    tower = folder / "tower.md"
    status, shown = colligate.in_terminal(
        *asking(openai_server, tower, "--strategy", "full-context", "--check", "none")
    )
    assert status == 0
    answer = shown.rpartition("It was built in 1871.")[2]
    assert re.search(r"\x1b\[[\d;]*9m *It is made of gold\.", answer)
    assert "[uncited]" in answer


def test_what_is_not_in_the_documents_is_status_3(ask, folder):
    (folder / "tower.md").unlink()
    done = ask(folder)
    assert (done.returncode, done.stdout) == (3, "Not in these documents.\n")
    done = ask(folder, "--json")
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert (answer["found"], answer["citations"]) == (False, [])
    assert ask(folder / "harbour.md").returncode == 3, "only the paths given are in view"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "QUESTION"),
        (["Who?", "--nonsense"], "--nonsense"),
        (["Who?", "--max-tokens-total", "0"], "--max-tokens-total"),
        (["FOLDER"], "is not a question: it is a file or folder"),
        (["  ", "FOLDER"], "the question is empty"),
        (["Who?", "FOLDER/none.txt"], "none.txt"),
        (["Who?", ""], "it is empty"),
        (["Wh\udcff?", "FOLDER"], "the question is not text"),
        (["Who?", "FOLDER/*.none"], "no such file or folder"),
        (["Who?", "EMPTY"], "the folder is empty"),
        (["Who?", "FOLDER", "--strategy", "retreive-read"], "did you mean 'retrieve-read'?"),
        (["Who?", "FOLDER", "--set", "kk=3"], "auto has no parameter 'kk'"),
        (["Who?", "FOLDER", "--effort", "most"], "'most' is not one of"),
        (["Who?", "FOLDER", "--strategy", "rdr2", "--effort", "low"], "rdr2 has no parameter"),
        (["Who?", "FOLDER", "--set", "k=many"], "cannot set k of auto"),
        (["Who?", "FOLDER", "--risk", "bold"], "no risk 'bold'"),
        (["Who?", "FOLDER", "--strategy", "direct", "--set", "max_tokens"], "max_tokens=VALUE"),
        (["Who?", "FOLDER", "--model", "bundeld"], "names are bundled, "),
        (["Who?", "FOLDER", "--model", "gguf:none.gguf"], "none.gguf"),
        (["Who?", "FOLDER", "--embedder", "minilmm"], "names are minilm, "),
        (["Who?", "FOLDER", "--reranker", "best"], "no reranker 'best'"),
        (["Who?", "FOLDER", "--trace", "EMPTY"], "cannot write the trace"),
        (["Who?", "FOLDER", "-o", "EMPTY/answer.pdf"], "answer.pdf"),
        (["Who?", "FOLDER", "-o", "EMPTY/answer"], "no answer is written as answer"),
        (["Who?", "FOLDER", "-o", "EMPTY/nowhere/answer.md"], "nowhere does not exist"),
        (["Who?"], "is empty"),
        (["Who? " * 60], "is empty"),
    ],
)
def test_wrong_usage_is_status_2_and_one_line(colligate, openai_server, folder, arguments, says):
    (folder / "empty").mkdir()
    places = {"FOLDER": str(folder), "EMPTY": str(folder / "empty")}
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    named = {argument for argument in arguments if argument.startswith("--")}
    if "--model" not in named:
        arguments = [*arguments, "--model", f"openai:reader@{openai_server.url}"]
    if "--embedder" not in named:
        arguments = [*arguments, "--embedder", "static"]
    done = colligate.here("ask", *arguments)
    assert done.returncode == 2, done.stderr
    assert says in fault(done)
    assert openai_server.requests == []


def test_wrong_usage_empties_no_trace(colligate, folder, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("of before")
    done = colligate.here("ask", "Who?", str(folder), "--set", "kk=3", "--trace", str(trace))
    assert done.returncode == 2
    assert trace.read_text() == "of before"


def test_a_second_question_neither_reads_nor_embeds_again(ask, folder, tmp_path):
    # A file written this very moment may still change within a tick of the clock.
    for file in folder.iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert ask(folder, "--trace", first).returncode == 0
    assert ask(folder, "--trace", second).returncode == 0
    assert {"reading", "embedding"} <= _phases(first)
    assert not {"reading", "embedding"} & _phases(second)


def _phases(trace: Path) -> set[str]:
    return {e["phase"] for e in _events(trace) if e["event"] == "progressed"}


def _events(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]


@pytest.mark.linux
def test_what_fails_outside_is_status_1_and_one_line(ask, colligate, openai_server, folder):
    for arguments, says in (
        (("--trace", "/dev/full"), "the trace /dev/full: No space left on device"),
        (("--model", "openai:m@http://127.0.0.1:9/v1"), "nobody answers at http://127.0.0.1:9/v1"),
        (("--max-tokens-total", "50"), "raise the token limit (--max-tokens-total)"),
    ):
        done = ask(folder, *arguments)
        assert done.returncode == 1
        assert says in fault(done)
    openai_server.key = "right"
    colligate.environment["OPENAI_API_KEY"] = "sk-wrong-and-secret"
    # The carried reranker has worked before it, and costs nothing.
    for reranker in ("none", "minilm"):
        done = ask(folder, "--reranker", reranker, "--strategy", "retrieve-read")
        assert done.returncode == 1
        assert "key" in fault(done)
        assert "sk-wrong-and-secret" not in done.stderr
    openai_server.key = None
    openai_server.hold()
    done = ask(folder, "--timeout", "2")
    assert done.returncode == 1
    assert "no answer within 2 seconds" in fault(done)


def test_any_character_is_shown_and_kept_in_json(asked, colligate, openai_server, replying, folder):
    quote = "The tower was built in 1871 by Ada Mercer 灯塔 🗼 in person."
    (folder / "tower.md").write_text(f"# 灯塔\n\n{quote}\n", encoding="utf-8")
    openai_server.answer = replying(quote, "The tower was built in 1871.", "1871")
    for encoding in ("cp1252", "ascii"):
        colligate.environment["PYTHONIOENCODING"] = encoding
        done = colligate(*asked(folder))
        assert done.returncode == 0, done.stderr
        assert "1871" in done.stdout
        assert "?" in done.stdout
    done = colligate(*asked(folder, "--json"))
    assert "灯塔 🗼" in json.loads(done.stdout)["citations"][0]["quote"]


@pytest.mark.posix
def test_interrupted_it_leaves_at_once_with_130_and_keeps_what_was_indexed(
    colligate, asked, ask, openai_server, folder, tmp_path
):
    for file in folder.iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    openai_server.hold()
    process = colligate.start(*asked(folder))
    assert openai_server.arrived.wait(30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1].startswith("colligate: interrupted")
    assert b"Traceback" not in err
    openai_server.release()
    trace = tmp_path / "after.jsonl"
    assert ask(folder, "--trace", trace).returncode == 0
    assert "embedding" not in _phases(trace)


@pytest.mark.linux
def test_a_closed_pipe_or_output_is_quiet(colligate, asked, folder):
    reading, writing = os.pipe()
    os.close(reading)
    process = colligate.start(*asked(folder), stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141
    assert b"Broken" not in err
    assert b"colligate:" not in err
    for closed in (">&-", "2>&-", ">/dev/full"):
        command = " ".join([*COMMAND, "tree", str(folder / "tower.md"), closed])
        done = subprocess.run(["sh", "-c", command], env=colligate.environment, capture_output=True)
        assert b"Traceback" not in done.stderr
        assert b"Exception" not in done.stderr
        assert done.returncode == (1 if closed == ">/dev/full" else 0)


@pytest.mark.parametrize(("typed", "status"), [("n\n", 2), ("y\n", 0)])
def test_many_calls_are_made_only_if_a_person_at_the_terminal_agrees(
    colligate, asked, openai_server, folder, typed, status
):
    many = asked(folder, "--strategy", "spd-rag", "--set", "most_calls=1")
    ended, screen = colligate.in_terminal(*many, typed=typed)
    assert re.search(r"an agent for each of 2 documents takes about .* do it\? \[y/N\]", screen)
    assert ended == status, screen
    assert bool(openai_server.requests) is (status == 0)
