"""/api/docs: the OpenAPI document as one plain page, without scripts and without a CDN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any


def reference(openapi: Mapping[str, Any]) -> str:
    """The page."""
    info = openapi["info"]
    body = "\n".join(_operations(openapi["paths"]))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(info["title"])} API</title>
<h1>{escape(info["title"])} {escape(info["version"])}: the HTTP API</h1>
<p>{escape(info.get("summary", ""))} The same for programs: <a href="openapi.json">openapi.json</a>.
A server with a token wants it as <code>Authorization: Bearer TOKEN</code>; what goes wrong is said
as <code>application/problem+json</code>.</p>
{body}
</html>
"""


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p><b>{escape(operation.get('summary', ''))}.</b> "
            yield f"{escape(operation.get('description', ''))}</p>"
            if given := operation.get("parameters"):
                yield "<ul>"
                for each in given:
                    needed = "" if each.get("required") else " (optional)"
                    said = escape(each.get("description", ""))
                    yield f"<li><code>{escape(each['name'])}</code>, in the {each['in']}{needed}"
                    yield f": {said}</li>" if said else "</li>"
                yield "</ul>"
