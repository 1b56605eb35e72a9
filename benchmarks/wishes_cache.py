"""Measure how many cache misses of scripted conversations are explained, and how many the tools cause.

    python -m benchmarks.wishes_cache

Each conversation has one known cause of misses: a clock in the system message, other instructions,
another model, a pause longer than the cache lasts, a provider that evicts, a compaction, pruned
results, tools that change at once. A miss counts as explained if its `CacheMissed` names that cause.
The provider is simulated: it keeps every prompt for five minutes and serves whole messages.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from promptkit import (
    ContextWindow,
    Message,
    PromptElement,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    Usage,
    component,
)
from promptkit.agent import Conversation
from promptkit.compaction import CacheMissed, Events, ReduceToolResults
from promptkit.providers import Reply
from promptkit.testing import WordTokenizer, summary_answer
from promptkit.tokens import ContextBudget
from promptkit.tokens.tokenizer import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit import Child, Sizing
    from promptkit.agent import ConversationView
    from promptkit.compaction import Event

TOKENIZER = WordTokenizer()

TTL = 300.0
"""Seconds for which the simulated provider keeps a prompt."""

TURNS = 12

RULES = " ".join(f"rule{number}" for number in range(1_500))
"""Instructions that are long enough for a provider's cache."""


@attrs.define
class CachingModel:
    """A model with a prompt cache, that answers every request with the same words, and requests for summaries with a summary."""

    name: str = "model-a"
    clock: Callable[[], float] = lambda: 0.0
    evicts: Callable[[int], bool] = lambda _: False
    """Returns whether the cache is emptied before a request, by its number from 0."""
    _sent: list[tuple[float, Sequence[ToolDefinition], Sequence[Message]]] = attrs.field(
        factory=list[tuple[float, "Sequence[ToolDefinition]", "Sequence[Message]"]]
    )
    _count: int = 0

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Answer, and count what the cache serves."""
        if "summary" in messages[-1].text:
            return Reply(
                message=Message(role="assistant", content=summary_answer("It was long.")),
                usage=Usage(input_tokens=1_000, output_tokens=50),
                finish="stop",
            )
        now, served = self.clock(), 0
        if self.evicts(self._count):
            self._sent.clear()
        for sent_at, own_tools, own in self._sent:
            if now - sent_at <= TTL and tuple(own_tools) == tuple(tools):
                served = max(served, self._count_common(own, messages, tools))
        size = self._overhead(tools) + sum(count_message(each, TOKENIZER) for each in messages)
        self._sent.append((now, tools, messages))
        self._count += 1
        return Reply(
            message=Message(role="assistant", content="Done."),
            usage=Usage(input_tokens=size, output_tokens=2, cached_tokens=served),
            finish="stop",
        )

    def _overhead(self, tools: Sequence[ToolDefinition]) -> int:
        return TOKENIZER.count_overhead(tools, system=True).tokens

    def _count_common(
        self, own: Sequence[Message], messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> int:
        tokens = self._overhead(tools)
        for one, other in zip(own, messages, strict=False):
            if one != other:
                break
            tokens += count_message(other, TOKENIZER)
        return tokens


@attrs.define
class Talk:
    """A scripted conversation: a window, its clock, and its misses, of which some are explained."""

    cause: str
    """The known cause of its misses, as `CacheMissed.cause` names it."""
    now: float = 0.0
    told: list[CacheMissed] = attrs.field(factory=list[CacheMissed])
    misses: int = 0
    """Requests that read less than the request before could have left."""
    explained: int = 0
    """The misses of which the known cause was told."""
    _last_input: int = 0
    window: ContextWindow = attrs.field(init=False)

    def open(self, **settings: Any) -> Talk:  # noqa: ANN401  # Any: the arguments of a window
        """Open the window with a model of its own."""
        given: dict[str, Any] = {
            "instructions": RULES,
            "events": Events(self._note),
            "budget": ContextBudget(window=60_000, reserved_output_tokens=0),
        }
        self.window = ContextWindow(
            model=settings.pop("model", None) or self.make_model(),
            tokenizer=TOKENIZER,
            clock=lambda: self.now,
            rng=lambda: 0.5,
            **given | settings,
        )
        return self

    def make_model(self, name: str = "model-a") -> CachingModel:
        """Return a model with an empty cache that has the clock of the conversation."""
        return CachingModel(name=name, clock=lambda: self.now)

    def _note(self, event: Event) -> None:
        if isinstance(event, CacheMissed):
            self.told.append(event)

    async def turn(self, *messages: Message) -> None:
        """Send messages, and take the reply."""
        self.window.add(*(messages or (Message(role="user", content="Go on with the next part."),)))
        request = await self.window.request()
        told = len(self.told)
        reply = await self.model.complete(request.messages, tools=request.tools)
        self.window.add_reply(reply)
        if reply.usage.cached_tokens < self._last_input:
            self.misses += 1
            self.explained += any(self.cause in each.cause for each in self.told[told:])
        self._last_input = reply.usage.input_tokens
        self.now += 10.0

    async def read(self, number: int, *, words: int = 900, path: str | None = None) -> None:
        """Let the model call a tool that returns so many words."""
        call = ToolCall(
            id=f"c{number}", name="read_file", arguments={"path": path or f"{number}.md"}
        )
        self.window.add(
            Message(role="user", content=f"Read part {number}."),
            Message(role="assistant", tool_calls=(call,)),
        )
        text = " ".join(f"line{number}-{at}" for at in range(words))
        await self.turn(Message(role="tool", tool_call_id=call.id, content=text))

    @property
    def model(self) -> CachingModel:
        """The model that answers."""
        model = self.window.model
        if not isinstance(model, CachingModel):
            raise TypeError(model)
        return model


@component
class Clock(PromptElement):
    """Tell the time, which breaks the prefix at each request."""

    now: float

    def render(self, sizing: Sizing) -> Child:
        """Return the time."""
        _ = sizing
        return f"It is {self.now:.0f} seconds past noon. "


async def other_instructions() -> Talk:
    """Change the instructions after each third turn."""
    rules = [RULES]

    def prompt(view: ConversationView) -> Child:
        return SystemMessage()[rules[0]], Conversation(view=view)

    talk = Talk("prompt").open(instructions=None, prompt=prompt)
    for number in range(TURNS):
        await talk.turn()
        if number % 3 == 2:  # each third turn
            rules[0] = f"{RULES} and rule {number}"
    return talk


async def clock_in_system_message() -> Talk:
    """Tell the time in the system message."""
    talk = Talk("prompt")

    def prompt(view: ConversationView) -> Child:
        return (
            SystemMessage()[Clock(now=talk.now), RULES],
            Conversation(view=view),
        )

    talk.open(instructions=None, prompt=prompt)
    for _ in range(TURNS):
        await talk.turn()
    return talk


async def other_model() -> Talk:
    """Switch between two models of which each has a cache of its own."""
    talk = Talk("model").open()
    budget = talk.window.budget
    for number in range(TURNS):
        await talk.turn()
        if number % 4 == 3:  # each fourth turn
            talk.window.set_model(talk.make_model(f"model-{number}"), budget=budget)
    return talk


async def long_pauses() -> Talk:
    """Wait longer than the cache lasts."""
    talk = Talk("expired").open()
    for number in range(TURNS):
        await talk.turn()
        talk.now += TTL + 60 if number % 3 == 2 else 0  # each third turn
    return talk


async def eviction() -> Talk:
    """Let the provider drop what it was sent a moment before."""
    talk = Talk("provider").open()
    talk.model.evicts = lambda number: number in {4, 7, 9}
    for _ in range(TURNS):
        await talk.turn()
    return talk


async def compaction() -> Talk:
    """Outgrow the window."""
    talk = Talk("compaction").open(budget=ContextBudget(window=9_000, reserved_output_tokens=0))
    for number in range(2 * TURNS):
        await talk.read(number)
        await talk.window.wait_idle()
    return talk


async def pruning() -> Talk:
    """Read the same files again in a large request, so that their earlier results are replaced."""
    reduce = ReduceToolResults(least_saving=3_000, protect_tokens=4_000, warm_ratio=0.1)
    talk = Talk("pruning").open(reduce=reduce)
    for number in range(2 * TURNS):
        await talk.read(number, path=f"{number % 3}.md")
    return talk


def make_tools(*names: str) -> list[ToolDefinition]:
    """Return tools of these names."""
    return [ToolDefinition(name=name, description=f"Do {name}.") for name in names]


async def tools_at_once() -> Talk:
    """Add a tool after each third turn, and let the next request offer it."""
    names = ["read_file"]
    talk = Talk("added").open(tools=make_tools(*names), freeze_tools=False)
    for number in range(TURNS):
        await talk.turn()
        if number % 3 == 2:
            names.append(f"tool_{number}")
            talk.window.set_tools(make_tools(*names))
    return talk


async def changing_tools(*, freeze_tools: bool = True) -> Talk:
    """Add, remove and reorder tools between turns, with the default settings, over a pause and compactions."""
    talk = Talk("compaction").open(
        tools=make_tools("read_file", "grep"),
        freeze_tools=freeze_tools,
        budget=ContextBudget(window=9_000, reserved_output_tokens=0),
    )
    lists = (("read_file",), ("read_file", "search_web"), ("search_web", "read_file", "grep"))
    for number in range(3 * TURNS):
        await talk.read(number)
        talk.window.set_tools(make_tools(*lists[number % 3]))
        await talk.window.wait_idle()
        talk.now += TTL + 60 if number == TURNS else 0
    return talk


SCENARIOS = (
    tools_at_once,
    other_instructions,
    clock_in_system_message,
    other_model,
    long_pauses,
    eviction,
    compaction,
    pruning,
)
"""The conversations whose misses are to be explained."""


async def prefix_breaks(*, freeze_tools: bool = True) -> int:
    """Return how often a change of the tools broke a prefix that the cache held, and that no compaction broke."""
    told = (await changing_tools(freeze_tools=freeze_tools)).told
    return sum(
        each.reason == "changed" and each.block == "tools" and "compaction" not in each.cause
        for each in told
    )


async def explained_share() -> float:
    """Return the share of cache misses whose known cause was told, over all scenarios."""
    talks = [await scenario() for scenario in SCENARIOS]
    return sum(talk.explained for talk in talks) / sum(talk.misses for talk in talks)


async def measure() -> dict[str, object]:
    """Return the figures, with those of each scenario."""
    rows: dict[str, object] = {}
    for scenario in SCENARIOS:
        talk = await scenario()
        rows[scenario.__name__] = {
            "misses": talk.misses,
            "explained": talk.explained,
            "told_without_a_miss": len(talk.told) - talk.misses,
            "told": dict(Counter(told.describe() for told in talk.told)),
        }
    return {
        "cache_misses_explained_share": round(await explained_share(), 4),
        "prefix_breaks_by_tool_changes": await prefix_breaks(),
        "conversations": rows,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
