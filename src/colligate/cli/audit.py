"""`colligate audit FILE`: what becomes of citations when the documents are read again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import make_table, note, print_json, print_result, warn
from colligate.errors import UsageError

app = typer.Typer(add_completion=False)

_SHOWN = 60  # characters of a quote


@command(app)
def audit_command(
    file: Annotated[
        Path,
        options.argument(
            "What `ask --proof` or `ask --json` wrote, or a reply of OpenAI's or Anthropic's "
            "API, as JSON.",
            "FILE",
        ),
    ],
    *,
    documents: Annotated[
        list[Path],
        options.option(
            "The files, or folders of files, that are cited; may be repeated.",
            options.LIBRARY,
            metavar="PATH",
        ),
    ],
    reading: options.ReadOptions,
    as_json: options.AsJson = False,
) -> int:
    """Check citations against the documents, without a model.

    A citation holds if its words are at the place that it names, and the document's text is that
    of the proof. OpenAI's annotations quote no words, so they are listed as not checked.

    Exit status: 0 all hold, 1 some do not, or a fault, 2 wrong usage.

    Examples:
        colligate audit proof.json --documents contracts/
    """
    from colligate.documents.reading import find_files
    from colligate.proof import Status, audit, find_cited
    from colligate.reporting import require_paths

    require_paths(documents)
    cited = list(find_cited(options.read_json(file)))
    if not cited:
        raise UsageError(f"{file} cites nothing", "no citation of a known form is in it")
    limits = reading.limits()
    found = find_files(documents, pictures=bool(limits.ocr))
    findings, problems = audit(cited, found.files, limits)
    for problem in (*map(str, found.problems), *problems):
        warn(problem)
    holding = sum(each.status is Status.HOLDS for each in findings)
    if as_json:
        print_json([each.to_json() for each in findings])
    else:
        rows = []
        for number, each in enumerate(findings, 1):
            page = "" if each.page is None else f", page {each.page}"
            where, quote = f"{each.title or each.cited.document}{page}", each.cited.quote[:_SHOWN]
            rows.append((str(number), each.status.value, where, each.why, quote))
        print_result(make_table(("", "citation", "document", "its words", "quote"), rows))
    note(f"{holding} of {len(findings)} citations hold")
    return ANSWERED if holding == len(findings) else FAULT
