"""Create the session of `promptkit chat` with its model, context window and tools."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

from promptkit import AgentSession, ContextBudget, JsonlStore, SyncSession, Transcript, TurnResult
from promptkit.cli.chat.demo_model import SCRIPTED, ScriptedChatModel
from promptkit.cli.chat.tools import file_tools
from promptkit.cli.input.model import open_model
from promptkit.compaction import Events, ExtractiveSummarizer
from promptkit.tokens import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from promptkit.cli.chat.sandbox import Folder

WINDOW = 6_000
"""The context window of the scripted model in tokens: small, so that a summary is made soon."""

RESULT_DIVISOR = 2
"""A tool result has at most one character for so many tokens of the window: about an eighth of the
window."""

MIN_RESULT_CHARACTERS, MAX_RESULT_CHARACTERS = 1_000, 40_000
"""Bounds of the characters of a tool result, for very small and very large windows."""

INSTRUCTIONS = (
    "You answer questions about the files of one folder. Look into them with your tools before you answer, and say which file and which "
    "line an answer comes from. Paths are relative to the folder."
)


def open_session(  # noqa: PLR0913  # what a conversation is made of
    file: Path,
    *,
    folder: Folder,
    write: bool,
    model: str | None,
    window: int | None,
    preset: str,
    instructions: str | None,
    events: Events,
    on_tool_call: Callable[[str, str], object],
) -> ChatSession:
    """Open or continue the conversation in a transcript file.

    Args:
        file: The transcript file. It is created if it does not exist.
        folder: The folder that the file tools are confined to.
        write: Whether the tools may write and edit files.
        model: The model's name. None: the scripted model.
        window: The context window in tokens. None: that of the model.
        preset: The name of the preset.
        instructions: The system message. None: the default one.
        events: Subscribers to the session's events.
        on_tool_call: Called after each tool call with a description of the call and of its outcome.

    Raises:
        TranscriptError: The file cannot be read as a transcript.
        InvalidArgumentError: There is no preset of this name.
        ToolsFillBudgetError: The window is too small.
    """
    store = JsonlStore(file)
    transcript = Transcript(store)
    tokenizer = tokenizer_for(model)
    if model is None:
        window = window or WINDOW
    known = ContextBudget.for_model(model or SCRIPTED, tokenizer=tokenizer, window=window)
    tools = file_tools(
        attrs.evolve(folder, transcript=store.path),
        characters=MAX_RESULT_CHARACTERS
        if known.limit is None
        else min(MAX_RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, known.limit // RESULT_DIVISOR)),
        write=write,
        on_tool_call=on_tool_call,
    )
    budget = ContextBudget.for_model(
        model or SCRIPTED,
        tokenizer=tokenizer,
        tools=[tool.definition for tool in tools],
        window=window,
    )
    chosen, close = (
        (ScriptedChatModel(tokenizer_for(None)), None) if model is None else open_model(model)
    )
    session = AgentSession(
        model=chosen,
        transcript=transcript,
        instructions=instructions or INSTRUCTIONS,
        tools=tools,
        budget=budget,
        preset=preset,
        summarizer=ExtractiveSummarizer(tokenizer=tokenizer) if model is None else None,
        tokenizer=tokenizer,
        events=events,
        rng=random.Random(0).random if model is None else random.random,  # noqa: S311  # thresholds, and no secrets
    )
    return ChatSession(session, close)


class ChatSession(SyncSession):
    """A session with turns that Ctrl-C can stop, and the connections of its model."""

    def __init__(
        self, session: AgentSession, release: Callable[[], Coroutine[object, object, None]] | None
    ) -> None:
        super().__init__(session)
        self._release = release

    def run_turn(self, content: str | None, on_text: Callable[[str], object]) -> TurnResult:
        """Run a turn; None resumes one that was interrupted.

        KeyboardInterrupt is raised after the turn has ended.
        """
        return (
            self.resume(on_text=on_text) if content is None else self.run(content, on_text=on_text)
        )

    def wait_for_summary(self) -> None:
        """Wait until the background summary is ready or has failed."""
        self.loop.wait(self.session.window.wait_idle)

    def close(self) -> None:
        """Close the session and the model's connections."""
        if self._release is not None:
            self.loop.wait(self._release)
            self._release = None
        super().close()
