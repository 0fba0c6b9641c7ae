"""Reading files: what is found under the paths given, and what each file says."""

from colligate.documents.reading.discovery import Found, find_files
from colligate.documents.reading.limits import Limits
from colligate.documents.reading.reader import Reading, read
from colligate.documents.reading.source import document_id

__all__ = ["Found", "Limits", "Reading", "document_id", "find_files", "read"]
