"""HotpotQA: questions over two Wikipedia paragraphs, among distractors.

Read as published: `hotpot_train_v1.1.json`, `hotpot_dev_distractor_v1.json` and
`hotpot_dev_fullwiki_v1.json`; also JSON Lines of the Hugging Face copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from colligate.evaluation.datasets.records import parsed
from colligate.evaluation.datasets.supporting_facts import FactRecord, fact_question
from colligate.evaluation.question import Question


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, FactRecord, fact_question)
