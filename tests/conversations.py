"""Conversations for tests in a few words: messages, and a builder of transcripts in memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.messages import Message, Part, ToolCall, Usage
from promptkit.testing import summary_answer
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    Edit,
    MessageEntry,
    Reset,
    Setting,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import TranscriptView, build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Plan
    from promptkit.transcript.log.entries import Entry, EntryPayload

__all__ = [
    "ConversationBuilder",
    "assistant_message",
    "call_message",
    "result_message",
    "summary_reply",
    "summary_text",
    "user_message",
    "words",
]


def words(count: int, word: str = "w") -> str:
    """A text of so many tokens, as WordTokenizer counts them."""
    return " ".join([word] * count)


def summary_text(text: str = "S") -> str:
    """A summary under the eight headings: 17 tokens more than its text, as WordTokenizer counts them."""
    return "\n".join((SECTIONS[0], text, *SECTIONS[1:]))


def summary_reply(text: str = "S") -> str:
    """A model's answer with the summary of `summary_text` in its tags."""
    return summary_answer(text)


def user_message(*content: Part) -> Message:
    return Message(role="user", content=content)


def assistant_message(text: str) -> Message:
    return Message(role="assistant", content=(text,))


def call_message(*ids: str, text: str = "", name: str = "read", arguments: str = "{}") -> Message:
    """A message of the model with a tool call of each id."""
    calls = tuple(ToolCall(id=each, name=name, arguments=arguments) for each in ids)
    return Message(role="assistant", content=(text,) if text else (), tool_calls=calls)


def result_message(call: str, *content: Part) -> Message:
    return Message(role="tool", content=content, tool_call_id=call)


class ConversationBuilder:
    """Builds a transcript, by default in memory with entries called e1, e2, …; its methods return the id of the entry that they append."""

    def __init__(self, transcript: Transcript | None = None) -> None:
        ids = itertools.count(1)
        self.log = (
            Transcript(clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}")
            if transcript is None
            else transcript
        )

    @property
    def path(self) -> Sequence[Entry]:
        return self.log.path()

    @property
    def view(self) -> TranscriptView:
        return build_view(self.path)

    @property
    def leaf(self) -> str:
        return self.log.leaf or ""

    def append(self, *payloads: EntryPayload) -> str:
        return self.log.append(*payloads)[-1].id

    def say(self, message: Message) -> str:
        return self.append(MessageEntry(message=message))

    def system(self, text: str) -> str:
        return self.say(Message(role="system", content=(text,)))

    def user(self, *content: Part) -> str:
        return self.say(user_message(*content))

    def answer(
        self,
        text: str,
        *,
        used: Usage | None = None,
        model: str | None = None,
        finish: str = "stop",
    ) -> str:
        return self.append(
            MessageEntry(message=assistant_message(text), usage=used, model=model, finish=finish)
        )

    def calls(
        self, *ids: str, name: str = "read", used: Usage | None = None, finish: str = "tool_calls"
    ) -> str:
        return self.append(
            MessageEntry(message=call_message(*ids, name=name), usage=used, finish=finish)
        )

    def result(self, call: str, *content: Part) -> str:
        return self.say(result_message(call, *content))

    def round(
        self, call: str, *content: Part, name: str = "read", used: Usage | None = None
    ) -> str:
        """One call with its result; the id of the entry with the call is given back."""
        made = self.calls(call, name=name, used=used)
        self.result(call, *content)
        return made

    def reminder(self, text: str) -> str:
        return self.append(CustomMessage(name="host", message=user_message(text)))

    def branch(self, text: str) -> str:
        return self.append(BranchSummary(summary=text, leaf=self.leaf))

    def setting(self, name: str = "model") -> str:
        return self.append(Setting(name=name, value="m"))

    def edit(self, target: str, *content: Part, reason: str = "redacted") -> str:
        return self.append(Edit(target=target, content=content or None, reason=reason))

    def reset(self) -> str:
        return self.append(Reset())

    def checkpoint(self, summary: str, first_kept: str | None = None) -> str:
        return self.append(Checkpoint(summary=summary, first_kept=first_kept))

    def compact(self, plan: Plan, summary: str = "S") -> str:
        """Put a summary of a plan in place, as a compactor would: what is not simply kept is baked into the checkpoint."""
        baked = (
            *(item.message for item in plan.pinned),
            Message(
                role="user",
                content=(f"<conversation-summary>\n{summary}\n</conversation-summary>",),
            ),
            *(item.message for item in plan.replayed),
        )
        apart = baked if plan.pinned or plan.replayed else None
        return self.append(
            Checkpoint(summary=summary, first_kept=plan.first_kept, replacement=apart)
        )
