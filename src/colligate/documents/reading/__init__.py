"""Reading files: what is found under the paths given, and what each file says."""

from colligate.documents.reading.discovery import FoundFiles, find_files
from colligate.documents.reading.limits import Limits
from colligate.documents.reading.reader import Reading, read_file
from colligate.documents.reading.source import document_id

__all__ = ["FoundFiles", "Limits", "Reading", "document_id", "find_files", "read_file"]
