"""LlamaIndex: a memory that gives agents and chat engines the messages that fit.

Its chat store keeps all messages.

>>> memory = WindowMemory.from_defaults(llm=llm, instructions=agent.system_prompt, tools=agent.tools)
>>> await agent.run("Review the parser.", memory=memory)
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast

import anyio.to_thread
import attrs
from pydantic import PrivateAttr

from promptkit.agent.settings import WindowSettings
from promptkit.compaction import Events, Preset, Summarizer
from promptkit.errors import InvalidArgumentError
from promptkit.fitting.fit import Fitted
from promptkit.integrations.windows import (
    MAX_THREADS,
    Budget,
    IssuedRequest,
    ModelFacts,
    RequestFitter,
    ThreadWindows,
    check_budget,
    find_overflow,
    knows_window,
    match_calls,
)
from promptkit.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    Usage,
    as_sequence,
    as_wire_object,
)
from promptkit.providers import Model, Reply
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget, NamedModel, Tokenizer
from promptkit.tokens.models import model_name
from promptkit.transcript import Transcript

try:
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ImageBlock,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.llms import LLM
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseChatStoreMemory
    from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
    from llama_index.core.tools import BaseTool, FunctionTool
    from llama_index.core.workflow import Context, WorkflowRuntimeError
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.llama_index needs LlamaIndex: run `pip install 'llama-index-core>=0.14.25'`, or "
        "`pip install '.[llama-index]'` in a checkout of promptkit."
    ) from error

__all__ = ["WindowMemory"]

Fields: TypeAlias = dict[str, Any]  # Any: JSON

_SCRATCHPAD: Final = "scratchpad"
"""The default of `scratchpad_key`: the key under which LlamaIndex's agents keep the calls and
results of the running turn."""

_ROLES: Final[dict[str, Literal["system", "user", "assistant", "tool"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}


class WindowMemory(BaseChatStoreMemory):
    """Keep all messages in a chat store, and give the model those that fit its window, or with `preset` a summary of the older ones.

    Messages that did not change are the chat store's own. Without `preset`, long messages are
    shortened and then the oldest rounds are left out, as `promptkit.fit` does; with it, the
    conversation has a `ContextWindow`. The calls and results of an agent's running turn are taken
    into the chat store as soon as they are there, so that a long turn fits, too.

    Make one with `from_defaults`. A copy with another `chat_store_key` is the memory of another
    conversation: `memory.model_copy(update={"chat_store_key": "b"})`. Copies share the windows, of
    which `max_threads` are kept open.

    >>> memory = WindowMemory.from_defaults(llm=llm, instructions="You review code.", tools=[read_file])
    """

    _facts: ModelFacts = PrivateAttr(
        default=ModelFacts(model="", budget=None, instructions=None, tools=())
    )
    _fitter: RequestFitter[ChatMessage] = PrivateAttr(
        default_factory=lambda: RequestFitter(convert=_read_message, rebuild=_rebuild)
    )
    _windows: ThreadWindows | None = PrivateAttr(default=None)
    _last: Fitted[ChatMessage] | IssuedRequest | None = PrivateAttr(default=None)

    def __repr__(self) -> str:
        return describe(
            self,
            key=self.chat_store_key,
            model=self._facts.model,
            budget=self._facts.budget,
            windows=self._windows,
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex saves the memory."""
        return "WindowMemory"

    @classmethod
    def from_defaults(  # noqa: PLR0913  # what a memory and a window are made of, each with a default
        cls,
        *,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        instructions: str | None = None,
        tools: Sequence[BaseTool | Callable[..., object]] | None = None,
        budget: Budget = None,
        model: str | NamedModel | None = None,
        tokenizer: Tokenizer | None = None,
        keep: Literal["newest", "oldest"] = "newest",
        shorten: bool = True,
        preset: str | Preset | None = None,
        summarizer: LLM | Summarizer | Model | None = None,
        events: Events | None = None,
        transcripts: Callable[[str], Transcript] | None = None,
        max_threads: int = MAX_THREADS,
    ) -> WindowMemory:
        """Make a memory.

        Args:
            chat_history: Messages to begin with.
            llm: The model that the agent asks. It gives the name and the window by which tokens are
                counted.
            chat_store: Where all messages are kept. Default: in memory.
            chat_store_key: The conversation.
            instructions: The agent's system prompt. It counts against the budget; the agent sends
                it.
            tools: The agent's tools. They count, too.
            budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
                ContextBudget. Default: the context window of the model less the tokens reserved for
                the reply.
            model: The name by which the model is counted. Default: that of `llm`.
            tokenizer: Counts the tokens. Default: the tokenizer of the model.
            keep: Which of the older rounds stay longest. Without `preset` only.
            shorten: Whether messages may be shortened. Without `preset` only.
            preset: How the conversation is compacted: a name in `promptkit.compaction.PRESETS`, or
                a `Preset`. Default: it is not; what does not fit is left out.
            summarizer: Who writes the summaries: a model of LlamaIndex, a promptkit model, or a
                Summarizer. Default: they are extracted from the messages without a model.
            events: Receive what is decided and done.
            transcripts: Returns the transcript of a conversation, such as
                `lambda key: Transcript(JsonlStore(f"{key}.jsonl"))`, so that summaries survive a
                restart. Default: transcripts in memory.
            max_threads: The most conversations whose windows are kept open. The one that was used
                least recently is closed first.

        Returns:
            The memory, for `memory=` of agents and chat engines.

        Raises:
            InvalidArgumentError: A setting of summaries is given without `preset`.
        """
        if preset is None and (summarizer, events, transcripts) != (None, None, None):
            raise InvalidArgumentError(
                'summarizer, events and transcripts are settings of summaries: give a preset, such as preset="vscode", too.'
            )
        name = (
            (None if llm is None else llm.metadata.model_name)
            if model is None
            else model_name(model)
        )
        budget = check_budget(budget)
        if budget is None and llm is not None and name is not None:
            budget = _find_budget(llm, name)
        store = chat_store or SimpleChatStore()
        if chat_history is not None:
            store.set_messages(chat_store_key, list(chat_history))
        given = [
            tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
            for tool in tools or ()
        ]
        memory = cls(chat_store=store, chat_store_key=chat_store_key)
        memory._facts = ModelFacts(
            model=name or "",
            budget=budget,
            instructions=instructions or None,
            tools=tuple(map(_read_tool, given)),
        )
        memory._fitter = RequestFitter(
            tokenizer=tokenizer, keep=keep, shorten=shorten, convert=_read_message, rebuild=_rebuild
        )
        if preset is not None:
            own = (
                _ChatModel(summarizer, tuple(given)) if isinstance(summarizer, LLM) else summarizer
            )
            memory._windows = ThreadWindows(
                settings=WindowSettings(
                    preset=preset, summarizer=own, tokenizer=tokenizer, events=events
                ),
                transcripts=transcripts,
                max_threads=max_threads,
            )
        return memory

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002, ANN401  # the framework's
        """Return the messages for a request."""
        messages = list(self.get_all())
        return self._show(
            self._fitter.fit(messages, self._facts)
            if self._windows is None
            else self._windows.loop.wait(self._prepare(self._windows, messages))
        )

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002, ANN401  # as above
        """Return the messages for a request, in an event loop.

        An agent's running turn is taken into the chat store first.
        """
        await self._take_turn()
        messages = list(await self.aget_all())
        return self._show(
            self._fitter.fit(messages, self._facts)
            if self._windows is None
            else await self._windows.loop.wait_async(self._prepare(self._windows, messages))
        )

    def recover(self, error: BaseException) -> bool:
        """Return whether a smaller request should be made after the provider refused one: the window is smaller then.

        Raises:
            ContextWindowFullError: With `preset`, the conversation does not fit, whatever is
                compacted or pruned.
        """
        refusal, last = find_overflow(error), self._last
        if refusal is None or last is None:
            return False
        if isinstance(last, Fitted):
            return self._fitter.learn(self._facts, last, refusal)
        windows = self._windows
        return windows is not None and windows.loop.wait(partial(windows.recover, last, refusal))

    async def arecover(self, error: BaseException) -> bool:
        """Do as `recover`, in an event loop, which is not blocked meanwhile."""
        return await anyio.to_thread.run_sync(self.recover, error)

    def _prepare(
        self, windows: ThreadWindows, messages: list[ChatMessage]
    ) -> Callable[[], Awaitable[IssuedRequest]]:
        return partial(
            windows.request,
            self.chat_store_key,
            self._facts,
            [_read_message(message) for message in messages],
            messages,
            end_turns=True,
        )

    def _show(self, last: Fitted[ChatMessage] | IssuedRequest) -> list[ChatMessage]:
        """Return the messages of a request: the store's own, copies of shortened ones, and new ones, such as summaries."""
        self._last = last
        # Those that repair what the store has, such as a result that is missing, are not
        # LlamaIndex's yet.
        shown = cast(
            "Sequence[ChatMessage | Message]",
            last.messages if isinstance(last, Fitted) else last.show(_rebuild),
        )
        return [_write(each) if isinstance(each, Message) else each for each in shown]

    async def _take_turn(self) -> None:
        """Take what an agent has of the running turn, which it would put into the memory at the end of the turn, and send until then."""
        try:
            store = Context.get_step_context().store
        except WorkflowRuntimeError:  # no step of a workflow is running
            return
        # not what a program of its own keeps there
        messages = [
            each
            for each in as_sequence(await store.get(_SCRATCHPAD, default=None))
            if isinstance(each, ChatMessage)
        ]
        if messages:
            await self.aput_messages(messages)
            await store.set(_SCRATCHPAD, [])


def _find_budget(llm: LLM, name: str) -> ContextBudget | None:
    """Return the budget from what LlamaIndex knows of a model; None if promptkit knows its window by its name."""
    if knows_window(name):
        return None
    size, output = llm.metadata.context_window, llm.metadata.num_output
    return ContextBudget(
        window=size, reserved_output_tokens=output if 0 < output < size else None, model=name
    )


def _read_tool(tool: BaseTool) -> ToolDefinition:
    function: Fields = tool.metadata.to_openai_tool(skip_length_check=True)["function"]
    # which LlamaIndex adds when it sends them to OpenAI
    return ToolDefinition(
        name=function["name"],
        description=function["description"],
        parameters={**function["parameters"], "additionalProperties": False},
    )


def _read_message(message: ChatMessage) -> Message:
    role = _ROLES[message.role.value]
    call_id = message.additional_kwargs.get("tool_call_id")
    return Message(
        role=role,
        content=[part for block in message.blocks for part in _read_block(block)],
        tool_calls=_read_calls(message) if role == "assistant" else (),
        tool_call_id=str(call_id or "") if role == "tool" else None,
    )


def _read_block(block: object) -> list[Part]:
    """Return the parts of a block. Audio, video and documents are not counted."""
    match block:
        case ToolCallBlock():
            return []
        case ImageBlock(url=url) if url:
            return [ImagePart(url=str(url))]
        case ImageBlock():
            return [ImagePart(url=block.inline_url())]
        case ThinkingBlock(content=thought):
            return [
                OpaquePart(
                    value={"type": "thinking", "thinking": thought or ""}, provider="llama-index"
                )
            ]
        case _:
            return [*_read_texts(block)] or [
                OpaquePart(
                    value={"type": str(getattr(block, "block_type", ""))},
                    tokens=0,
                    provider="llama-index",
                )
            ]


def _read_texts(block: object) -> list[str]:
    """Return the texts of a block: its own, or those within a block for citations."""
    if isinstance(block, TextBlock):
        return [block.text]
    content = None if isinstance(block, ThinkingBlock) else getattr(block, "content", None)
    return [each.text for each in as_sequence(content) if isinstance(each, TextBlock)]


def _read_calls(message: ChatMessage) -> list[ToolCall]:
    """Return the tool calls of a message: its blocks, or as older integrations have them, the provider's own beside them."""
    calls = [
        ToolCall(
            id=block.tool_call_id or "",
            name=block.tool_name,
            arguments=_read_arguments(block.tool_kwargs),
        )
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    return calls or [
        call
        for record in message.additional_kwargs.get("tool_calls") or ()
        if (call := _read_record(as_wire_object(record) or {})) is not None
    ]


def _read_record(record: Mapping[str, Any]) -> ToolCall | None:  # Any: JSON
    function: Fields = record.get("function") or {}
    return (
        ToolCall(
            id=str(record.get("id") or ""),
            name=function["name"],
            arguments=_read_arguments(function["arguments"]),
        )
        if function
        else None
    )


def _read_arguments(given: object) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def _write(message: Message) -> ChatMessage:
    """Return a message that the store does not have: a summary, or a result that was missing."""
    return ChatMessage(
        role=MessageRole(message.role),
        blocks=[
            TextBlock(text=message.text),
            *(
                ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
                for call in message.tool_calls
            ),
        ],
        additional_kwargs={"tool_call_id": message.tool_call_id} if message.role == "tool" else {},
    )


def _rebuild(original: ChatMessage, shortened: Message) -> ChatMessage:
    """Return a copy of a message with its shortened text, and with the tool calls that are left and their ids."""
    own = [block.tool_call_id for block in original.blocks if isinstance(block, ToolCallBlock)]
    left = iter(match_calls(own, shortened.tool_calls))
    texts = iter([shortened.text])
    blocks = [_rebuild_block(block, left, texts) for block in original.blocks]
    extra = dict(original.additional_kwargs)
    if "tool_calls" in extra:
        # JSON
        records: list[Fields] = [{**(as_wire_object(call) or {})} for call in extra["tool_calls"]]
        calls = match_calls([record.get("id") for record in records], shortened.tool_calls)
        extra["tool_calls"] = [
            given
            if _read_record(record) == call
            else {
                **record,
                "id": call.id,
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for given, record, call in zip(extra["tool_calls"], records, calls, strict=True)
            if call is not None
        ]
    if shortened.role == "tool":
        extra["tool_call_id"] = shortened.tool_call_id
    return original.model_copy(
        update={
            "blocks": [block for block in blocks if block is not None],
            "additional_kwargs": extra,
        }
    )


def _rebuild_block(
    block: object, calls: Iterator[ToolCall | None], texts: Iterator[str]
) -> object | None:
    """Return a block with the next call or the next text; None if there is none."""
    if not isinstance(block, ToolCallBlock):
        if not _read_texts(block):
            return block
        text = next(texts, None)
        return None if text is None else TextBlock(text=text)
    if (call := next(calls)) is None:
        return None
    kwargs: object = block.tool_kwargs
    if call.arguments != _read_arguments(kwargs):
        kwargs = call.arguments if isinstance(kwargs, str) else json.loads(call.arguments)
    return block.model_copy(update={"tool_call_id": call.id, "tool_kwargs": kwargs})


@attrs.frozen
class _ChatModel:
    """A model of LlamaIndex that writes summaries.

    It is called in a thread, since its asynchronous client belongs to another loop.
    """

    model: LLM
    tools: tuple[BaseTool, ...]
    """The agent's own, so that a summary request begins as the agent's requests do."""

    @property
    def name(self) -> str:
        return self.model.metadata.model_name

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model, with the agent's tools if the request has any, and the model can call tools."""
        given, model = [_write(message) for message in messages], self.model
        ask = (
            partial(
                model.chat_with_tools,
                self.tools,
                chat_history=given,
                allow_parallel_tool_calls=True,
            )
            if tools
            and isinstance(model, FunctionCallingLLM)
            and model.metadata.is_function_calling_model
            else partial(model.chat, given)
        )
        answer = await anyio.to_thread.run_sync(ask)
        told = answer.additional_kwargs
        choices: Sequence[object] = getattr(answer.raw, "choices", None) or ()
        reason = getattr(choices[0], "finish_reason", None) if choices else None
        return Reply(
            message=_read_message(answer.message),
            usage=Usage(
                input_tokens=int(told.get("prompt_tokens") or 0),
                output_tokens=int(told.get("completion_tokens") or 0),
            ),
            finish="length" if reason == "length" else "stop",
        )
