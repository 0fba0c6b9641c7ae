"""JSON as files of records hold it, for the documents and for the data sets of the bench."""

from __future__ import annotations

import json
import re
from typing import Any

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes) -> Any:
    """Return the value of UTF-8 JSON.

    Half a surrogate pair, which JSON can escape and no encoding can write, becomes "?".

    Raises:
        ValueError: it is not JSON; the message says why and where.
    """
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode()
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start + 1})") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.rstrip() else ""
        raise ValueError(f"it is not JSON ({error.msg} at {line}column {error.colno})") from None
    except ValueError as error:  # a number of too many digits
        raise ValueError(f"it is not JSON ({error})") from None
    if _ESCAPED_SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object that a line of JSON holds.

    Raises:
        ValueError: it is not a JSON object; the message says why.
    """
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value
