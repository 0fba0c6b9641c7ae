"""How providers speak OpenAI's protocol: what they refuse, ignore and add, in their own words."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.server import OpenAIServer, Scripted

PROSE = "Bicycles stand in the yard."
OBJECT = '{"place": "yard", "floor": 0}'
HEARD = {"place": {"type": "string"}, "floor": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": HEARD, "required": ["place", "floor"]}

Form = Callable[[int, str, str | None, str | None], Any]


def _openai(status: int, message: str, code: str | None, param: str | None) -> Any:
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _azure(status: int, message: str, code: str | None, param: str | None) -> Any:
    return {"error": {"code": code or str(status), "message": message}}


def _google(status: int, message: str, code: str | None, param: str | None) -> Any:
    error: dict[str, Any] = {"code": status, "message": message, "status": "INVALID_ARGUMENT"}
    if code:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]
    if param:  # how long to wait
        error["details"] = [{"@type": "google.rpc.RetryInfo", "retryDelay": param}]
    return [{"error": error}]


def _by_status(status: int, message: str, code: str | None, param: str | None) -> Any:
    return {"error": {"code": status, "message": message, "type": "BadRequestError"}}


Refusal = tuple[int, str, str | None]  # status, message, code


@dataclass(frozen=True)
class Provider:
    """One provider's form of errors, what it refuses, and what its answers are like.

    `refuses`: parameter -> refusal; `schemas`: whether they are enforced; `odds`: whether
    `top_logprobs` are given. `thinking` is the field of it in a message, `usage` what it counts
    for 20 tokens in, 9 of them cached, and 7 out, 4 of them thinking. `noise` comes in a stream.
    """

    form: Form = _openai
    refuses: Mapping[str, Refusal] = field(default_factory=dict)
    schemas: bool = True
    odds: bool = False
    thinking: str = ""
    usage: Mapping[str, Any] = field(
        default_factory=lambda: {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    )
    cached: Mapping[str, Any] = field(default_factory=dict)
    noise: bytes = b""
    too_long: str = "This model's maximum context length is 8192 tokens. You asked for 9001."
    no_model: Refusal = (404, "The model `m` does not exist", "model_not_found")
    bad_key: Refusal = (401, "Incorrect API key provided: none", "invalid_api_key")
    wait: tuple[str | None, str | None] = ("3", None)  # `Retry-After`, and what the body says

    def fail(self, refusal: Refusal, *, headers: Any = None, param: str | None = None) -> Scripted:
        """An error in the provider's form."""
        status, message, code = refusal
        body = self.form(status, message, code, param)
        return Scripted("json", status=status, body=body, headers=headers or {})

    def reply(self, path: str, body: dict[str, Any]) -> Scripted | None:
        """What it answers to a request for a chat; others are the server's."""
        if path != "/chat/completions":
            return None
        for name, refusal in self.refuses.items():
            if name in body:
                return self.fail(refusal, param=name if self.form is _openai else None)
        asked = "satisfies this JSON schema" in body["messages"][-1]["content"]
        text = OBJECT if asked or (self.schemas and "response_format" in body) else PROSE
        said = {"role": "assistant", "content": text}
        said |= {self.thinking: "Where?"} if self.thinking else {}
        usage = {**self.usage, **self.cached}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if self.odds and body.get("logprobs"):
            top = [{"token": t, "logprob": math.log(p)} for t, p in (("Yes", 0.6), ("No", 0.2))]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        if not body.get("stream"):
            whole = {"choices": [{**choice, "message": said}], "usage": usage}
            return Scripted("json", status=200, body=whole, headers={})
        pieces = [{"role": "assistant", "content": None}]
        pieces += [{self.thinking: "Where?"}] if self.thinking else []
        pieces += [{"content": text[at : at + 5]} for at in range(0, len(text), 5)]
        chunks: list[Any] = [{"choices": [{"delta": piece, "index": 0}]} for piece in pieces]
        chunks += [{"choices": [{**choice, "delta": {}}]}, {"choices": [], "usage": usage}]
        events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
        return Scripted("raw", body=self.noise + self.noise.join(events) + b"data: [DONE]\n\n")

    def play(self, server: OpenAIServer) -> None:
        """Let a server speak so."""
        server.fault = self.reply


_CACHED = {"prompt_tokens_details": {"cached_tokens": 9}}
_NO_SEED = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
_ONE_TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1)"
    " value is supported."
)
_OTHER_LIMIT = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
    " 'max_completion_tokens' instead."
)
_NO_STREAM = (
    "Your organization must be verified to stream this model. Please go to:"
    " https://platform.openai.com/settings/organization/general and click on Verify Organization."
)

PROVIDERS = {
    "openai": Provider(odds=True, cached=_CACHED),
    "openai, reasoning": Provider(
        refuses={
            "max_tokens": (400, _OTHER_LIMIT, "unsupported_parameter"),
            "temperature": (400, _ONE_TEMPERATURE, "unsupported_value"),
            "stream": (400, _NO_STREAM, "unsupported_value"),
            "logprobs": (403, "You are not allowed to request logprobs from this model", None),
        },
        cached={**_CACHED, "completion_tokens_details": {"reasoning_tokens": 4}},
        too_long="Your input exceeds the context window of this model. Please adjust your input.",
    ),
    "azure": Provider(
        form=_azure,
        odds=True,
        cached=_CACHED,
        noise=b'data: {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}\n\n',
        no_model=(
            404,
            "The API deployment for this resource does not exist. If you created the deployment"
            " within the last 5 minutes, please wait a moment and try again.",
            "DeploymentNotFound",
        ),
        bad_key=(
            401,
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to"
            " provide a valid key for an active subscription and use a correct regional API"
            " endpoint for your resource.",
            "401",
        ),
    ),
    "anthropic": Provider(
        schemas=False,
        too_long="prompt is too long: 208310 tokens > 200000 maximum",
        no_model=(404, "model: m", "not_found_error"),
        bad_key=(401, "invalid x-api-key", "authentication_error"),
    ),
    "google": Provider(
        form=_google,
        refuses={
            "seed": (400, _NO_SEED, None),
            "logprobs": (400, "Logprobs is not enabled for this model", None),
        },
        usage={"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 27},
        too_long="The input token count (1196265) exceeds the maximum number of tokens allowed"
        " (1048575).",
        no_model=(404, "models/m is not found for API version v1main", None),
        bad_key=(400, "API key not valid. Please pass a valid API key.", "API_KEY_INVALID"),
        wait=(None, "3s"),
    ),
    "vllm": Provider(
        form=_by_status,
        odds=True,
        thinking="reasoning",
        cached=_CACHED,
        too_long="This model's maximum context length is 2048 tokens. However, your request has"
        " 2100 input tokens plus 16 'max_tokens'. Please reduce one or the other."
        " (parameter=input_tokens, max_tokens, value=(2100, 16))",
        no_model=(404, "The model `m` does not exist.", None),
    ),
    "sglang": Provider(
        form=_by_status,
        odds=True,
        thinking="reasoning_content",
        too_long="The input (9001 tokens) is longer than the model's context length (8192 tokens).",
    ),
    "llama-server": Provider(
        form=_by_status,
        odds=True,
        thinking="reasoning_content",
        too_long="request (2031 tokens) exceeds the available context size (1024 tokens), try"
        " increasing it",
        bad_key=(401, "Invalid API Key", None),
    ),
    "ollama": Provider(
        odds=True,
        thinking="reasoning",
        no_model=(404, 'model "m" not found, try pulling it first', None),
    ),
    "deepseek": Provider(
        refuses={"response_format": (400, "This response_format type is unavailable now", None)},
        odds=True,
        thinking="reasoning_content",
        cached={"prompt_cache_hit_tokens": 9, "prompt_cache_miss_tokens": 11},
        noise=b": keep-alive\n\n",
        bad_key=(401, "Authentication Fails (no such user)", None),
    ),
}
