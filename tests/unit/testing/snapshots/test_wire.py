"""The wire format as a snapshot: what is sent, in the order in which it is sent, without pages of base64."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import (
    AssistantMessage,
    Document,
    Image,
    PromptElement,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.errors import EmitError
from promptkit.testing.snapshots.documents import (
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    build_wire_json,
    render_levels,
)

if TYPE_CHECKING:
    from promptkit.wire.parts import WireFormat

PROMPT = (SystemMessage(required=True)["Be brief."], UserMessage(priority=1)["What is this?"])


def document(prompt: object, form: WireFormat, *budgets: int) -> Any:
    return build_wire_json(
        render_levels(
            prompt, SnapshotOptions(budgets=budgets or None), Stabilizer(StabilizeOptions())
        ),
        form,
    )


def test_each_format_is_what_its_emitter_sends() -> None:
    calls = (
        UserMessage()["Look."],
        AssistantMessage(tool_calls=(ToolCall(id="c", name="look", arguments='{"b": 1, "a": 2}'),)),
        ToolMessage(tool_call_id="c")["Nothing."],
    )
    rendered = render(calls)
    assert document(calls, "chat") == rendered.to_chat()
    assert document(calls, "responses") == rendered.to_responses()
    assert document(calls, "anthropic") == rendered.to_anthropic()


def test_keys_stand_in_the_order_in_which_they_are_sent() -> None:
    assert json.dumps(document(UserMessage(name="ada")["Hi"], "chat")) == json.dumps(
        render(UserMessage(name="ada")["Hi"]).to_chat()
    )


def test_several_budgets_are_an_object_largest_first() -> None:
    found = document((AssistantMessage(priority=0)["Hello."], *PROMPT), "chat", 18, 5, 100)
    assert list(found) == ["100 tokens", "18 tokens", "5 tokens"]
    assert [len(found[key]) for key in list(found)[:2]] == [3, 2]
    assert found["5 tokens"]["error"].startswith("18 tokens do not fit a budget of 5")


@pytest.mark.parametrize("form", ["chat", "responses", "anthropic"])
def test_long_media_are_a_size_and_a_hash(form: WireFormat) -> None:
    data = b64encode(bytes(1_000)).decode()
    media = (
        Image(url=f"data:image/png;base64,{data}"),
        Document(data=data, media_type="application/pdf", tokens=1),
    )
    written = json.dumps(document(UserMessage()["See.", media], form))
    assert data not in written
    assert written.count("<1,000 bytes, sha256 541b3e9daa09>") == 2


def test_long_text_is_never_shortened() -> None:
    text = "a" * 1_000
    assert text in json.dumps(document(UserMessage()[text], "chat"))


def test_what_has_no_form_in_a_format_fails_the_test() -> None:
    prompt: PromptElement = AssistantMessage()[Image(url="data:image/png;base64,AAAA")]
    with pytest.raises(EmitError):
        document(prompt, "chat")
