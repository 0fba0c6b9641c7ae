"""What Open WebUI sends, as its backend and its browser page write it, and reads as it reads it."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from colligate.server.openai import ChatCompletion

QUESTION = "Where do bicycles stand?"
LONGEST_LINE = 1 << 17  # of the reader that it streams with

# Over a direct connection the page itself asks, with all that it tells its own backend; its tools
# are offered to every model unless a person switches them off.
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
    "tools": [{"type": "function", "function": {"name": "search_chats", "parameters": {}}}],
    "temperature": 0.8,
    "params": {},
    "files": [],
    "features": {"voice": False, "image_generation": False, "web_search": False},
    "model_item": {"id": "colligate/retrieve-read", "owned_by": "openai", "urlIdx": 0},
    "background_tasks": {"title_generation": True, "follow_up_generation": True},
    "metadata": {"chat_id": "5b0f8a6e-1", "interface": "open-webui"},
}


def test_a_chat(served):
    headers = {"Authorization": f"Bearer {served.token}"}
    address = f"{served.url}v1/chat/completions"
    chunks: list[dict[str, Any]] = []
    with httpx2.stream("POST", address, json=CHAT, headers=headers, timeout=30) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            assert len(line) < LONGEST_LINE
            if line.startswith("data:") and "[DONE]" not in line:
                chunks.append(json.loads(line.removeprefix("data:")))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content.startswith("Bicycles stand in the yard. [1]")
    (annotations,) = [delta["annotations"] for delta in deltas if "annotations" in delta]
    assert annotations[0]["url_citation"]["title"] == "House rules › Bicycles (rules.md)"
    assert not any("tool_calls" in delta for delta in deltas)
    assert chunks[-1]["usage"]["total_tokens"] > 0
    own = next(chunk["colligate"] for chunk in chunks if "colligate" in chunk)
    assert own["question"] == QUESTION
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
