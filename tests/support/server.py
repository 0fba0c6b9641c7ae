"""A real HTTP server on the loopback interface that speaks OpenAI's protocol."""

import base64
import hashlib
import itertools
import json
import math
import re
import select
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.web import Loopback


class Scripted:
    """One scripted reply; see the methods of `OpenAIServer` that make them."""

    def __init__(self, kind: str, path: str | None = None, **what: Any) -> None:
        self.kind = kind
        self.path = path
        self.what = what

    def is_for(self, path: str) -> bool:
        return path == self.path if self.path else path not in ("/models", "/tokenize")


_TOO_LONG: dict[str, dict[str, Any]] = {
    "openai": {
        "message": "This model's maximum context length is 8192 tokens. However, your messages"
        " resulted in 9001 tokens. Please reduce the length of the messages.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    },
    "vllm": {
        "message": "This model's maximum context length is 2048 tokens. However, your request has"
        " 2100 input tokens plus 16 'max_tokens'. Please reduce one or the other."
        " (parameter=input_tokens, max_tokens, value=(2100, 16))",
        "type": "BadRequestError",
        "param": "input_tokens, max_tokens",
        "code": 400,
    },
}
_PIECES = re.compile(r" ?[^\W\d_]{1,5}|\s|.", re.DOTALL)


class OpenAIServer(Loopback):
    """What it answers to `/chat/completions`, streamed when asked so.

    Scripted replies come first, one after another, for any path but `/models` and `/tokenize`, or
    for the `path` named; then `answer`: a text, or a function of the request's body that returns
    one, or a scripted reply. `requests` are the bodies it got, newest last, each with its `path`
    and lower-cased `headers`.

    Attributes:
        key: without `Authorization: Bearer KEY` a request gets 401
        models, window: the ids that `/models` lists and that are served (none: any), their window
        refused, refused_forms: parameters and types of `response_format` it refuses with 400
        logprobs: {token: probability} of the first token, returned when asked for
        tokenizer: "vllm" or "llama-server", the form of `/tokenize`; with `bos` before a text
        likelihood: "prompt_logprobs", the form of a prompt's log-probabilities at `/completions`,
            after `tamper` changed the list
        rerank: score of a query and a document, by default the words they share
        in_flight, in_flight_most: requests that are open, and the most that ever were
        arrived, left: set by the first request, and when a client leaves before its whole answer
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: str | Callable[[dict[str, Any]], Any] = "Hello."
        self.key: str | None = None
        self.models: list[str] = []
        self.window: int | None = None
        self.refused: set[str] = set()
        self.refused_forms: set[str] = set()
        self.logprobs: dict[str, float] | None = None
        self.tokenizer: str | None = None
        self.bos: int | None = None
        self.likelihood: str | None = None
        self.tamper: Callable[[list[Any]], list[Any]] = list
        self.dimension = 8
        self.rerank: Callable[[str, str], float] = _shared_words
        self.in_flight = 0
        self.in_flight_most = 0
        self.lock = threading.Condition()
        self.script: list[Scripted] = []
        self.fault: Callable[[str, dict[str, Any]], Scripted | None] | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closing = threading.Event()
        self.arrived = threading.Event()
        self.left = threading.Event()
        super().__init__(_handler(self))
        self.url = f"{self.address}/v1"

    def say(self, text: str | None, *, times: int = 1, **what: Any) -> None:
        """Reply with a text, None for null content; with `reasoning`, `finish_reason`, `usage`."""
        self.script += [Scripted("say", text=text, **what)] * times

    def fail(
        self,
        status: int,
        message: str = "scripted failure",
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: str | None = None,
        retry_after_ms: str | None = None,
        whole: bool = True,
        path: str | None = None,
        times: int = 1,
    ) -> None:
        """Refuse; unless it is `whole`, the body breaks off."""
        waits = {"Retry-After": retry_after, "Retry-After-Ms": retry_after_ms}
        headers = {name: value for name, value in waits.items() if value is not None}
        error = {"message": message, "type": code, "code": code, "param": param}
        what = {"status": status, "body": {"error": error}, "headers": headers, "whole": whole}
        self.script += [Scripted("json", path, **what)] * times

    def too_long(self, server: str, *, path: str | None = None, times: int = 1) -> None:
        """Refuse a prompt that does not fit, in the words of a server."""
        what = {"status": 400, "body": {"error": _TOO_LONG[server]}, "headers": {}}
        self.script += [Scripted("json", path, **what)] * times

    def stall(self, times: int = 1, *, after: str | None = None, path: str | None = None) -> None:
        """Say nothing, or nothing more after half of a text, until the client leaves."""
        kind = "stall" if after is None else "cut"
        self.script += [Scripted(kind, path, text=after, stalls=True)] * times

    def cut(self, text: str, times: int = 1, *, path: str | None = None) -> None:
        """Break the connection in the middle of a text."""
        self.script += [Scripted("cut", path, text=text)] * times

    def hang_up(self, times: int = 1, *, path: str | None = None) -> None:
        """Close the connection without a word."""
        self.script += [Scripted("hang up", path)] * times

    def garble(self, body: bytes = b'{"a": [', times: int = 1, *, path: str | None = None) -> None:
        """Reply with these bytes as JSON."""
        self.script += [Scripted("raw", path, body=body)] * times

    def ids(self, text: str) -> list[int]:
        """The tokens of a text; about five letters each, with the blank before them."""
        return [zlib.crc32(piece.encode()) % 50_000 + 10 for piece in _PIECES.findall(text)]

    def logprob(self, before: list[int], token: int) -> float:
        """The log-probability of a token after others: made up, but always the same."""
        return -(zlib.crc32(repr((before, token)).encode()) % 1000 + 1) / 100

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait (in a thread) for requests to come or go; False when it never comes true."""
        with self.lock:
            return self.lock.wait_for(condition, timeout=10)

    def hold(self) -> None:
        """Let every answer wait for `release`."""
        self.gate.clear()

    def release(self) -> None:
        self.gate.set()

    def close(self) -> None:
        self.closing.set()
        self.gate.set()
        super().close()


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._serve({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            sent = self.rfile.read(length)
            if len(sent) < length:  # the client left
                self.close_connection = True
            else:
                self._serve(json.loads(sent or b"{}"))

        def _serve(self, body: dict[str, Any]) -> None:
            path = self.path.removeprefix("/v1")
            headers = {name.lower(): value for name, value in self.headers.items()}
            with server.lock:
                server.requests.append({**body, "path": path, "headers": headers})
                server.arrived.set()
                server.in_flight += 1
                self.open = 1
                server.in_flight_most = max(server.in_flight_most, server.in_flight)
                server.lock.notify_all()
                scripted = next((reply for reply in server.script if reply.is_for(path)), None)
                if scripted is not None:
                    server.script.remove(scripted)
                elif server.fault is not None:
                    scripted = server.fault(path, body)
            try:
                server.gate.wait()
                self._reply(path, body, headers, scripted)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
                server.left.set()
            finally:
                self._answered()

        def _answered(self) -> None:
            """No longer in flight: said before the last bytes go out, so that no client who has
            them is still counted.
            """
            with server.lock:
                server.in_flight -= self.open
                self.open = 0
                server.lock.notify_all()

        def _reply(self, path: str, body: dict[str, Any], headers: dict[str, str], scripted: Any):
            if server.key and headers.get("authorization") != f"Bearer {server.key}":
                sent = headers.get("authorization", "no key").removeprefix("Bearer ")
                self._error(401, f"Incorrect API key provided: {sent}", "invalid_api_key")
            elif path == "/models":
                entries = [{"id": name, "max_model_len": server.window} for name in server.models]
                self._send(200, {"object": "list", "data": entries})
            elif scripted is not None:
                self._scripted(scripted, body)
            elif server.models and body.get("model") not in server.models:
                said = f"The model {body.get('model')!r} does not exist"
                self._error(404, said, "model_not_found")
            elif refused := [name for name in body if name in server.refused]:
                said = f"Unsupported parameter: '{refused[0]}' is not supported with this model."
                self._error(400, said, "unsupported_parameter", refused[0])
            elif (form := body.get("response_format", {}).get("type")) in server.refused_forms:
                self._error(400, f"response_format type {form} is not available", "invalid_request")
            elif self.path == "/tokenize" and server.tokenizer:
                self._tokenize(body)
            elif path == "/completions":
                self._complete(body)
            elif path == "/chat/completions":
                answer = server.answer(body) if callable(server.answer) else server.answer
                reply = answer if isinstance(answer, Scripted) else Scripted("say", text=answer)
                self._scripted(reply, body)
            elif path == "/embeddings":
                self._embeddings(body)
            elif path == "/rerank":
                self._rerank(body)
            else:
                self._error(404, f"Not Found: {path}", None)

        def _scripted(self, reply: Scripted, body: dict[str, Any]) -> None:
            what = reply.what
            if reply.kind == "stall":
                self._stall()
            elif reply.kind == "hang up":
                self.close_connection = True
            elif reply.kind == "raw":
                self._send(200, what["body"])
            elif reply.kind == "json":
                first = None if what.get("whole", True) else 9
                self._send(what["status"], what["body"], what["headers"], first=first)
            elif reply.kind == "cut":
                if body.get("stream"):
                    pieces = _chunks(body, what["text"], None, "stop")
                    self._stream(pieces[: len(pieces) // 2], whole=False)
                else:
                    whole = _completion(body, server, {**what, "finish_reason": "stop"})
                    self._send(200, whole, first=len(json.dumps(whole)) // 2)
                if what.get("stalls"):
                    self._stall()
                self.close_connection = True
            elif body.get("stream"):
                finish = what.get("finish_reason", "stop")
                chunks = _chunks(body, what["text"], what.get("reasoning"), finish)
                if body.get("stream_options", {}).get("include_usage"):
                    chunks.append({"choices": [], "usage": what.get("usage") or _usage(body, what)})
                self._stream(chunks, whole=True)
            else:
                self._send(200, _completion(body, server, what))

        def _stall(self) -> None:
            """Say nothing more until the client leaves or the test ends."""
            self.close_connection = True
            while not server.closing.is_set():
                if select.select([self.connection], [], [], 0.02)[0]:
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        server.left.set()
                    return

        def _stream(self, chunks: Iterable[dict[str, Any]], *, whole: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            events = (f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
            for event in itertools.chain(events, [b"data: [DONE]\n\n"] if whole else []):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
            if whole:
                self._answered()
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

        def _tokenize(self, body: dict[str, Any]) -> None:
            begin = [] if server.bos is None else [server.bos]
            if server.tokenizer == "llama-server":
                ids = server.ids(body.get("content", ""))
                ids = begin + ids if body.get("add_special") else ids
                return self._send(200, {"tokens": ids})
            if "messages" in body:
                turns = [f"<|{turn['role']}|>{turn['content']}<|end|>" for turn in body["messages"]]
                ids = begin + _marked_ids(server, "".join(turns) + "<|assistant|>")
            else:
                ids = _marked_ids(server, body["prompt"])
                ids = begin + ids if body.get("add_special_tokens", True) else ids
            self._send(200, {"count": len(ids), "max_model_len": server.window, "tokens": ids})

        def _complete(self, body: dict[str, Any]) -> None:
            ids = body["prompt"]
            if server.window and len(ids) + body["max_tokens"] > server.window:
                return self._send(400, {"error": _TOO_LONG["vllm"]})
            choice: dict[str, Any] = {"index": 0, "text": " ok", "finish_reason": "length"}
            odds = [server.logprob(ids[:at], ids[at]) for at in range(1, len(ids))]
            if server.likelihood == "prompt_logprobs" and "prompt_logprobs" in body:
                entries = [{str(t): {"logprob": p}} for t, p in zip(ids[1:], odds, strict=True)]
                choice["prompt_logprobs"] = server.tamper([None, *entries])
            self._send(200, {"choices": [choice], "usage": {"prompt_tokens": len(ids)}})

        def _embeddings(self, body: dict[str, Any]) -> None:
            texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
            if any(text == "" for text in texts):
                return self._error(400, "input cannot be an empty string", "invalid_request")
            data: list[dict[str, Any]] = []
            for index, text in enumerate(texts):
                vector: Any = _vector(text, server.dimension)
                if body.get("encoding_format") == "base64":
                    vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
                data.append({"object": "embedding", "index": index, "embedding": vector})
            # Out of order, as the protocol allows.
            self._send(200, {"object": "list", "model": body["model"], "data": data[::-1]})

        def _rerank(self, body: dict[str, Any]) -> None:
            results = [
                {"index": index, "relevance_score": server.rerank(body["query"], document)}
                for index, document in enumerate(body["documents"])
            ]
            results.sort(key=lambda result: -result["relevance_score"])
            self._send(200, {"results": results[: body.get("top_n")]})

        def _error(self, status: int, message: str, code: str | None, param: str | None = None):
            error = {"message": message, "type": "error", "code": code, "param": param}
            self._send(status, {"error": error})

        def _send(
            self,
            status: int,
            body: dict[str, Any] | bytes,
            headers: dict[str, str] | None = None,
            *,
            first: int | None = None,
        ) -> None:
            """Send a JSON body, or only its first bytes under the length of the whole."""
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            if first is None:
                self._answered()
            else:
                self.close_connection = True
            self.end_headers()
            self.wfile.write(content[:first])

    return Handler


def _marked_ids(server: OpenAIServer, text: str) -> list[int]:
    """Tokens of a text in which <|word|> is one: a control token, wherever it stands."""
    ids = []
    for piece in re.split(r"(<\|\w+\|>)", text):
        control = piece.startswith("<|") and piece.endswith("|>")
        ids += [zlib.crc32(piece.encode()) % 1000 + 60_000] if control else server.ids(piece)
    return ids


def _completion(body: dict[str, Any], server: OpenAIServer, what: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": what["text"]}
    if what.get("reasoning") is not None:
        message["reasoning_content"] = what["reasoning"]
    choice = {"index": 0, "message": message, "finish_reason": what.get("finish_reason", "stop")}
    odds = server.logprobs
    if body.get("logprobs") and odds:
        top = sorted(odds.items(), key=lambda item: -item[1])[: body["top_logprobs"]]
        entries = [{"token": token, "logprob": math.log(share)} for token, share in top]
        choice["logprobs"] = {"content": [{**entries[0], "top_logprobs": entries}]}
    completion = {"id": "chat-1", "object": "chat.completion", "model": body.get("model")}
    return completion | {"choices": [choice], "usage": what.get("usage") or _usage(body, what)}


def _chunks(
    body: dict[str, Any], text: str | None, reasoning: str | None, finish_reason: str
) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": word + " "} for word in (reasoning or "").split()]
    deltas += [{"content": (text or "")[at : at + 4]} for at in range(0, len(text or ""), 4)]
    chunks = [
        {"model": body.get("model"), "choices": [{"index": 0, "delta": d, "finish_reason": None}]}
        for d in deltas
    ]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}]


def _usage(body: dict[str, Any], what: dict[str, Any]) -> dict[str, int]:
    prompt = sum(len(message["content"].split()) for message in body.get("messages", []))
    return {"prompt_tokens": prompt, "completion_tokens": len((what["text"] or "").split())}


def _vector(text: str, dimension: int) -> list[float]:
    digest = hashlib.sha256(text.encode()).digest() * (dimension // 32 + 1)
    return [byte / 64 - 2.01 for byte in digest[:dimension]]


def _shared_words(query: str, document: str) -> float:
    return float(len(set(query.lower().split()) & set(document.lower().split())))
