"""The session behind `promptkit chat`: which model, which window, which tools; and an event loop for it beside the terminal."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from promptkit.agent.session import AgentSession
from promptkit.agent.sync import SyncSession
from promptkit.cli.chat.demo_model import SCRIPTED, ScriptedChatModel
from promptkit.cli.chat.sandbox import Folder
from promptkit.cli.chat.tools import file_tools
from promptkit.cli.input.model import open_model
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from promptkit.agent.session import TurnResult
    from promptkit.compaction.events import Events
    from promptkit.providers.model import Model

__all__ = ["WINDOW", "ChatSession", "open_session"]

T = TypeVar("T")

WINDOW = 6_000
"""Tokens of the script's window: small, so that a summary is seen soon."""

RESULT_SHARE = 2
"""A tool result has at most so many characters that one over this many makes the window's tokens: about an eighth of it."""

MIN_RESULT_CHARACTERS, MAX_RESULT_CHARACTERS = 1_000, 40_000
"""Characters of a tool result, however small or large the window."""

INSTRUCTIONS = (
    "You answer questions about the files of one folder. Look into them with your tools before you answer, and say which file and which "
    "line an answer comes from. Paths are relative to the folder."
)


def open_session(  # noqa: PLR0913  # what a conversation is made of
    file: Path,
    *,
    folder: Path,
    write: bool,
    model: str | None,
    window: int | None,
    instructions: str | None,
    events: Events,
    on_tool_call: Callable[[str, str], object],
) -> ChatSession:
    """The conversation in a file, ready to go on. `model` None is the script; `told` hears of tool calls.

    Raises TranscriptError for a file that is none, ToolsFillBudgetError for a window that is too small.
    """
    store = JsonlStore(file)
    transcript = Transcript(store)
    tokenizer = tokenizer_for(model)
    if model is None:
        window = window or WINDOW
    known = ContextBudget.for_model(model or SCRIPTED, tokenizer=tokenizer, window=window)
    characters = MAX_RESULT_CHARACTERS if known.limit is None else min(MAX_RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, known.limit // RESULT_SHARE))
    tools = file_tools(Folder(folder, transcript=store.path), characters=characters, write=write, on_tool_call=on_tool_call)
    budget = ContextBudget.for_model(model or SCRIPTED, tokenizer=tokenizer, tools=[tool.definition for tool in tools], window=window)
    chosen, close = _model(model)
    session = AgentSession(
        model=chosen,
        transcript=transcript,
        instructions=instructions or INSTRUCTIONS,
        tools=tools,
        budget=budget,
        summarizer=ExtractiveSummarizer(tokenizer=tokenizer) if model is None else None,
        tokenizer=tokenizer,
        events=events,
        rng=random.Random(0).random if model is None else random.random,  # noqa: S311  # thresholds, and no secrets
    )
    return ChatSession(session, close)


def _model(name: str | None) -> tuple[Model, Callable[[], Coroutine[object, object, None]] | None]:
    """The model, and what closes its connections."""
    return (ScriptedChatModel(tokenizer_for(None)), None) if name is None else open_model(name)


class ChatSession(SyncSession):
    """A session whose turns can be broken off from the keyboard, and which can be looked at between them."""

    def __init__(self, session: AgentSession, release: Callable[[], Coroutine[object, object, None]] | None) -> None:
        super().__init__(session)
        self._release = release

    def run_turn(self, content: str | None, on_text: Callable[[str], object]) -> TurnResult:
        """A turn; for None, the rest of one that was cut short. KeyboardInterrupt comes out when the turn has ended."""
        return self.resume(on_text=on_text) if content is None else self.run(content, on_text=on_text)

    def inspect(self, work: Callable[[AgentSession], T]) -> T:
        """What a function finds in the session, in its own thread."""
        return self._call(lambda: work(self.session))

    def wait_for_summary(self) -> None:
        """Wait until the background has made its summary, or failed to."""
        self._wait(self.session.keeper.background.wait())

    def close(self) -> None:
        """End it all, connections included."""
        if self._release is not None:
            self._wait(self._release())
            self._release = None
        super().close()
