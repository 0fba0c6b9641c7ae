"""Run many items of work in a folder that can be interrupted and resumed."""

from colligate.jobs.files import JsonlReader, JsonlWriter, lock_folder, write_whole
from colligate.jobs.identity import ModelRecord, check_same
from colligate.jobs.job import IdentityRecord, Invocation, Job, RecordFile, ResultFile
from colligate.jobs.spending import PaidJudge, SharedTokenBudget, Spending

__all__ = [
    "IdentityRecord",
    "Invocation",
    "Job",
    "JsonlReader",
    "JsonlWriter",
    "ModelRecord",
    "PaidJudge",
    "RecordFile",
    "ResultFile",
    "SharedTokenBudget",
    "Spending",
    "check_same",
    "lock_folder",
    "write_whole",
]
