"""What docling wrote of a report (`docling_report.json`, by docling-core's own types; decision 40).

The tests read it from a stand-in for docling's program.
"""

import sys
from pathlib import Path

RECORDED = Path(__file__).with_suffix(".json")


def install(folder: Path, code: str = "", found: Path = RECORDED) -> None:
    """Put a program `docling` into a folder that runs `code`, or writes what is in `found`."""
    program = folder / "docling"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\n"
        "assert 'PYTHONPATH' not in os.environ\n"
        "assert Path(sys.argv[2]).read_bytes().startswith(b'%PDF-')\n"
        "written = Path(sys.argv[sys.argv.index('--output-file') + 1])\n"
        + (code or f"written.write_bytes(Path({str(found)!r}).read_bytes())")
    )
    program.chmod(0o755)
