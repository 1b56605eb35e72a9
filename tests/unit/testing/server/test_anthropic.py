"""The server speaks Anthropic's API as the real one does: what it refuses, what it answers, and in which form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import anthropic
import pytest
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from promptkit import Message, OpaquePart, ToolCall
from promptkit.testing.server import Rule, ScriptedReply, api_error, echo, rate_limit_error, serve
from promptkit.testing.server.anthropic_api import check_messages, sign_thinking
from promptkit.testing.server.openai_api import IllFormedRequestError
from tests.unit.testing.server.posting import post

if TYPE_CHECKING:
    from promptkit.testing.server import Server

VERSION = {"anthropic-version": "2026-10-21"}
OLDER = {"anthropic-version": "2023-06-01"}
BETA = {**VERSION, "anthropic-beta": "x,thinking-binding-controls-2026-08-01"}
MODEL, BUDGETED, FREE = "claude-opus-5-5", "claude-haiku-4-5", "claude-opus-5"
"""A model with preserved thinking, one whose thinking has a budget, and one with neither."""
TOOL = {"name": "read", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "Hello."}
MARK = {"cache_control": {"type": "ephemeral"}}


def text(words: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}, **more}


def result(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **more}


def thought(words: str = "Hm.", prefix: str = "") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": sign_thinking(words, prefix)}


GOOD: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [USER, USER]},
    {
        "messages": [
            user(
                text(),
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            )
        ],
        "system": "Be brief.",
    },
    {
        "messages": [
            USER,
            said(text(), call("a"), call("b")),
            user(result("b"), result("a"), text()),
        ],
        "tools": [TOOL],
    },
    {"messages": [USER, said(call()), user(result()), user(text())], "tools": [TOOL]},
    {
        "messages": [
            USER,
            said(call()),
            user(result("a", content="")),
            said(call("b")),
            user(result("b", content=[text()])),
        ],
        "tools": [TOOL],
    },
    {"messages": [USER, said(call()), said(text()), user(result())], "tools": [TOOL]},
    {
        "messages": [USER],
        "tools": [{**TOOL, **MARK}],
        "system": [text("s", **MARK)],
        "tool_choice": {"type": "any"},
        "model": FREE,
    },
    {"messages": [USER, said(thought(), text()), USER], "model": FREE},
    {
        "messages": [USER],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "max_tokens": 2000,
        "model": BUDGETED,
    },
    {"messages": [USER, said(text("So"))], "model": BUDGETED},
    {
        "messages": [
            {
                "role": "user",
                "content": [
                    text("l", cache_control={"type": "ephemeral", "ttl": "1h"}),
                    text("s", **MARK),
                ],
            }
        ]
    },
]

BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "at least one message"),
    ({}, "messages: Field required"),
    ({"messages": [USER], "max_tokens": None}, "max_tokens: Field required"),
    ({"messages": [USER], "max_tokens": 0}, "greater than or equal to 1"),
    ({"messages": [USER], "model": ""}, "model: Field required"),
    ({"messages": [USER], "temperature": 0}, "temperature: Extra inputs are not permitted"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": None}]}, "should be a valid list"),
    ({"messages": [user()]}, "must have non-empty content"),
    ({"messages": [user(text(""))]}, "must be non-empty"),
    ({"messages": [user(text(" \n"))]}, "non-whitespace"),
    ({"messages": [{"role": "user", "content": ""}]}, "must be non-empty"),
    ({"messages": [user(thought())]}, "does not match any of the expected tags"),
    (
        {"messages": [USER, said(call()), USER]},
        "`tool_use` ids were found without `tool_result` blocks immediately after: a",
    ),
    ({"messages": [USER, said(call(), call("b")), user(result())]}, "immediately after: b"),
    ({"messages": [USER, said(call()), user(text(), result())]}, "unexpected `tool_use_id`"),
    ({"messages": [USER, said(call()), user(result("b"))]}, "unexpected `tool_use_id`"),
    ({"messages": [user(result())]}, "unexpected `tool_use_id`"),
    ({"messages": [USER, said(call()), user(result())]}, "must define tools"),
    (
        {"messages": [USER, said(call()), user(result()), user(result())]},
        "unexpected `tool_use_id`",
    ),
    (
        {"messages": [USER, said(call()), user(result()), said(call()), user(result())]},
        "ids must be unique",
    ),
    ({"messages": [USER, said(call("a:0")), user(result("a:0"))]}, "tool_use.id"),
    ({"messages": [USER, said(call(input="{}")), user(result())]}, "valid dictionary"),
    (
        {"messages": [USER, said(call()), user(result("a", content=[text("")]))]},
        "must be non-empty",
    ),
    ({"messages": [USER, said(text())]}, "prefill"),
    (
        {
            "messages": [user(text("1", **MARK), text("2", **MARK))],
            "system": [text("s", **MARK)] * 3,
        },
        "Found 5",
    ),
    (
        {
            "messages": [
                user(text("1", **MARK), text("2", cache_control={"type": "ephemeral", "ttl": "1h"}))
            ]
        },
        "must not come after",
    ),
    (
        {"messages": [user(text("1", cache_control={"type": "ephemeral", "ttl": "2h"}))]},
        "ttl of '5m' or '1h'",
    ),
    (
        {"messages": [USER, said({**thought(), **MARK}), USER], "model": FREE},
        "cache_control: Extra inputs",
    ),
    (
        {"messages": [USER, said({"type": "thinking", "thinking": "x"}), USER], "model": FREE},
        "signature: Field required",
    ),
    (
        {"messages": [USER, said({**thought(), "thinking": "Other."}), USER], "model": FREE},
        "Invalid `signature`",
    ),
    ({"messages": [USER, said({"type": "redacted_thinking"}), USER]}, "data: Field required"),
    ({"messages": [USER, said(thought()), USER]}, "bound to a different conversation"),
    (
        {"messages": [USER], "tool_choice": {"type": "auto"}},
        "only be specified while providing tools",
    ),
    ({"messages": [USER], "tools": [TOOL], "tool_choice": {"type": "required"}}, "'required'"),
    (
        {"messages": [USER], "tools": [TOOL], "tool_choice": {"type": "tool", "name": "write"}},
        "'write' not found",
    ),
    (
        {"messages": [USER], "tools": [TOOL], "tool_choice": {"type": "any"}},
        "not supported for this model",
    ),
    ({"messages": [USER], "tools": [TOOL, TOOL]}, "must be unique"),
    (
        {"messages": [USER], "tools": [{"name": "größe", "input_schema": {"type": "object"}}]},
        "should match pattern",
    ),
    ({"messages": [USER], "tools": [{"name": "read", "input_schema": {}}]}, "input_schema.type"),
    ({"messages": [said("Hello."), USER]}, 'first message must use the "user" role'),
    (
        {"messages": [USER], "thinking": {"type": "disabled"}},
        '"thinking.type.disabled" is not supported',
    ),
    (
        {"messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 9}},
        '"thinking.type.enabled" is not supported',
    ),
    (
        {"messages": [USER], "thinking": {"type": "adaptive"}, "model": BUDGETED},
        '"thinking.type.adaptive" is not supported',
    ),
    (
        {
            "messages": [USER],
            "thinking": {"type": "enabled", "budget_tokens": 9},
            "model": BUDGETED,
        },
        "greater than or equal to 1024",
    ),
    (
        {
            "messages": [USER],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "model": BUDGETED,
        },
        "must be greater than",
    ),
    (
        {"messages": [USER], "thinking": {"type": "adaptive", "block_binding": {}}},
        "block_binding: Extra inputs",
    ),
    (
        {"messages": [USER], "output_config": {"effort": "xhigh"}, "model": "claude-opus-4-6"},
        "'xhigh' is not supported",
    ),
    (
        {
            "messages": [USER, said(call()), user(result())],
            "tools": [TOOL],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 2000,
            "model": BUDGETED,
        },
        "Expected `thinking`",
    ),
]


def request(**body: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 1000, **body}


@pytest.mark.parametrize("body", GOOD, ids=range(len(GOOD)))
def test_a_request_in_order_is_taken(body: dict[str, Any]) -> None:
    check_messages(request(**body), VERSION, counts=False)


@pytest.mark.parametrize(
    ("body", "message"), BAD, ids=[f"{n} {case[1]}" for n, case in enumerate(BAD)]
)
def test_a_request_with_one_fault_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(IllFormedRequestError) as caught:
        check_messages(request(**body), VERSION, counts=False)
    assert message in caught.value.message


def test_sampling_belongs_to_the_older_version_of_the_api() -> None:
    check_messages(request(messages=[USER], temperature=0), OLDER, counts=False)


@pytest.mark.parametrize(
    ("counts", "kind"), [(False, MessageCreateParamsStreaming), (True, MessageCountTokensParams)]
)
def test_every_parameter_that_the_sdk_has_is_known(counts: bool, kind: Any) -> None:
    body = {"model": MODEL, "messages": [USER], **({} if counts else {"max_tokens": 1000})}
    # these two are headers
    for name in set(get_type_hints(kind)) - {*body, "user_profile_id", "workspace_id"}:
        check_messages({**body, name: None}, VERSION, counts=counts)


def without_empty(blocks: Any) -> list[dict[str, Any]]:
    """Blocks without what is None, which only one of the two ways names, and without their ids."""
    return [
        {name: value for name, value in block.items() if value is not None and name != "id"}
        for block in blocks
    ]


class TestPreservedThinking:
    def ask(self, server: Server, *messages: Any, **more: Any) -> Any:
        body = {"model": MODEL, "max_tokens": 1000, "messages": messages, **more}
        return post(server, "/messages", body, headers=BETA).body

    def test_thoughts_are_accepted_behind_what_they_were_thought_of(self) -> None:
        hm = Message(
            role="assistant",
            content=(
                OpaquePart(value={"type": "thinking", "thinking": "Hm."}, provider="anthropic"),
                "So.",
            ),
        )
        drop = {
            "thinking": {
                "type": "adaptive",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            }
        }
        with serve(script=[hm, "Fine.", "Fine."]) as server:
            content = self.ask(server, USER)["content"]
            assert self.ask(server, USER, said(*content), USER)["content"] == [
                text("Fine.", citations=None)
            ]
            refused = self.ask(server, USER, USER, said(*content), USER)
            assert "different conversation" in refused["error"]["message"]
            dropped = self.ask(server, USER, USER, said(*content), USER, **drop)[
                "input_transformations"
            ]
        assert dropped == [
            {
                "type": "thinking_dropped",
                "path": "messages.2.content.0",
                "reason": "prefix_binding_mismatch",
            }
        ]

    def test_a_cache_breakpoint_is_no_change(self) -> None:
        hm = Message(
            role="assistant",
            content=(
                OpaquePart(value={"type": "thinking", "thinking": "Hm."}, provider="anthropic"),
                "So.",
            ),
        )
        with serve(script=[hm, "Fine."]) as server:
            content = self.ask(server, user(text("Hello.", **MARK)))["content"]
            assert "content" in self.ask(server, USER, said(*content), user(text("And?", **MARK)))


class TestAnswers:
    def test_a_stream_adds_up_to_the_complete_message(self) -> None:
        thinking = OpaquePart(
            value={"type": "thinking", "thinking": "It is long. " * 9},
            tokens=20,
            provider="anthropic",
        )
        reply = Message(
            role="assistant",
            content=(thinking, "I look. " * 9),
            tool_calls=(ToolCall(id="", name="read", arguments='{"a": [1, 2]}'),),
        )
        with serve(script=[reply, reply]) as server:
            sdk = anthropic.Anthropic(base_url=server.anthropic_url, api_key="none", max_retries=0)
            messages: Any = [USER]
            whole = sdk.messages.create(model=MODEL, max_tokens=1000, messages=messages).to_dict()
            with sdk.messages.stream(model=MODEL, max_tokens=1000, messages=messages) as stream:
                streamed = stream.get_final_message().to_dict()
            sdk.close()
        assert {**streamed, "id": ""} == {**whole, "id": ""} | {"content": streamed["content"]}
        assert without_empty(streamed["content"]) == without_empty(whole["content"])
        assert whole["stop_reason"] == "tool_use"

    def test_rules_and_messages_are_those_of_every_api(self) -> None:
        with serve(rules=[Rule(match="^Summarize", answer="A summary.")], after=echo) as server:
            for asked, answered in (("Summarize this", "A summary."), ("Hello", "Hello")):
                answer = post(
                    server,
                    "/messages",
                    request(messages=[user(text(asked))], system="Be brief."),
                    headers=VERSION,
                )
                assert answer.body["content"][0]["text"] == answered
                assert answer.headers["request-id"] == f"req_{server.requests[-1].number}"
            assert server.requests[-1].messages == [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            ]

    def test_calls_results_and_tools_are_shown_as_in_chat_completions(self) -> None:
        messages = [
            USER,
            said(thought(), text("I look."), call(input={"a": 1})),
            user(result("a", content="1"), text("And?")),
        ]
        with serve(after=echo) as server:
            post(
                server,
                "/messages",
                request(messages=messages, tools=[TOOL], model=FREE),
                headers=VERSION,
            )
            shown = server.requests[0]
        assert [message["role"] for message in shown.messages] == [
            "user",
            "assistant",
            "tool",
            "user",
        ]
        assert shown.messages[1]["tool_calls"][0]["function"] == {
            "name": "read",
            "arguments": '{"a": 1}',
        }
        assert shown.chat["tools"] == [
            {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
        ]

    @pytest.mark.parametrize(
        ("answer", "status", "kind"),
        [
            (rate_limit_error(2), 429, "rate_limit_error"),
            (api_error(529, "Overloaded"), 529, "overloaded_error"),
            (api_error(503, "Down"), 503, "api_error"),
        ],
    )
    def test_errors_have_anthropic_s_form(self, answer: Any, status: int, kind: str) -> None:
        with serve(script=[answer]) as server:
            answered = post(server, "/messages", request(messages=[USER]), headers=VERSION)
        assert (answered.status, answered.body["type"], answered.error["type"]) == (
            status,
            "error",
            kind,
        )
        assert answered.body["request_id"] == "req_1"

    def test_refusals_are_counted(self) -> None:
        with serve(window=500) as server:
            assert (
                post(server, "/messages", request(messages=[]), headers=VERSION).error["type"]
                == "invalid_request_error"
            )
            long = post(
                server, "/messages", request(messages=[user(text("word " * 999))]), headers=VERSION
            )
            assert long.error["message"].startswith("prompt is too long: ")
            assert (server.stats.invalid, server.stats.overflows) == (1, 1)

    def test_a_reply_ends_at_its_limit(self) -> None:
        with serve(script=["word " * 300]) as server:
            answer = post(
                server, "/messages", request(messages=[USER], max_tokens=50), headers=VERSION
            ).body
        assert answer["stop_reason"] == "max_tokens"
        assert answer["usage"]["output_tokens"] <= 50

    def test_any_stop_reason_can_be_scripted(self) -> None:
        paused = ScriptedReply(
            message=Message(role="assistant", content=("So far",)), finish="pause_turn"
        )
        with serve(script=[paused]) as server:
            assert (
                post(server, "/messages", request(messages=[USER]), headers=VERSION).body[
                    "stop_reason"
                ]
                == "pause_turn"
            )

    def test_tokens_are_counted_without_an_answer(self) -> None:
        with serve() as server:
            counted = post(
                server,
                "/messages/count_tokens",
                {"model": MODEL, "messages": [user(text("word " * 100))]},
                headers=VERSION,
            ).body
            assert server.stats.answered == 0
        assert counted["input_tokens"] > 100


class TestCache:
    def use(self, server: Server, *blocks: Any, **more: Any) -> tuple[int, int]:
        usage = post(
            server, "/messages", request(messages=[user(*blocks)], **more), headers=VERSION
        ).body["usage"]
        return usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]

    def test_the_longest_marked_prefix_is_read_and_the_rest_written(self) -> None:
        first, second = text("word " * 1500), text("more " * 1500)
        with serve(after=lambda _: "ok") as server:
            read, written = self.use(server, first | MARK)
            assert (read, written > 1024) == (0, True)
            assert self.use(server, first | MARK) == (written, 0)
            again, more = self.use(server, first, second | MARK)
            assert (again, more > 1024) == (written, True)
            assert self.use(server, text("other"), second | MARK)[0] == 0

    def test_a_short_prefix_is_not_cached(self) -> None:
        with serve(after=lambda _: "ok") as server:
            assert [self.use(server, text("word") | MARK) for _ in range(2)] == [(0, 0), (0, 0)]

    @pytest.mark.parametrize(
        ("model", "is_cached"), [("claude-opus-4-5", False), ("claude-opus-5", True)]
    )
    def test_the_shortest_cached_prefix_is_that_of_the_model(
        self, model: str, *, is_cached: bool
    ) -> None:
        block = text("word " * 800) | MARK
        with serve(after=lambda _: "ok") as server:
            assert self.use(server, block, model=model)[1] > 0 if is_cached else True
            assert bool(self.use(server, block, model=model)[0]) is is_cached
