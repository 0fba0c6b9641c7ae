"""A run's report, written beside it or where it is wanted."""

from __future__ import annotations

from pathlib import Path

from colligate.bench.report.contents import read_contents
from colligate.bench.report.markdown import markdown
from colligate.bench.report.page import page
from colligate.bench.report.report import reported
from colligate.errors import ColligateError


def write_report(directory: Path, out: Path | None = None) -> tuple[Path, Path]:
    """Write the report on the run in a folder as HTML and as Markdown; their paths.

    They stand in the run's folder as `report.html` and `report.md`, or in the folder `out`, or
    are called as `out` with these endings.

    Raises:
        MissingPath: there is no run there.
        ColligateError: a file of the run cannot be read, or the report not be written.
    """
    out = directory if out is None else out
    named = out / "report.html" if out.is_dir() else out
    stem = named.stem if named.suffix in (".html", ".md") else named.name
    html, md = named.with_name(f"{stem}.html"), named.with_name(f"{stem}.md")
    report = reported(read_contents(directory))
    whole = {html: page(report, html), md: markdown(report)}
    for file, content in whole.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Half a surrogate pair, which a model can write, has no bytes; of a file with a NUL
            # other programs say that it is no text.
            text = content.replace("\0", "\N{REPLACEMENT CHARACTER}")
            file.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            why = error.strerror or str(error)
            raise ColligateError(f"cannot write {file}", why, "name another --out") from error
    return html, md
