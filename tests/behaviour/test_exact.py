"""The tokens that a render reports equal an independent count of the emitted request, with plain tiktoken and the published framing.

The framing is that of OpenAI's cookbook ("How to count tokens with tiktoken"), for tool calls that
of https://github.com/n0isy/openai-tokens-count. Anthropic publishes none, so there the content is
compared, and the framing is the same.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import assume, given, note, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Document,
    Image,
    PromptElement,
    Rendered,
    SystemMessage,
    Text,
    TextChunk,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    ToolRound,
    UserMessage,
    count_request,
    render,
)
from promptkit.elements import IfEmpty, Opaque
from promptkit.elements.element import flatten
from promptkit.testing import strategies
from promptkit.tokens import Count, OpenAITokenizer, Tokenizer, tokenizer_for
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.tokenizer import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit import Child, Message
    from promptkit.messages import Json
    from promptkit.wire.parts import WireFormat

AMPLE = 1_000_000
SHARES = st.sampled_from((0.0, 0.2, 0.5, 0.8, 0.95, 1.0))
TOKENIZERS = {name: OpenAITokenizer(name) for name in ("o200k_base", "cl100k_base")}
MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)

IMAGE_OF_ANY_SIZE = 85 + 8 * 170  # the base and the most tiles that an image has
DOCUMENT = 3  # as the generated documents say
OPAQUE = 2


@attrs.frozen
class Recount:
    """Counts requests with plain tiktoken."""

    encoding: str

    def text(self, text: str) -> int:
        return len(get_encoding(self.encoding).encode_ordinary(text))

    def frame(self, role: str, name: str | None = None) -> int:
        if role == "tool":
            return 2 + self.text(role)
        return 3 + self.text(role) + (1 + self.text(name) if name else 0)

    def calls(self, calls: Sequence[tuple[str, str]]) -> int:
        """Tool calls of one message: (name, arguments)."""
        compact = [
            (name, json.dumps(json.loads(arguments), separators=(",", ":")))
            for name, arguments in calls
        ]
        return sum(
            10 + 2 * self.text(name) + self.text(arguments) for name, arguments in compact
        ) + 9 * (len(calls) > 1)

    def content(self, content: Any) -> int:  # Any: JSON
        """The content of a message in any of the three formats."""
        return (
            self.text(content or "")
            if content is None or isinstance(content, str)
            else sum(map(self.part, content))
        )

    def part(self, part: Any) -> int:  # Any: JSON
        kind = part["type"]
        if kind in {"text", "input_text", "output_text"}:
            return self.text(part["text"])
        if kind in {"image_url", "input_image", "image"}:
            return IMAGE_OF_ANY_SIZE
        if kind in {"file", "input_file", "document"}:
            return DOCUMENT
        if kind == "tool_result":
            return self.content(part.get("content"))
        if kind == "tool_use":
            return 0  # counted with the other calls of its message
        return OPAQUE

    def chat(self, made: Rendered, *, cache: bool) -> int:
        tokens = 0
        sent = made.to_chat(cache=cache)
        for message in sent:
            calls = [
                (call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", ())
            ]
            tokens += self.content(message["content"]) + self.calls(calls)
            if not calls or message["content"]:
                tokens += self.frame(message["role"], message.get("name"))
        return tokens + 3 * bool(sent)

    def responses(self, made: Rendered, *, cache: bool) -> int:
        tokens = 0
        sent = made.to_responses(cache=cache)
        calls: list[tuple[str, str]] = []
        for item in sent:
            if item["type"] == "function_call":
                calls.append((item["name"], item["arguments"]))
                continue
            tokens += self.calls(calls)
            calls = []
            result = item["type"] == "function_call_output"
            tokens += (
                self.frame("tool") + self.content(item["output"])
                if result
                else self.frame(item["role"]) + self.content(item["content"])
            )
        return tokens + self.calls(calls) + 3 * bool(sent)

    def anthropic(self, made: Rendered, *, cache: bool) -> int:
        sent = made.to_anthropic(cache=cache)
        blocks = [
            *sent.get("system", ()),
            *(block for turn in sent["messages"] for block in turn["content"]),
        ]
        framing = sum(self._frame_of(message) for message in made.messages) + 3 * bool(
            made.messages
        )
        blank = sum(
            self.text(part)
            for message in made.messages
            for part in message.content
            if isinstance(part, str) and not part.strip()
        )
        return framing + self.content(blocks) + blank  # the format has no blank texts

    def _frame_of(self, message: Message) -> int:
        calls = self.calls([(call.name, call.arguments) for call in message.tool_calls])
        return calls + (self.frame(message.role) if message.text or not calls else 0)


def adapt(
    child: Child, *, provider: str | None = None, role: type[PromptElement] | None = None
) -> Child:
    """A generated tree that every format takes: media in user messages only, arguments of calls, and opaque parts of one provider."""
    if not isinstance(child, PromptElement):
        return (
            [adapt(each, provider=provider, role=role) for each in flatten(child, "adapt")]
            if isinstance(child, list | tuple)
            else child
        )
    if isinstance(child, Image | Document | Opaque) and role is not UserMessage:
        child = Text(priority=child.priority, required=child.required, fallback=child.fallback)[
            "media"
        ]
    elif isinstance(child, Opaque):
        child = child.replace(value={"type": "input_audio"}, provider=provider)
    role = next((each for each in MESSAGES if isinstance(child, each)), role)
    # Any stands for props
    changes: dict[str, Any] = {
        "children": flatten(adapt(child.children, provider=provider, role=role), "adapt")
    }
    if child.fallback is not None:
        changes["fallback"] = adapt(child.fallback, provider=provider, role=role)
    if isinstance(child, AssistantMessage):
        changes["tool_calls"] = tuple(map(with_arguments, child.tool_calls))
    elif isinstance(child, IfEmpty):
        changes["alt"] = adapt(child.alt, provider=provider, role=role)
    elif isinstance(child, ToolRound):
        changes["calls"] = tuple(map(with_arguments, child.calls))
        changes["results"] = {
            key: adapt(each, provider=provider, role=ToolMessage)
            for key, each in child.results.items()
        }
        changes["text"] = adapt(child.text, provider=provider, role=AssistantMessage)
    return child.replace(**changes)


def with_arguments(call: ToolCall) -> ToolCall:
    return (
        attrs.evolve(call, arguments='{ "path": "src/a b.py", "line": 3 }')
        if int(call.id[1:]) % 2
        else call
    )


def at_share(prompt: Child, tokenizer: Tokenizer, share: float) -> Rendered:
    """A render at a share of what the whole prompt takes."""
    note(f"prompt = {prompt!r}")
    try:
        whole = render(prompt, budget=AMPLE, tokenizer=tokenizer)
        return render(
            prompt, budget=int((whole.tokens + whole.reserved) * share), tokenizer=tokenizer
        )
    except BudgetExceededError:
        assume(condition=False)
        raise


FORMATS: dict[WireFormat, Callable[..., int]] = {
    "chat": Recount.chat,
    "responses": Recount.responses,
    "anthropic": Recount.anthropic,
}


@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize(
    "encoding",
    [
        pytest.param(name, marks=[] if name == "o200k_base" else pytest.mark.slow)
        for name in TOKENIZERS
    ],
)
@given(prompt=strategies.prompts(), share=SHARES, provider=st.sampled_from((None, *FORMATS)))
def test_the_tokens_of_a_render_are_those_of_the_request_that_is_sent(
    *,
    encoding: str,
    target: WireFormat,
    cache: bool,
    prompt: Child,
    share: float,
    provider: str | None,
) -> None:
    made = at_share(adapt(prompt, provider=provider), TOKENIZERS[encoding], share)
    assert FORMATS[target](Recount(encoding), made, cache=cache) == made.count_tokens(target)
    assert made.count_tokens(target) <= made.tokens <= made.budget - made.reserved


@pytest.mark.parametrize("target", FORMATS)
@given(prompt=strategies.prompts(), share=SHARES)
def test_only_names_and_parts_of_other_providers_count_although_they_are_not_sent(
    target: WireFormat, prompt: Child, share: float
) -> None:
    made = at_share(adapt(prompt), TOKENIZERS["o200k_base"], share)
    if target == "chat" or not any(message.name for message in made.messages):
        assert made.count_tokens(target) == made.tokens


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(
    "message",
    [SystemMessage(), UserMessage(), AssistantMessage()],
    ids=lambda message: type(message).__name__,
)
def test_texts_around_a_cache_breakpoint_are_sent_as_they_are_counted(
    message: PromptElement, cache: bool
) -> None:
    made = render(message["alphabeti", CacheBreakpoint(), "cally"], budget=100)
    recount = Recount("o200k_base")
    assert {
        count(recount, made, cache=cache)
        for count in (Recount.chat, Recount.responses, Recount.anthropic)
    } == {made.tokens}


class Marks(Tokenizer):
    """Counts the marks of the generated texts and the tool calls: additive however texts are joined, and fallbacks count nothing."""

    def count(self, text: str) -> int:
        return len(re.findall(r"w\d+", text))

    def count_framing(
        self,
        role: str,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        _ = role, name, tool_call_id, text
        return Count(len(tool_calls))


@given(strategies.prompts(), SHARES)
def test_in_the_receipt_what_is_kept_and_what_was_removed_is_all(
    prompt: Child, share: float
) -> None:
    note(f"prompt = {prompt!r}")
    try:
        whole = render(prompt, budget=AMPLE, tokenizer=Marks())
        made = whole.at_budget(int((whole.tokens + whole.reserved) * share))
    except BudgetExceededError:
        assume(condition=False)
        raise
    assert kept_and_removed(made) == kept_and_removed(whole)


def kept_and_removed(made: Rendered) -> int:
    return made.tokens + sum(removal.tokens for removal in made.removals)


@pytest.mark.parametrize("line", [".", "!;", "!*"])
def test_a_line_break_costs_what_it_adds_to_the_line_that_it_ends(line: str) -> None:
    """`.` and a line break are one token together, `!*` and a line break one more than `!*`."""
    prompt = UserMessage(priority=1)[TextChunk(priority=9)[line], TextChunk(priority=8)["a"]]
    made = render(prompt, budget=100, model="gpt-4o", trace=True)
    assert made.tokens == count_request({"messages": made.to_chat(), "model": "gpt-4o"}).tokens


PARAMETERS: dict[str, Json] = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = ToolDefinition(name="read", parameters=PARAMETERS)
SENT: dict[str, Json] = {"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("priority", [None, 3])
@pytest.mark.parametrize("system", ["You help.", "You help!*"])
def test_with_tools_every_request_fits_the_budget_of_just_its_tokens(
    system: str, priority: int | None, trace: bool
) -> None:
    """With tools, the line break after the system message is counted: `.` and a line break are one token."""
    prompt = (
        SystemMessage(priority=priority)[system],
        AssistantMessage(priority=1)["one of many " * 5],
        AssistantMessage(priority=2)["another"],
        AssistantMessage(priority=4)["the last"],
        UserMessage(priority=5)["And now?"],
    )

    def at(budget: int) -> Rendered:
        return render(prompt, budget=budget, model="gpt-4o", tools=[READ], trace=trace)

    made = at(AMPLE)
    least = 1 if priority else 2
    for kept in range(5, least - 1, -1):
        assert len(made.messages) == kept
        assert at(made.tokens).messages == made.messages
        request: dict[str, Json] = {
            "model": "gpt-4o",
            "messages": made.to_chat(),
            "tools": [SENT],
        }
        assert made.tokens == count_request(request).tokens
        if kept > least:
            made = at(made.tokens - 1)
    with pytest.raises(BudgetExceededError) as caught:
        at(made.tokens - 1)
    assert caught.value.required == made.tokens
    labels = {"SystemMessage[0]", "UserMessage[4]"} if least == 2 else {"UserMessage[4]"}
    assert caught.value.largest.keys() == labels | {"tools"}


def test_with_tools_a_count_is_exact_without_a_system_message_too() -> None:
    made = render(UserMessage()["Hi"], budget=AMPLE, model="gpt-4o", tools=[READ])
    assert made.exact


@pytest.mark.parametrize("trace", [True, False])
def test_a_prompt_of_which_nothing_is_left_has_the_tokens_of_its_tools(trace: bool) -> None:
    prompt = AssistantMessage(priority=1)["one of many " * 30]
    overhead = tokenizer_for("gpt-4o").count_overhead([READ])
    for each in (
        render(prompt, budget=60, defaults="prompt-tsx", model="gpt-4o", tools=[READ], trace=trace),
        render((), budget=60, model="gpt-4o", tools=[READ], trace=trace),
    ):
        assert (each.messages, each.tokens) == ((), overhead.tokens)


@pytest.mark.parametrize("at", range(3))
def test_tool_calls_beside_parts_that_are_no_text_are_counted_without_one(at: int) -> None:
    tokenizer = tokenizer_for("gpt-4o")
    content: list[Child] = ["", TextChunk(priority=1)["a b"]]
    content.insert(at, Opaque(value={"type": "x"}, tokens=5))
    call = ToolCall(id="1", name="f")
    prompt = (
        AssistantMessage(priority=0)["old old old"],
        AssistantMessage(tool_calls=[call])[content],
        ToolMessage(tool_call_id="1")["r"],
        UserMessage()["q"],
    )
    whole = render(prompt, budget=AMPLE, tokenizer=tokenizer, trace=True)
    for budget in range(whole.tokens - 10, whole.tokens + 1):
        made = whole.at_budget(budget)
        counted = sum(count_message(message, tokenizer) for message in made.messages)
        assert made.tokens == tokenizer.count_overhead().tokens + counted
