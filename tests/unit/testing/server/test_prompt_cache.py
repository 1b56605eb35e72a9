"""What an earlier request began with is cached: in steps of 128 tokens from 1,024, and within one scope."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from promptkit import ToolCall, UserMessage, render
from promptkit.messages import Message, ToolDefinition
from promptkit.testing.server import serve, server as server_module
from promptkit.testing.server.journal import convert_to_chat
from promptkit.testing.server.server import PromptCaches, encode_prompt
from promptkit.tokens import tokenizer_for
from promptkit.tokens.request import count_request
from promptkit.wire import to_chat, to_responses, tools_to_chat, tools_to_responses
from tests.examples import examples
from tests.unit.testing.server.posting import chat, post, responses

# some 2,000 tokens
SYSTEM = {"role": "system", "content": " ".join(f"rule{number}" for number in range(700))}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def of(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4.1", "messages": list(messages), **more}


def common(first: dict[str, Any], second: dict[str, Any]) -> int:
    """The tokens that two requests begin with, by comparing them one by one."""
    count = 0
    for one, other in zip(encode_prompt(first), encode_prompt(second), strict=False):
        if one != other:
            break
        count += 1
    return count


class TestThePrompt:
    """What is cached is measured in the tokens that are billed."""

    @pytest.mark.parametrize(
        "messages",
        [
            [user("Hello.")],
            [
                SYSTEM,
                user("Fix größe.py 👩‍👩‍👧"),
                {"role": "assistant", "content": "Done."},
                user("<|endoftext|>"),
            ],
            [{"role": "user", "content": "x", "name": "ada"}],
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image_url",
                            "image_url": {"url": "https://example.org/a.png", "detail": "low"},
                        }
                    ],
                }
            ],
        ],
    )
    def test_has_the_tokens_that_are_counted(self, messages: list[dict[str, Any]]) -> None:
        assert len(encode_prompt(of(*messages))) == count_request(of(*messages)).tokens

    def test_has_the_tokens_that_are_counted_with_calls_and_results(self) -> None:
        call = ToolCall(
            id="c1", name="read_file", arguments='{"path": "src/parser.py", "line": 12}'
        )
        round_ = [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", tool_call_id="c1", content=("x = 1",)),
        ]
        both = [Message(role="assistant", content=("Look.",), tool_calls=(call, call)), *round_[1:]]
        for messages in (round_, both, [*round_, *round_]):
            request = of(*to_chat(messages))
            assert len(encode_prompt(request)) == count_request(request).tokens

    def test_is_one_for_both_apis(self) -> None:
        call = ToolCall(id="c1", name="read", arguments="{}")
        messages = [
            Message(role="user", content=("Read it.",)),
            Message(role="assistant", content=("I do.",), tool_calls=(call,)),
            Message(role="tool", tool_call_id="c1", content=("x = 1",)),
            Message(
                role="assistant",
                tool_calls=(call, ToolCall(id="c2", name="read", arguments='{"a": 1}')),
            ),
            Message(role="tool", tool_call_id="c1", content=("x = 2",)),
            Message(role="tool", tool_call_id="c2", content=("x = 3",)),
        ]
        offered = [ToolDefinition(name="read", description="Reads.", parameters={"type": "object"})]
        asked: Any = {
            "model": "gpt-4.1",
            "input": to_responses(messages),
            "tools": tools_to_responses(offered),
        }
        written: Any = {
            "model": "gpt-4.1",
            "messages": to_chat(messages),
            "tools": tools_to_chat(offered),
        }
        assert encode_prompt(convert_to_chat(asked)) == encode_prompt(written)
        assert count_request(convert_to_chat(asked)) == count_request(written)

    def test_begins_with_the_tools(self) -> None:
        tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
        assert common(of(SYSTEM, tools=tools[:1]), of(SYSTEM, tools=tools)) < 50

    def test_an_image_is_another_with_another_url(self) -> None:
        def image(url: str) -> dict[str, Any]:
            return {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}],
            }

        assert common(of(image("a")), of(image("a"))) == len(encode_prompt(of(image("a"))))
        assert common(of(image("a")), of(image("b"))) < 10


class TestTheRule:
    @settings(max_examples=examples(60))
    @given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=6))
    def test_is_the_longest_common_prefix_with_any_earlier_request_in_steps(
        self, requests: list[list[int]]
    ) -> None:
        asked = [of(*(user(f"{number} " * 450) for number in numbers)) for numbers in requests]
        cache = PromptCaches()
        for place, request in enumerate(asked):
            longest = max((common(earlier, request) for earlier in asked[:place]), default=0)
            assert cache.read("scope", request) == (longest // 128 * 128 if longest >= 1024 else 0)

    def test_begins_at_1024(self) -> None:
        cache = PromptCaches()
        for more, cached in ((0, 0), (0, 0), (1, 0), (1, 1024)):
            request = of(user(("word " * (1016 + more)).strip()))
            assert len(encode_prompt(request)) == 1023 + more
            assert cache.read("scope", request) == cached

    def test_scopes_do_not_share(self) -> None:
        cache = PromptCaches()
        assert [cache.read(scope, of(SYSTEM)) > 0 for scope in ("a", "b", "a", "b")] == [
            False,
            False,
            True,
            True,
        ]

    def test_what_was_not_met_for_longest_is_forgotten_from_its_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server_module, "MAX_BLOCKS", 40)
        first, second, third = (
            of({"role": "system", "content": f"{number} " * 1000}) for number in range(3)
        )
        assert len(encode_prompt(first)) // 128 == 15
        cache = PromptCaches()
        assert [
            cache.read("scope", request) // 128 for request in (first, second, first, third)
        ] == [0, 0, 15, 0]
        assert cache.read("scope", first) // 128 == 15
        assert cache.read("scope", second) // 128 == 10


class TestOverHttp:
    @pytest.mark.parametrize("ask", [chat, responses])
    def test_what_is_cached_is_said(self, ask: Any) -> None:
        with serve(after=lambda exchange: "ok") as server:
            first, second = (
                ask(server, SYSTEM, user(text)).body["usage"] for text in ("one", "two")
            )
            assert server.stats.cached_tokens == cached(second) > 1024
            assert (server.stats.input_tokens, server.stats.cached_share) == (
                sum(exchange.usage.input_tokens for exchange in server.requests if exchange.usage),
                cached(second) / server.stats.input_tokens,
            )
        assert cached(first) == 0

    @pytest.mark.parametrize(
        "change",
        [
            {"model": "gpt-4o"},
            {"prompt_cache_key": "other"},
            {"tools": [{"type": "function", "function": {"name": "read"}}]},
        ],
        ids=str,
    )
    def test_another_scope_or_other_tools_have_nothing_cached(self, change: dict[str, Any]) -> None:
        with serve(after=lambda exchange: "ok") as server:
            chat(server, SYSTEM)
            assert cached(chat(server, SYSTEM, **change).body["usage"]) == 0

    def test_another_key_of_the_api_has_nothing_cached(self) -> None:
        with serve(after=lambda exchange: "ok") as server:
            for key in ("a", "b", "a"):
                body = {"model": "gpt-4.1", "messages": [SYSTEM]}
                last = post(
                    server, "/chat/completions", body, headers={"Authorization": f"Bearer {key}"}
                ).body["usage"]
                assert (cached(last) > 0) is (len(server.requests) == 3)

    @pytest.mark.parametrize(
        "same", [{"temperature": 0}, {"max_completion_tokens": 5}, {"stream": False}], ids=str
    )
    def test_what_is_not_read_by_the_model_does_not_matter(self, same: dict[str, Any]) -> None:
        with serve(after=lambda exchange: "ok") as server:
            chat(server, SYSTEM)
            assert cached(chat(server, SYSTEM, **same).body["usage"]) > 1024

    def test_a_conversation_that_only_grows_pays_for_what_is_new(self) -> None:
        messages = [SYSTEM]
        with serve(after=lambda exchange: "word " * 50) as server:
            for number in range(20):
                messages.append(user(f"question {number}"))
                messages.append(chat(server, *messages).body["choices"][0]["message"])
            sizes = [exchange.usage for exchange in server.requests if exchange.usage]
            assert server.stats.invalid == 0
        for before, after in pairwise(sizes):
            assert before.input_tokens - after.cached_tokens < 128
        assert (
            sum(usage.cached_tokens for usage in sizes) / sum(usage.input_tokens for usage in sizes)
            > 0.9
        )

    def test_a_refused_request_caches_nothing(self) -> None:
        with serve(window=2000, after=lambda exchange: "ok") as server:
            assert chat(server, SYSTEM, max_completion_tokens=1000).status == 400
            assert cached(chat(server, SYSTEM).body["usage"]) == 0
            assert cached(chat(server, SYSTEM).body["usage"]) > 0

    def test_a_rendered_prompt_is_billed_as_it_was_rendered(self) -> None:
        rendered = render(UserMessage()["Hello there, how are you?"], budget=1000, model="gpt-4o")
        with serve(after=lambda exchange: "Fine.") as server:
            usage = post(
                server, "/chat/completions", {"model": "gpt-4o", "messages": rendered.to_chat()}
            ).body["usage"]
        assert usage["prompt_tokens"] == rendered.tokens
        assert usage["completion_tokens"] == tokenizer_for("gpt-4o").count("Fine.")


def cached(usage: Any) -> int:
    return int(
        usage.get("prompt_tokens_details", usage.get("input_tokens_details"))["cached_tokens"]
    )
