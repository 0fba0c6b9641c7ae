"""What Open WebUI sends, as its backend and its browser page write it, and reads as it reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from colligate.server.openai import ChatCompletion

QUESTION = "Where do bicycles stand?"
CLAIM = "Bicycles stand in the yard."
LONGEST_LINE = 1 << 17  # of the reader that it streams with

# Its built-in tools are offered to every model unless a person switches them off.
NO_ARGUMENTS = {"type": "object", "properties": {}, "required": []}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": NO_ARGUMENTS}}
    for name in ("get_current_timestamp", "search_chats", "query_knowledge_files")
]
CHAT = {
    "stream": True,
    "model": "colligate/retrieve-read",
    "messages": [
        {"role": "system", "content": "The user's name is Ada."},
        {"role": "user", "content": "Who may stay?"},
        {"role": "assistant", "content": "Guests may stay. [1]\n\nSources:\n\n[1] House rules"},
        {"role": "user", "content": QUESTION},
    ],
    "stream_options": {"include_usage": True},
    "tools": TOOLS,
    "temperature": 0.8,
}
# Over a direct connection the page itself asks, with all that it tells its own backend.
DIRECT = {
    **CHAT,
    "params": {},
    "files": [],
    "tool_ids": [],
    "tool_servers": [],
    "features": {"voice": False, "image_generation": False, "web_search": False},
    "variables": {"{{USER_NAME}}": "Ada"},
    "model_item": {"id": "colligate/retrieve-read", "owned_by": "openai", "urlIdx": 0},
    "session_id": "Xy1",
    "chat_id": "5b0f8a6e-1",
    "parent_id": "7e2d1c80-3",
    "background_tasks": {"title_generation": True, "follow_up_generation": True},
    "metadata": {"chat_id": "5b0f8a6e-1", "interface": "open-webui"},
}


@pytest.fixture
def client(served: Any) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {served.token}", "User-Agent": "Python/3.11 aiohttp/3.12"}
    with httpx2.Client(
        base_url=served.url + "v1/", headers=headers, trust_env=False, timeout=30
    ) as opened:
        yield opened


def read(client: httpx2.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, taken from the lines that begin with `data:`, up to the last."""
    found: list[dict[str, Any]] = []
    with client.stream("POST", "chat/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        assert "text/event-stream" in response.headers["content-type"]
        for line in response.iter_lines():
            assert len(line) < LONGEST_LINE
            if line.startswith("data:") and "[DONE]" not in line:
                found.append(json.loads(line.removeprefix("data:")))
    return found


@pytest.mark.parametrize("body", [CHAT, DIRECT], ids=["its backend", "its page"])
def test_a_chat(client, body):
    chunks = read(client, body)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content.startswith(f"{CLAIM} [1]")
    (annotations,) = [delta["annotations"] for delta in deltas if "annotations" in delta]
    assert annotations[0]["type"] == "url_citation"
    assert annotations[0]["url_citation"]["title"] == "House rules › Bicycles (rules.md)"
    assert not any("tool_calls" in delta for delta in deltas)
    assert chunks[-1]["usage"]["total_tokens"] > 0
    own = next(chunk["colligate"] for chunk in chunks if "colligate" in chunk)
    assert own["question"] == QUESTION
    assert any("no other messages" in warning for warning in own["warnings"])
    assert any("no tools" in warning for warning in own["warnings"])


def test_no_line_of_a_stream_is_too_long_for_it():
    evidence = {"document": "d" * 60, "start": 0, "end": 9, "score": 0.5, "reason": "r" * 60}
    answer = {
        "answer": "Yes.",
        "citations": [],
        "evidence": [evidence] * 1000,
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "warnings": [],
    }
    completion = ChatCompletion("m", "default", "http://x/", [])
    *_, last = completion.chunks(answer)
    assert len(json.dumps(last)) < LONGEST_LINE
    assert last["colligate"]["warnings"] == ["1,000 pieces of evidence are left out of this stream"]
    assert len(completion.to_json(answer)["colligate"]["evidence"]) == 1000
