"""Messages of the program that ask the model to go on: after a reply that was cut off, and after a compaction at the end of a turn.

A reply that was cut off stays in the transcript. Its tool calls are neither run nor shown again,
since any of them may be cut in two. The model is asked again once. What was done can be read off
the transcript, so that a program that is started again goes on in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from promptkit.compaction import CompactionController
from promptkit.messages import Message, ToolCall
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.transcript import CustomMessage, Edit, Entry, MessageEntry, Reset, Transcript
from promptkit.transcript.log.view import CUT_FINISH, INCOMPLETE_FINISHES

CUT_OFF = "cut_off"
"""The name of the message that asks the model to continue, and the reason of the edit that takes a
reply out of the view."""

CONTINUE = (
    "A message of the program that runs this conversation: your last reply was cut off at the output limit. "
    "Continue exactly where it stopped, and repeat nothing of it."
)

CALL_AGAIN = (
    "A message of the program that runs this conversation: your last reply was cut off at the output limit before its tool calls were "
    "complete, so none of them was run. "
    "Call the tools again with shorter arguments: write a long text in several parts, for example."
)

AUTO_CONTINUE = "auto_continue"
"""The name of the message that asks the model to go on after a compaction at the end of a turn."""

GO_ON = (
    "A message of the program that runs this conversation: its older part has just been replaced by a summary. "
    "If something that the user asked for is left to do, go on with it. If nothing is, or if you need an answer of the user, say so in one sentence."
)

FULL_SHARE = 0.98
"""A window of which a request and its reply take this share is full: the provider's count may
differ a little from the window."""


async def retry_cut_reply(
    transcript: Transcript,
    compaction: CompactionController,
    *,
    request_tokens: int,
    tokenizer: Tokenizer,
) -> bool:
    """Prepare another request if the newest reply was cut off, and the one before it was not.

    Args:
        transcript: The conversation.
        compaction: Makes room where the context window was full.
        request_tokens: The size of the request that was answered, in tokens.
        tokenizer: Counts the reply.

    Returns:
        True if the model should be asked again.
    """
    replies = list(_iter_last_replies(transcript.path()))
    if [reply.finish for _, reply in replies] != [CUT_FINISH]:
        return False
    ((entry, reply),) = replies
    reply_tokens = Sizer(tokenizer).count_message(reply.message)
    if not fills_window(reply, request_tokens, reply_tokens, budget=compaction.budget):
        text = CALL_AGAIN if reply.message.tool_calls else CONTINUE
        transcript.append(CustomMessage(name=CUT_OFF, message=Message(role="user", content=text)))
        return True
    (edit,) = transcript.append(Edit(target=entry.id, content=None, reason=CUT_OFF))
    if await compaction.make_room_for_reply():
        return True
    transcript.append(Edit(target=edit.id, content=None, reason=CUT_OFF))
    return False


def find_pending_calls(path: Sequence[Entry]) -> tuple[ToolCall, ...]:
    """Return the tool calls without a result of the reply that a path ends with, if it is whole."""
    answered = set[str | None]()
    for entry in reversed(path):
        match entry.payload:
            case MessageEntry(message=message) if message.role == "tool":
                answered.add(message.tool_call_id)
            case MessageEntry(message=message, finish=finish):
                return (
                    ()
                    if finish in INCOMPLETE_FINISHES
                    else tuple(call for call in message.tool_calls if call.id not in answered)
                )
            case Reset():
                return ()
            case _:
                continue
    return ()


def join_reply_text(path: Sequence[Entry]) -> str:
    """Return the text of the newest reply, behind the texts of the cut ones that it continues."""
    replies = list(_iter_last_replies(path))[::-1]
    taken_out = (
        {
            entry.payload.target
            for entry in takewhile(lambda entry: entry is not replies[0][0], reversed(path))
            if isinstance(entry.payload, Edit) and entry.payload.reason == CUT_OFF
        }
        if replies[1:]
        else set[str]()
    )
    shown = [(entry, reply) for entry, reply in replies[:-1] if entry.id not in taken_out]
    return "".join(reply.message.text for _, reply in (*shown, *replies[-1:]))


def ask_to_go_on(transcript: Transcript) -> bool:
    """Ask the model to go on after a compaction at the end of a turn. Returns False if it was asked before, and has called no tools since."""
    if not _may_go_on(transcript.path()):
        return False
    transcript.append(
        CustomMessage(name=AUTO_CONTINUE, message=Message(role="user", content=(GO_ON,)))
    )
    return True


def _may_go_on(path: Sequence[Entry]) -> bool:
    """Return whether the model may be asked to go on: once for each user message, and again if it has called tools since."""
    called_tools = False
    for entry in reversed(path):
        match entry.payload:
            case CustomMessage(name=name) if name == AUTO_CONTINUE:
                return called_tools
            case MessageEntry(message=Message(role="user")) | Reset():
                return True
            case MessageEntry(message=message):
                called_tools = called_tools or message.role == "tool"
            case _:
                continue
    return True


def fills_window(
    reply: MessageEntry, request_tokens: int, reply_tokens: int, *, budget: ContextBudget
) -> bool:
    """Return whether a cut reply ended because the context window was full.

    If not, it reached the output limit.

    Args:
        reply: The reply. The usage in it goes before the local counts.
        request_tokens: The size of the request, in tokens.
        reply_tokens: The size of the reply, in tokens.
        budget: The budget of the model that replied.
    """
    usage = reply.usage
    if usage is not None and usage.input_tokens:
        request_tokens, reply_tokens = usage.input_tokens, usage.output_tokens
    is_limited = budget.max_output_tokens is not None and reply_tokens >= budget.max_output_tokens
    return (
        budget.window is not None
        and not is_limited
        and request_tokens + reply_tokens >= FULL_SHARE * budget.window
    )


def _iter_last_replies(path: Sequence[Entry]) -> Iterator[tuple[Entry, MessageEntry]]:
    """Yield the newest reply and the cut ones before it, newest first, each with its entry."""
    newest = True
    for entry in reversed(path):
        match entry.payload:
            case MessageEntry() as reply if reply.message.role == "assistant" and (
                newest or reply.finish == CUT_FINISH
            ):
                newest = False
                yield entry, reply
            case MessageEntry() | Reset():
                return
            case _:
                continue
