"""What OpenAIModel sends is what the SDK's own types ask for, and what the model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from promptkit import Message, OpaquePart, ToolCall
from promptkit.messages import CacheBreakpointPart
from promptkit.providers.openai.api import build_chat_body, build_responses_body
from promptkit.testing.server import serve
from promptkit.testing.server.openai_api import check_chat, check_responses
from tests.unit.providers.openai.asking import HELLO, READ, Api, check_body, heard
from tests.unit.wire.strategies import conversations, tools

if TYPE_CHECKING:
    from promptkit import ToolDefinition
    from promptkit.providers.model import ModelOptions

BOTH = pytest.mark.parametrize("api", ["chat", "responses"])
NOTHING: set[str] = set()
NAMES = ["gpt-4.1", "gpt-5", "gpt-5.6", "o4-mini", "openai/gpt-oss-120b", "some-model"]

options_ = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "max_output_tokens": st.integers(1, 100_000),
        "reasoning_effort": st.sampled_from(
            ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
        ),
        "tool_choice": st.sampled_from(["auto", "none", "required", "read_file"]),
        "parallel_tool_calls": st.booleans(),
        "prompt_cache_key": st.text(max_size=5),
        "cache_breakpoints": st.booleans(),
        "on_text": st.sampled_from([print, None]),
    },
)


def body_of(
    api: str,
    name: str = "gpt-4.1",
    tools: tuple[ToolDefinition, ...] = (),
    messages: tuple[Message, ...] = (HELLO,),
    **options: Any,
) -> Any:
    return (build_chat_body if api == "chat" else build_responses_body)(
        name,
        messages,
        tools,
        options,  # type: ignore[arg-type]  # as the caller gave them
    )


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    # the first use of an adapter takes longer than hypothesis likes
    for api in ("chat", "responses"):
        for listen in (print, None):
            check_body(api, body_of(api, on_text=listen))


class TestTypes:
    @pytest.mark.parametrize("api", ["chat", "responses"])
    @given(messages=conversations(), offered=tools, name=st.sampled_from(NAMES), options=options_)
    def test_every_body_is_what_the_sdk_asks_for(
        self,
        api: Api,
        messages: list[Message],
        offered: list[ToolDefinition],
        name: str,
        options: ModelOptions,
    ) -> None:
        check_body(
            api,
            (build_chat_body if api == "chat" else build_responses_body)(
                name, messages, offered, options
            ),
        )

    @BOTH
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("colour", "red"),
            ("temperature", "hot"),
            ("stream", "yes"),
            ("tools", [{"type": "function"}]),
            ("model", 5),
        ],
    )
    def test_the_check_fails_on_one_wrong_key_or_value(
        self, api: Api, key: str, value: object
    ) -> None:
        with pytest.raises(ValidationError):
            check_body(api, body_of(api) | {key: value})

    @BOTH
    @pytest.mark.parametrize("stream", [False, True])
    def test_what_goes_over_the_wire_is_that_body(self, api: Api, stream: bool) -> None:
        with serve(script=["Fine."]) as server:
            heard(
                server.url,
                api=api,
                stream=stream,
                tools=[READ],
                tool_choice="auto",
                max_output_tokens=50,
                prompt_cache_key="k",
            )
            body = server.requests[0].body
        check_body(api, body)
        asked = body_of(
            api,
            tools=(READ,),
            tool_choice="auto",
            max_output_tokens=50,
            prompt_cache_key="k",
            on_text=print if stream else None,
        )
        assert body == asked

    @given(conversations())
    def test_every_conversation_is_one_that_the_server_takes(self, messages: list[Message]) -> None:
        messages = [HELLO, *(message for message in messages if not _has_media(message))]
        check_chat(build_chat_body("gpt-4.1", messages, [], {}))
        check_responses(build_responses_body("gpt-4.1", messages, [], {}))


def _has_media(message: Message) -> bool:
    return message.name is not None or not all(
        isinstance(part, str | CacheBreakpointPart | OpaquePart) for part in message.content
    )


class TestOptions:
    def test_go_out_under_the_names_of_chat_completions(self) -> None:
        body = body_of(
            "chat",
            tools=(READ,),
            temperature=0,
            max_output_tokens=9,
            tool_choice="read",
            parallel_tool_calls=False,
            prompt_cache_key="k",
        )
        assert {
            key: value for key, value in body.items() if key not in ("messages", "tools", "model")
        } == {
            "temperature": 0,
            "max_completion_tokens": 9,
            "tool_choice": {"type": "function", "function": {"name": "read"}},
            "parallel_tool_calls": False,
            "prompt_cache_key": "k",
        }

    def test_go_out_under_the_names_of_the_responses_api(self) -> None:
        body = body_of(
            "responses",
            "gpt-5",
            (READ,),
            max_output_tokens=9,
            tool_choice="read",
            reasoning_effort="low",
            prompt_cache_key="k",
        )
        assert {
            key: value for key, value in body.items() if key not in ("input", "tools", "model")
        } == {
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 9,
            "tool_choice": {"type": "function", "name": "read"},
            "reasoning": {"effort": "low"},
            "prompt_cache_key": "k",
        }

    @BOTH
    def test_nothing_is_sent_that_was_not_asked_for(self, api: Api) -> None:
        assert set(body_of(api)) == (
            {"model", "messages"} if api == "chat" else {"model", "input", "store"}
        )

    @BOTH
    def test_without_tools_nothing_is_said_of_them(self, api: Api) -> None:
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(
            body_of(api, tool_choice="none", parallel_tool_calls=True)
        )

    @pytest.mark.spec("E59")
    @BOTH
    @pytest.mark.parametrize(
        ("name", "effort", "sent"),
        [
            ("gpt-4.1", None, {"temperature"}),
            ("gpt-4.1", "low", {"temperature"}),
            ("gpt-4o", "low", {"temperature"}),
            ("chatgpt-4o-latest", "low", {"temperature"}),
            ("gpt-5-chat-latest", "low", {"temperature"}),
            ("gpt-5", None, NOTHING),
            ("gpt-5-mini", "low", {"effort"}),
            ("gpt-5.6", "none", {"temperature", "effort"}),
            ("openai/gpt-5", "high", {"effort"}),
            ("o3", None, NOTHING),
            ("o4-mini", "low", {"effort"}),
            ("gpt-oss-120b", None, {"temperature"}),
            ("gpt-oss-120b", "low", {"effort"}),
            ("some-model", None, {"temperature"}),
            ("some-model", "low", {"effort"}),
        ],
    )
    def test_a_model_gets_an_effort_or_a_temperature_as_it_takes_them(  # the case's number
        self, api: Api, name: str, effort: str | None, sent: set[str]
    ) -> None:
        options: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
        body = body_of(api, name, temperature=0, **options)
        said = {"temperature"} & set(body) | (
            {"effort"} if {"reasoning_effort", "reasoning"} & set(body) else NOTHING
        )
        assert said == sent

    @pytest.mark.parametrize(
        ("name", "asks"),
        [("gpt-5", True), ("gpt-4.1", False), ("gpt-oss-120b", False), ("some-model", False)],
    )
    def test_encrypted_thoughts_are_asked_for_where_there_are_any(
        self, name: str, asks: bool
    ) -> None:
        assert ("include" in body_of("responses", name)) is asks

    @BOTH
    @pytest.mark.parametrize(
        ("name", "option", "sent"),
        [
            ("gpt-5.6", None, True),
            ("gpt-6", None, True),
            ("gpt-5.10", None, True),
            ("gpt-5", None, False),
            ("gpt-5.5", None, False),
            ("some-model", None, False),
            ("gpt-5.6", False, False),
            ("gpt-4.1", True, True),
        ],
    )
    def test_cache_breakpoints_go_to_the_models_that_take_them(
        self, api: Api, name: str, option: bool | None, sent: bool
    ) -> None:
        message = Message(role="user", content=("Long.", CacheBreakpointPart(), "Short."))
        options: dict[str, Any] = {} if option is None else {"cache_breakpoints": option}
        assert (
            "prompt_cache_breakpoint" in str(body_of(api, name, messages=(message,), **options))
        ) is sent

    def test_the_words_of_a_call_stay_as_they_are(self) -> None:
        call = Message(
            role="assistant", tool_calls=(ToolCall(id="c", name="read", arguments="{broken"),)
        )
        with serve(script=["Fine."]) as server:
            heard(
                server.url,
                [HELLO, call, Message(role="tool", tool_call_id="c", content=("No.",))],
                tools=[READ],
            )
            assert (
                server.requests[0].messages[1]["tool_calls"][0]["function"]["arguments"]
                == "{broken"
            )
