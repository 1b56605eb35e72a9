"""prompt-poet: a template with one part for each message, truncated with a step of 1, so that it drops no more than necessary."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

poet: Any = import_module("prompt_poet")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary

MESSAGES = """
{% for message in messages %}
- name: chat_message
  role: {{ message.role }}
  truncation_priority: 1
  content: |
    {{ escape_special_characters(message.content) }}
{% endfor %}
"""
LINES = """
{% for line in messages %}
- name: line
  role: user
  truncation_priority: 1
  content: |
    {{ escape_special_characters(line.content + newline) }}
{% endfor %}
"""


def fit(work: dict[str, Any]) -> tuple[bool, Any]:  # Any: JSON, a prompt
    lines = work["shape"] == "chunks"
    data = {"messages": work["items"], "newline": "\n"}
    prompt = poet.Prompt(
        raw_template=LINES if lines else MESSAGES,
        template_data=data,
        token_limit=work["budget"],
        truncation_step=1,
    )
    prompt.tokenize()
    prompt.truncate()
    return lines, prompt


def wire(result: tuple[bool, Any]) -> list[dict[str, Any]]:  # Any: a prompt, JSON
    lines, prompt = result
    return [{"role": "user", "content": prompt.string}] if lines else prompt.messages


def claim(result: tuple[bool, Any]) -> int:  # Any: a prompt
    return len(result[1].tokens)
