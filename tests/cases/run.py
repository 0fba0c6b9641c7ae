"""Try cases against colligate as installed, and print one line each: README.md says what they are.

    python tests/cases/run.py [FOLDER] [ID ...] [--stage STAGE] [--model MODEL]

The exit status is the number of cases that do not hold.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from colligate.documents.reading import read_file
from colligate.errors import ColligateError

BIN = Path(sys.executable).parent
STAGES = ("parse", "library", "client", "answer")
SERVE = "colligate serve --port 0 --embedder static --model openai:none@http://127.0.0.1:9/v1"


def read(folder: Path, names: list[str]) -> str:
    """Return the texts, headings and warnings of files."""
    said = []
    for name in names:
        said.append(f"FILE {name}")
        try:
            reading = read_file(folder / name)
        except ColligateError as error:
            said.append(f"ERROR {name}: {error}")
            continue
        for document in reading.documents:
            said += [document.text, *(f"HEADING: {s.title}" for s in document.tree.sections)]
        said += reading.warnings
    return "\n".join(said)


def run(folder: Path, case: dict[str, Any], model: str) -> str:
    """Return what a case's command prints, or the answer to its question and what that cites."""
    with tempfile.TemporaryDirectory() as home:
        copy, library = shutil.copytree(folder, f"{home}/case"), f"{home}/library"
        env = {**os.environ, "LIB": library, "COLLIGATE_LIBRARY": library}
        env |= {"PATH": f"{BIN}:{env['PATH']}"} | ({"COLLIGATE_MODEL": model} if model else {})
        line, server = (case["command"] or "").replace("LIB", library), None
        if "SERVER_URL" in line:
            server = subprocess.Popen(SERVE.split(), env=env, stderr=subprocess.PIPE, text=True)
            assert server.stderr is not None
            address = next(filter(None, (re.search(r"http:\S+", each) for each in server.stderr)))
            line = line.replace("SERVER_URL", address[0])
        names = sorted({name.split("/")[0] for name in case["files"]})
        given = ["sh", "-c", line] if line else ["colligate", "ask", case["question"], *names]
        given += [] if line else ["--json"]
        try:
            done = subprocess.run(given, cwd=copy, env=env, capture_output=True, text=True)
        finally:
            if server is not None:
                server.terminate()
                server.communicate()
    if line or done.returncode > 1:
        return done.stdout or done.stderr
    answer = json.loads(done.stdout)
    cited = [each["quote"] for each in answer["citations"]] if answer["found"] else []
    return "\n".join([answer["answer"], answer["short_answer"] or "", *cited])


def find(pattern: str, text: str) -> bool:
    """Report whether a pattern is found; its flags may stand anywhere."""
    flags = "".join(dict.fromkeys("".join(re.findall(r"\(\?([ims]+)\)", pattern))))
    bare = re.sub(r"\(\?[ims]+\)", "", pattern)
    return re.search(f"(?{flags})({bare})" if flags else bare, text) is not None


def main() -> int:
    """Try the cases, those without a model first."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    options.add_argument("ids", nargs="*", metavar="ID", help="beginnings of names")
    options.add_argument("--stage", choices=STAGES, action="append", help="only these")
    options.add_argument("--model", default="", help="the model of the cases that ask")
    args = options.parse_args()
    cases = [(json.loads(f.read_text()), f.parent) for f in sorted(args.folder.glob("*/case.json"))]
    failed = 0
    for case, folder in sorted(cases, key=lambda each: STAGES.index(each[0]["stage"])):
        stage, name = case["stage"], case["id"]
        if stage not in (args.stage or STAGES) or not name.startswith(tuple(args.ids) or ""):
            continue
        said = read(folder, case["files"]) if stage == "parse" else run(folder, case, args.model)
        missing = [each for each in case["expect_regex"] if not find(each, said)]
        forbidden = [each for each in case["must_not_regex"] if find(each, said)]
        failed += bool(missing or forbidden)
        why = f"  missing {missing}  forbidden {forbidden}" if missing or forbidden else ""
        print(f"{'FAIL' if why else 'ok  '} {stage:7} {name}{why}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
