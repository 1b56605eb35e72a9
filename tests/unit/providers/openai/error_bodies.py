"""Error answers of OpenAI and of servers that speak its protocol: in the shapes that these document, or that their users published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["FITTING", "OVERFLOWS", "Case", "openai_body"]


class Case(NamedTuple):
    """One answer, and the figures that it holds."""

    name: str
    status: int
    body: Json
    tokens: int | None = None
    window: int | None = None


def openai_body(
    message: str,
    code: str | None = None,
    kind: str = "invalid_request_error",
    param: str | None = None,
) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def nested(inner: Json) -> Json:
    """As OpenRouter writes down what its provider said."""
    raw = json.dumps(inner)
    return {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": raw, "provider_name": "Somebody"},
        }
    }


VLLM = "This model's maximum context length is 16384 tokens. However, you requested 19591 tokens (9591 in the messages, 10000 in the completion). Please reduce the length of the messages or completion. None"
GROQ = "Request too large for model `m` in organization `org_503` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again."
GEMINI = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
TOO_LONG = "Invalid 'input[0].content': string too long. Expected a string with maximum length 10485760, but got a string with length 62114761 instead."

OVERFLOWS = [
    Case(
        "OpenAI, chat",
        400,
        openai_body(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. "
            "Please reduce the length of the messages.",
            "context_length_exceeded",
            param="messages",
        ),
        204308,
        128000,
    ),
    Case(
        "OpenAI, chat, with room for the answer",
        400,
        openai_body(
            "This model's maximum context length is 4097 tokens. However, you requested 4120 tokens (3120 in the messages, 1000 in the "
            "completion). Please reduce the length of the messages or completion.",
            "context_length_exceeded",
            param="messages",
        ),
        4120,
        4097,
    ),
    Case(
        "OpenAI, responses",
        400,
        openai_body(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "context_length_exceeded",
            param="input",
        ),
    ),
    Case("OpenAI, a code and no words", 400, openai_body("", "context_length_exceeded")),
    Case(
        "OpenAI, one text too long",
        400,
        openai_body(TOO_LONG, "string_above_max_length", param="input[0].content"),
    ),
    Case(
        "OpenAI, too many messages",
        400,
        openai_body(
            "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got 2049 instead.",
            "array_above_max_length",
            param="messages",
        ),
    ),
    Case(
        "Groq",
        400,
        openai_body(
            "Please reduce the length of the messages or completion.",
            "context_length_exceeded",
            param="messages",
        ),
    ),
    Case(
        "Groq, more than a minute may hold",
        413,
        openai_body(GROQ, "rate_limit_exceeded", kind="tokens"),
    ),
    Case(
        "DeepSeek",
        400,
        openai_body(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in "
            "the completion). Please reduce the length of the messages or completion.",
            "invalid_request_error",
        ),
        131134,
        131072,
    ),
    Case(
        "vLLM",
        400,
        {"object": "error", "message": VLLM, "type": "BadRequestError", "param": None, "code": 400},
        19591,
        16384,
    ),
    Case(
        "vLLM, no room left",
        400,
        {
            "object": "error",
            "message": "max_tokens must be at least 1, got -344.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    Case(
        "llama.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size or enable context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
        14429,
        8192,
    ),
    Case(
        "llama.cpp, older",
        500,
        {
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size.",
                "type": "exceed_context_size_error",
            }
        },
    ),
    Case(
        "OpenRouter",
        400,
        openai_body(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). "
            'Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.'
        ),
        42832,
        32768,
    ),
    Case(
        "OpenRouter, around Anthropic",
        400,
        nested(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 213462 tokens > 200000 maximum",
                },
            }
        ),
        213462,
        200000,
    ),
    Case(
        "Anthropic behind a proxy, with room for the answer",
        400,
        openai_body(
            "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease input length or `max_tokens` and try again"
        ),
        189136,
        204648,
    ),
    Case(
        "Anthropic, too large",
        413,
        {
            "type": "error",
            "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"},
        },
    ),
    Case(
        "Gemini",
        400,
        [{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}],
        1200293,
        1048576,
    ),
    Case(
        "Gemini, around itself",
        400,
        {
            "error": {
                "message": json.dumps(
                    {"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}
                ),
                "code": 400,
            }
        },
        1200293,
        1048576,
    ),
    Case(
        "xAI",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
        537812,
        131072,
    ),
    Case(
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40002 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        },
        40002,
        32768,
    ),
    Case(
        "GitHub",
        400,
        openai_body(
            "prompt token count of 70000 exceeds the limit of 64000",
            "model_max_prompt_tokens_exceeded",
        ),
        70000,
        64000,
    ),
    Case(
        "GitHub, by size",
        413,
        openai_body(
            "Request body too large for m model. Max size: 8000 tokens.", "tokens_limit_reached"
        ),
        None,
        8000,
    ),
    Case(
        "Moonshot",
        400,
        openai_body(
            "Invalid request: Your request exceeded model token limit: 131072 (requested: 150000)"
        ),
        150000,
        131072,
    ),
    Case(
        "MiniMax",
        400,
        openai_body(
            "invalid params, context window exceeds limit (2013)", kind="bad_request_error"
        ),
    ),
    Case("Zhipu", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    Case(
        "DashScope",
        400,
        openai_body("Range of input length should be [1, 129024]", "invalid_parameter_error"),
        None,
        129024,
    ),
    Case(
        "Bedrock",
        400,
        openai_body("Input is too long for requested model.", kind="ValidationException"),
    ),
    Case(
        "SGLang",
        400,
        {
            "object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "code": 400,
        },
        5000,
        4096,
    ),
    Case(
        "Text Generation Inference",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
            "type": "validation",
        },
        None,
        4096,
    ),
    Case(
        "LM Studio",
        400,
        {
            "error": "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough: the number of tokens to keep from the initial prompt is greater than the context length."
        },
        None,
        4096,
    ),
    Case("a gateway, in words", 413, "<html><body>413 Request Entity Too Large</body></html>"),
    Case("a gateway, without words", 413, None),
    Case("Cerebras, without words", 400, None),
]
"""Requests that do not fit: whoever gets this should make them smaller."""

FITTING = [
    (
        "rate",
        Case(
            "OpenAI, requests a minute",
            429,
            openai_body(
                "Rate limit reached. Please try again in 20s.", "rate_limit_exceeded", "requests"
            ),
        ),
    ),
    (
        "rate",
        Case(
            "OpenAI, tokens a minute, in an overflow's words",
            429,
            openai_body(
                "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 60000. The input or output tokens must be "
                "reduced; the maximum context length is 128000 tokens.",
                "rate_limit_exceeded",
                "tokens",
            ),
        ),
    ),
    (
        "rate",
        Case(
            "Anthropic, long context",
            429,
            openai_body(
                "Extra usage is required for long context requests: prompt is too long.",
                kind="rate_limit_error",
            ),
        ),
    ),
    (
        "rate",
        Case(
            "Bedrock",
            400,
            openai_body(
                "Too many tokens, please wait before trying again.", kind="ThrottlingException"
            ),
        ),
    ),
    (
        "rate",
        Case(
            "Gemini",
            429,
            [
                {
                    "error": {
                        "code": 429,
                        "message": "Quota exceeded for the input token count.",
                        "status": "RESOURCE_EXHAUSTED",
                    }
                }
            ],
        ),
    ),
    (
        "rate",
        Case(
            "a proxy, in an overflow's code",
            429,
            openai_body("Slow down.", "context_length_exceeded"),
        ),
    ),
    (
        "rate",
        Case(
            "a proxy, in an overflow's words",
            400,
            openai_body("It exceeds the context window of a minute.", "rate_limit_exceeded"),
        ),
    ),
    ("rate", Case("without words", 429, None)),
    (
        "request",
        Case(
            "OpenAI, nothing left to spend",
            429,
            openai_body(
                "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"
            ),
        ),
    ),
    (
        "request",
        Case(
            "OpenAI, a wrong key",
            401,
            openai_body("Incorrect API key provided: none.", "invalid_api_key"),
        ),
    ),
    (
        "request",
        Case(
            "OpenAI, no such model",
            404,
            openai_body("The model `m` does not exist.", "model_not_found"),
        ),
    ),
    (
        "request",
        Case(
            "OpenAI, a parameter",
            400,
            openai_body(
                "Unsupported value: 'temperature' does not support 0 with this model.",
                "unsupported_value",
                param="temperature",
            ),
        ),
    ),
    (
        "request",
        Case(
            "OpenAI, an id too long",
            400,
            openai_body(
                "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64.",
                "string_above_max_length",
                param="input[95].call_id",
            ),
        ),
    ),
    (
        "request",
        Case(
            "OpenAI, too many tools",
            400,
            openai_body(
                "Invalid 'tools': array too long. Expected an array with maximum length 128.",
                "array_above_max_length",
                param="tools",
            ),
        ),
    ),
    (
        "request",
        Case(
            "an id that looks like a status",
            400,
            openai_body(
                "No tool output found for function call call_503_timeout_server_error.",
                param="input",
            ),
        ),
    ),
    (
        "request",
        Case(
            "no permission, in an overflow's words",
            403,
            openai_body("Models with that maximum context length need tier 4."),
        ),
    ),
    (
        "unavailable",
        Case(
            "OpenAI, failing",
            500,
            openai_body(
                "The server had an error while processing your request.", kind="server_error"
            ),
        ),
    ),
    (
        "unavailable",
        Case(
            "OpenAI, failing, in an overflow's words",
            500,
            openai_body("The maximum context length could not be determined.", kind="server_error"),
        ),
    ),
    (
        "unavailable",
        Case(
            "overloaded",
            503,
            openai_body("The engine is currently overloaded.", kind="server_error"),
        ),
    ),
    (
        "unavailable",
        Case(
            "Anthropic, overloaded",
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ),
    ),
    ("unavailable", Case("a gateway", 502, "<html><body>502 Bad Gateway</body></html>")),
    ("unavailable", Case("a gateway that waited", 504, None)),
    ("unavailable", Case("a request that took too long", 408, None)),
    ("unavailable", Case("a lock", 409, openai_body("The resource is locked."))),
]
"""(what it means, answer): requests that no overflow is behind."""
