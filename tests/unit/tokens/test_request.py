from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from promptkit.messages import ToolCall, ToolDefinition
from promptkit.tokens.models import tokenizer_for
from promptkit.tokens.request import count_request
from tests.paths import SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Json
    from promptkit.tokens.tokenizer import Count


COUNTING = SHARED / "counting"


def recorded(name: str) -> list[Any]:
    file = COUNTING / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []


def user(text: str) -> Json:
    return {"role": "user", "content": text}


class TestBills:
    @pytest.mark.parametrize("file", ["openai_usage_hmarr.json", "openai_usage_n0isy.json"])
    def test_every_recorded_request_counts_what_was_billed(self, file: str) -> None:
        cases = recorded(file)
        if not cases:
            pytest.skip(f"{file} is not at hand")
        counts = {case["id"]: count_request(case["request"]) for case in cases}
        assert {name: count.tokens for name, count in counts.items()} == {
            case["id"]: case["prompt_tokens"] for case in cases
        }

    @pytest.mark.parametrize(
        ("model", "tokens"),
        [("gpt-4", 129), ("gpt-3.5-turbo", 129), ("gpt-4o", 124), ("gpt-4o-mini", 124)],
    )
    def test_the_cookbooks_messages(self, model: str, tokens: int) -> None:
        cases = recorded("openai_usage_hmarr.json")
        if not cases:
            pytest.skip("the cookbook's messages are not at hand")
        messages = [message for case in cases[:6] for message in case["request"]["messages"]]
        assert count_request({"model": model, "messages": messages}) == (tokens, True)

    # OpenAI cookbook, "How to count tokens with tiktoken", section 7: the request and what it was
    # billed.
    @pytest.mark.parametrize(
        ("model", "tokens"),
        [("gpt-4", 105), ("gpt-3.5-turbo", 105), ("gpt-4o", 101), ("gpt-4o-mini", 101)],
    )
    def test_the_cookbooks_tool(self, model: str, tokens: int) -> None:
        properties: Json = {
            "location": {
                "type": "string",
                "description": "The city and state, e.g. San Francisco, CA",
            },
            "unit": {
                "type": "string",
                "description": "The unit of temperature to return",
                "enum": ["celsius", "fahrenheit"],
            },
        }
        function: Json = {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location",
            "parameters": {"type": "object", "properties": properties, "required": ["location"]},
        }
        system = "You are a helpful assistant that can answer to questions about the weather."
        messages: Json = [
            {"role": "system", "content": system},
            user("What's the weather like in San Francisco?"),
        ]
        request: dict[str, Json] = {
            "model": model,
            "messages": messages,
            "tools": [{"type": "function", "function": function}],
        }
        assert count_request(request) == (tokens, True)

    # https://github.com/hmarr/openai-chat-tokens and https://github.com/n0isy/openai-tokens-count, both MIT
    def test_messages_alone_are_refused_with_what_to_write(self) -> None:
        messages: Any = [{"role": "user", "content": "hi"}]  # what the checkers refuse
        with pytest.raises(TypeError, match=r"write count_request\(\{'messages': messages\}\)"):
            count_request(messages)

    def test_small_requests(self) -> None:
        foo: Json = [{"name": "foo", "parameters": {"type": "object", "properties": {}}}]
        hello: Json = [user("hello")]
        assert count_request({"model": "gpt-3.5-turbo", "messages": hello}) == (8, True)
        assert count_request({"model": "gpt-3.5-turbo", "messages": hello, "functions": foo}) == (
            31,
            True,
        )
        assert count_request(
            {"model": "gpt-3.5-turbo", "messages": hello, "functions": foo, "function_call": "none"}
        ) == (32, True)
        assert count_request(
            {
                "model": "gpt-3.5-turbo",
                "messages": hello,
                "functions": foo,
                "function_call": {"name": "foo"},
            }
        ) == (
            36,
            True,
        )
        call: Json = {
            "id": "1",
            "type": "function",
            "function": {"name": "execute_code", "arguments": "{}"},
        }
        run: Json = [
            {"role": "assistant", "content": "RUN ME", "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
        ]
        assert count_request({"model": "gpt-3.5-turbo", "messages": run}) == (28, True)

    # As above; the only bill for two calls in a message, so that what follows from it for others is
    # an estimate.
    def test_two_calls_in_a_message(self) -> None:
        arguments = [
            '{"teamName":"Game Development Team", "description":"Team1"}',
            '{"teamName":"Game Development Team 2"}',
        ]
        calls: list[Json] = [
            {
                "id": given,
                "type": "function",
                "function": {"name": "create_team", "arguments": given},
            }
            for given in arguments
        ]
        results: list[Json] = [
            {"role": "tool", "content": '"Team successfully saved."', "tool_call_id": given}
            for given in arguments
        ]
        messages: list[Json] = [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
        assert count_request({"model": "gpt-4-turbo", "messages": messages}) == (79, False)

    @pytest.mark.parametrize(("text", "tokens"), [("Run", 1), ("Run it", 2)])
    def test_a_call_beside_a_text_is_a_message_of_its_own_however_short_the_text_is(
        self, text: str, tokens: int
    ) -> None:
        function: Json = {"name": "execute_code", "arguments": "{}"}
        call: Json = {"id": "1", "type": "function", "function": function}
        alone, beside = (
            count_request(
                {"messages": [{"role": "assistant", "content": content, "tool_calls": [call]}]}
            )
            for content in ("", text)
        )
        assert beside == (alone.tokens + 3 + 1 + tokens, True)


UNCHECKED: list[dict[str, Json]] = [
    {"model": "gpt-5", "messages": [user("hello")]},
    {"model": "claude-opus-4-6", "messages": [user("hello")]},
    {
        "model": "gpt-4o",
        "messages": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}
        ],
    },
    {
        "model": "gpt-4o",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c"}}],
            }
        ],
    },
    {
        "model": "gpt-4o",
        "messages": [user("hello")],
        "response_format": {"type": "json_schema", "json_schema": {}},
    },
    {
        "model": "gpt-4o",
        "messages": [user("hello")],
        "tools": [{"function": {"name": "a", "parameters": {"$ref": "#"}}}],
    },
    {
        "model": "gpt-4o",
        "messages": [user("hello")],
        "functions": [{"name": "a", "parameters": {"$ref": "#"}}],
    },
    {
        "model": "gpt-4o",
        "messages": [user("hello")],
        "functions": [{"name": "a"}],
        "tools": [{"function": {"name": "b"}}],
    },
    {
        "model": "gpt-4o",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hello"}, {"type": "input_audio"}],
            }
        ],
    },
    {"model": "gpt-4o", "messages": [{"role": "assistant", "content": None, "audio": {"id": "a"}}]},
]


BROKEN: list[dict[str, Json]] = [
    {},
    {"messages": None},
    {"messages": [None, 3]},
    {"messages": [{}], "tools": [1], "tool_choice": {"a": 1}},
]


class TestExactness:
    @pytest.mark.parametrize("request_", UNCHECKED)
    def test_what_has_no_checked_formula_is_not_exact(self, request_: dict[str, Json]) -> None:
        assert not count_request(request_).exact

    def test_no_model_counts_as_gpt_4o(self) -> None:
        assert count_request({"messages": [user("hello")]}) == count_request(
            {"model": "gpt-4o", "messages": [user("hello")]}
        )

    @pytest.mark.parametrize("broken", BROKEN)
    def test_a_request_that_is_none_does_no_harm(self, broken: dict[str, Json]) -> None:
        assert count_request(broken).tokens >= 3


class TestParts:
    def count(self, message: Json, **more: Json) -> Count:
        return count_request({"model": "gpt-4o", "messages": [message], **more})

    def test_texts_and_a_refusal_count_as_text(self) -> None:
        texts: Json = [{"type": "text", "text": "hello"}, {"type": "refusal", "refusal": "hello"}]
        alone = self.count({"role": "assistant", "content": "hello"})
        assert self.count({"role": "assistant", "content": texts, "refusal": "hello"}) == (
            alone.tokens + 2,
            True,
        )

    def test_an_image_counts_by_its_detail(self) -> None:
        image: Json = {"type": "image_url", "image_url": {"url": "https://a.b/c", "detail": "low"}}
        assert self.count({"role": "user", "content": [image]}) == (
            self.count({"role": "user", "content": ""}).tokens + 85,
            True,
        )

    def test_a_part_of_which_nothing_is_known_counts_nothing(self) -> None:
        audio: Json = {"type": "input_audio", "input_audio": {"data": ""}}
        assert (
            self.count({"role": "user", "content": [audio]}).tokens
            == self.count({"role": "user", "content": ""}).tokens
        )

    # the line break before tools is part of the token of a full stop
    @pytest.mark.parametrize("text", ["Be brief.", "Be brief"])
    def test_a_system_message_of_parts_counts_with_tools_as_one_of_text(self, text: str) -> None:
        tools: Json = [{"type": "function", "function": {"name": "read"}}]
        parts: Json = [{"type": "text", "text": text}]
        assert self.count({"role": "system", "content": parts}, tools=tools) == self.count(
            {"role": "system", "content": text}, tools=tools
        )


names = st.sampled_from(["read", "get_weather", "executeCode"])
words = st.sampled_from(["hello", "Hello:", "", "two words\n", "汉字", "<|endoftext|>"])
calls = st.lists(st.tuples(names, st.sampled_from(["{}", '{"a": 1}', "not json"])), max_size=3)
messages = st.tuples(
    st.sampled_from(["system", "user", "assistant", "tool"]), words, st.none() | names, calls
)
tools = st.lists(
    st.tuples(names, st.none() | words, st.sampled_from(["string", "integer", "object"])),
    max_size=2,
)


@given(
    model=st.sampled_from([None, "gpt-4", "gpt-5"]),
    written=st.lists(messages, max_size=5),
    defined=tools,
)
def test_a_tokenizer_agrees_with_the_count_of_the_request(
    model: str | None,
    written: Sequence[tuple[str, str, str | None, Sequence[tuple[str, str]]]],
    defined: Sequence[tuple[str, str | None, str]],
) -> None:
    tokenizer = tokenizer_for(model)
    wire: list[Json] = []
    tokens, exact, least = 0, True, 0
    for role, text, name, asked in written:
        made = [
            ToolCall(id=str(n), name=called, arguments=arguments)
            for n, (called, arguments) in enumerate(asked)
        ]
        given_calls = made if role == "assistant" else []
        frame = tokenizer.count_framing(role, name=name, tool_calls=given_calls, text=bool(text))  # type: ignore[arg-type]  # one of the roles
        most = tokenizer.count_framing(role, name=name, tool_calls=given_calls)  # type: ignore[arg-type]  # as above
        tokens += frame.tokens + tokenizer.count(text)
        exact = exact and frame.exact
        least += most.tokens + tokenizer.count(text)
        message: dict[str, Json] = {
            "role": role,
            "content": text,
            **({"name": name} if name else {}),
        }
        if given_calls:
            message["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": c.arguments},
                }
                for c in made
            ]
        wire.append(message)
    definitions = [
        ToolDefinition(
            name=name,
            description=text,
            parameters={"type": "object", "properties": {"a": {"type": kind}}},
        )
        for name, text, kind in defined
    ]
    system = next((text for role, text, *_ in written if role == "system"), None)
    around = tokenizer.count_overhead(definitions, system=False if system is None else system)
    functions: list[Json] = [
        {
            "type": "function",
            "function": {"name": d.name, "description": d.description, "parameters": d.parameters},
        }
        for d in definitions
    ]
    request: dict[str, Json] = {
        "messages": wire,
        "tools": functions,
        **({"model": model} if model else {}),
    }
    assert count_request(request) == (tokens + around.tokens, exact and around.exact)
    # What knows less counts no fewer.
    assert (
        least + tokenizer.count_overhead(definitions, system=system is not None).tokens
        >= tokens + around.tokens
    )
