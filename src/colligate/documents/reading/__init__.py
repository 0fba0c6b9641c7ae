"""Reading files: what is found under the paths given, and what each file says."""

from colligate.documents.reading.discovery import Found, find_files
from colligate.documents.reading.identity import document_id
from colligate.documents.reading.limits import Limits
from colligate.documents.reading.reader import Reading, read

__all__ = ["Found", "Limits", "Reading", "document_id", "find_files", "read"]
