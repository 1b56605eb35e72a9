"""A model that is given by its name is asked over the API of its provider."""

from __future__ import annotations

import pytest

from promptkit import AgentSession, OpenAIModel
from promptkit.providers import AnthropicModel


@pytest.mark.parametrize(
    ("name", "address", "kind"),
    [
        ("gpt-5", "", OpenAIModel),
        ("claude-opus-4-5", "", AnthropicModel),
        # a server of one's own has all models
        ("claude-opus-4-5", "http://127.0.0.1:1/v1", OpenAIModel),
    ],
)
def test_claude_is_asked_over_anthropic_s_api_unless_a_server_is_set(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str, kind: type[object]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    assert isinstance(AgentSession(model=name).model, kind)
