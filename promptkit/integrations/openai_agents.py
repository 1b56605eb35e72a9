"""OpenAI Agents: input filters that make each request fit, and a session whose items are kept in a transcript.

>>> config = RunConfig(call_model_input_filter=fit_input_filter())
>>> await Runner.run(agent, "Review the parser.", session=TranscriptSession(session_id="talk", transcript=Transcript(JsonlStore("talk.jsonl"))), run_config=config)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import attrs

from promptkit.agent.settings import WindowSettings
from promptkit.compaction import Events, Preset, Summarizer
from promptkit.integrations.windows import (
    MAX_THREADS,
    Budget,
    Counting,
    ModelFacts,
    RequestFitter,
    ThreadWindows,
)
from promptkit.messages import Message, ToolDefinition, as_wire_object, copy_json
from promptkit.providers import Model
from promptkit.reprs import describe
from promptkit.tokens import NamedModel, Tokenizer
from promptkit.transcript import CustomEntry, Transcript
from promptkit.wire.responses import group_responses, to_responses

try:
    from agents import (
        Agent,
        FunctionTool,
        Handoff,
        RunContextWrapper,
        TResponseInputItem,
        handoff as make_handoff,
    )
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
    from agents.models.default_models import get_default_model
    from agents.run_config import CallModelData, ModelInputData
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.openai_agents needs the OpenAI Agents SDK: run `pip install 'openai-agents>=0.24'`, or "
        "`pip install '.[openai-agents]'` in a checkout of promptkit."
    ) from error

Data: TypeAlias = CallModelData[Any]  # Any: the program's context
Filter: TypeAlias = Callable[[Data], Awaitable[ModelInputData]]
Item: TypeAlias = dict[str, Any]  # Any: JSON

__all__ = ["TranscriptSession", "compaction_input_filter", "fit_input_filter"]

_ITEM, _POP, _CLEAR = "openai_agents.item", "openai_agents.pop", "openai_agents.clear"
"""The names of a session's entries in its transcript."""


def fit_input_filter(
    *,
    budget: Budget = None,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    keep: Literal["newest", "oldest"] = "newest",
    shorten: bool = True,
) -> Filter:
    """Return a filter that makes each request fit a token budget: long outputs are shortened, then the oldest rounds are left out.

    The run and its session keep all items. Items that did not change are the same objects, and
    shortened outputs are copies with the same `call_id`. A call leaves together with its output,
    and with the reasoning that led to it.

    >>> RunConfig(call_model_input_filter=fit_input_filter(budget="64k"))

    Args:
        budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
            ContextBudget. Default: the context window of the agent's model less the tokens reserved
            for the reply.
        model: The name by which the model is counted. Default: that of the agent's model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        keep: Which of the older rounds stay longest.
        shorten: Whether messages may be shortened. Otherwise rounds are kept whole, or left out.

    Returns:
        A function for `RunConfig.call_model_input_filter`, for any number of runs.
    """
    return _FitFilter(
        RequestFitter(
            budget=budget,
            model=model,
            tokenizer=tokenizer,
            keep=keep,
            shorten=shorten,
            format="responses",
            rebuild=_rebuild,
        )
    )


def compaction_input_filter(  # noqa: PLR0913  # what a window is made of, each with a default
    *,
    model: str | NamedModel | None = None,
    summarizer: Summarizer | Model | None = None,
    preset: str | Preset = "vscode",
    budget: Budget = None,
    tokenizer: Tokenizer | None = None,
    events: Events | None = None,
    thread: Callable[[Data], str] | None = None,
    transcripts: Callable[[str], Transcript] | None = None,
    max_threads: int = MAX_THREADS,
) -> Filter:
    """Return a filter that keeps conversations within the context window: older items are summarized as promptkit's presets do.

    The run and its session keep all items. Requests show the summaries; items that did not change
    are the same objects.

    The SDK does not tell a filter which conversation it is called for. Use one filter for each
    conversation, or tell them apart with `thread`. Conversations that share a window stay correct,
    since they become branches of one transcript, but are slower.

    >>> RunConfig(call_model_input_filter=compaction_input_filter(summarizer=OpenAIModel("gpt-4.1-mini")))

    Args:
        model: The name by which the model is counted. Default: that of the agent's model.
        summarizer: Who writes the summaries: a promptkit model, or a Summarizer. Default: they are
            extracted without a model. It is called in an event loop of its own, so give it a client
            that nothing else uses.
        preset: How conversations are compacted: a name in `promptkit.compaction.PRESETS`, or a
            `Preset`.
        budget: What requests may take, in tokens. Default: what is known of the agent's model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        events: Receive what is decided and done.
        thread: Returns the name of the conversation, for example from `data.context`.
        transcripts: Returns the transcript of a conversation, other than that of a
            TranscriptSession. Default: transcripts in memory.
        max_threads: The most conversations whose windows are kept open. The one that was used least
            recently is closed first.

    Returns:
        A function for `RunConfig.call_model_input_filter`.
    """
    return _CompactionFilter(
        ThreadWindows(
            budget=budget,
            model=model,
            settings=WindowSettings(
                preset=preset, summarizer=summarizer, tokenizer=tokenizer, events=events
            ),
            transcripts=transcripts,
            max_threads=max_threads,
        ),
        thread,
    )


async def _read_facts(data: Data, counting: Counting) -> ModelFacts:
    """Return what a request has besides its items."""
    return ModelFacts(
        model=_find_name(data.agent) if counting.model is None else counting.model,
        budget=counting.budget,
        instructions=data.model_data.instructions or None,
        tools=await _read_tools(data.agent, data.context),
    )


@attrs.frozen
class _FitFilter:
    fitter: RequestFitter[Item]

    def __repr__(self) -> str:
        return self.fitter.describe(self, keep=self.fitter.keep)

    async def __call__(self, data: Data) -> ModelInputData:
        items = cast("Sequence[Item]", data.model_data.input)  # a union of TypedDicts
        fitted = self.fitter.fit(items, await _read_facts(data, self.fitter))
        return _to_input(fitted.messages, data)


@attrs.frozen
class _CompactionFilter:
    windows: ThreadWindows
    thread: Callable[[Data], str] | None

    def __repr__(self) -> str:
        return self.windows.describe(self, windows=self.windows, thread=self.thread)

    async def __call__(self, data: Data) -> ModelInputData:
        items = cast("Sequence[Item]", data.model_data.input)  # a union of TypedDicts
        groups = group_responses(items)
        issued = await self.windows.loop.wait_async(
            partial(
                self.windows.request,
                "" if self.thread is None else self.thread(data),
                await _read_facts(data, self.windows),
                [message for message, _ in groups],
                [tuple(items[at] for at in indices) for _, indices in groups],
                end_turns=True,
            )
        )
        return _to_input(
            [
                item
                for each in issued.show(_rebuild_group)
                for item in (each if isinstance(each, tuple) else _write(each))
            ],
            data,
        )


@attrs.define(kw_only=True, eq=False, repr=False)
class TranscriptSession:
    """A session of OpenAI Agents whose items are kept in a transcript, word for word: ids and encrypted reasoning included.

    The transcript is for the session alone. Nothing is deleted from it: `pop_item` and
    `clear_session` are recorded, too.

    >>> session = TranscriptSession(session_id="talk", transcript=Transcript(JsonlStore("talk.jsonl")))
    >>> await Runner.run(agent, "Review the parser.", session=session)

    Args:
        session_id: The name of the conversation.
        transcript: Where the items are kept.
        session_settings: The SDK's settings, such as the most items that a run reads.
    """

    session_id: str
    transcript: Transcript
    session_settings: SessionSettings | None = None

    def __repr__(self) -> str:
        return describe(self, session_id=self.session_id, transcript=self.transcript)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, the oldest first; with a limit the latest ones."""
        items = self._read_items()
        most = resolve_session_limit(limit, self.session_settings)
        # the SDK's own sessions read a negative limit as none
        return items if most is None or most < 0 else items[max(0, len(items) - most) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items. They are on the disk when this returns."""
        if items:
            await self._append(
                *(CustomEntry(name=_ITEM, data=as_wire_object(item)) for item in items)
            )

    async def pop_item(self) -> TResponseInputItem | None:
        """Take back the latest item, and return it; None if there is none."""
        items = self._read_items()
        if not items:
            return None
        await self._append(CustomEntry(name=_POP))
        return items[-1]

    async def clear_session(self) -> None:
        """Take back all items."""
        await self._append(CustomEntry(name=_CLEAR))

    def _read_items(self) -> list[TResponseInputItem]:
        items: list[TResponseInputItem] = []
        for entry in self.transcript.path():
            match entry.payload:
                case CustomEntry(name=name, data=data) if name == _ITEM:
                    # as `add_items` was given it
                    items.append(cast("TResponseInputItem", copy_json(data)))
                case CustomEntry(name=name) if name == _POP:
                    del items[-1:]
                case CustomEntry(name=name) if name == _CLEAR:
                    items.clear()
                case _:
                    continue
        return items

    async def _append(self, *entries: CustomEntry) -> None:
        await asyncio.to_thread(self.transcript.append, *entries)


def _find_name(agent: Agent[Any]) -> str:  # Any: the program's context
    model = agent.model
    name: object = get_default_model() if model is None else getattr(model, "model", model)
    return name if isinstance(name, str) else type(model).__name__


async def _read_tools(agent: Agent[Any], context: Any) -> tuple[ToolDefinition, ...]:  # noqa: ANN401  # the program's context
    """Return the definitions of an agent's tools and handoffs.

    Those of tools that the provider runs are not known.
    """
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters=tool.params_json_schema,
            strict=tool.strict_json_schema,
        )
        for tool in await agent.get_all_tools(RunContextWrapper(context))
        if isinstance(tool, FunctionTool)
    ]
    handoffs = [
        ToolDefinition(
            name=each.tool_name,
            description=each.tool_description,
            parameters=each.input_json_schema,
            strict=each.strict_json_schema,
        )
        for handoff in agent.handoffs
        for each in [handoff if isinstance(handoff, Handoff) else make_handoff(handoff)]
    ]
    return tuple({each.name: each for each in (*tools, *handoffs)}.values())


def _rebuild(original: Item, shortened: Any) -> Item:  # noqa: ANN401  # JSON, as the SDK has it
    """Return a copy of an item with its shortened text or arguments, and the id of its call."""
    return {
        **original,
        **{
            name: shortened[name]
            for name in ("content", "output", "call_id", "arguments")
            if name in shortened
        },
    }


def _rebuild_group(group: tuple[Item, ...], message: Message) -> tuple[Item, ...]:
    """Return the items of a message that was changed: a copy of an output, and new items for the others."""
    written = _write(message)
    return (_rebuild(group[0], written[0]),) if message.role == "tool" else tuple(written)


def _write(message: Message) -> list[Item]:
    return to_responses([message], cache=False)


def _to_input(items: Sequence[object], data: Data) -> ModelInputData:
    return ModelInputData(
        input=cast("list[TResponseInputItem]", list(items)),  # the SDK's own, and copies of them
        instructions=data.model_data.instructions,
    )
