"""Which conversation a line of a Claude Code recording belongs to: that of a session, or that of a subagent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.transcript.codecs.claude_tree import Strand
from promptkit.transcript.codecs.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.codecs.claude_tree import Spot
    from promptkit.transcript.codecs.values import Record

__all__ = ["Strands"]


class Strands:
    """The conversations of a file."""

    def __init__(self) -> None:
        self._sessions: dict[str, Strand] = {}
        self._agents: dict[str, Strand] = {}
        self._nameless: list[tuple[Strand, str]] = []
        self.conversations = 0
        """How many have begun. A session that goes on where another one was is part of that one's."""

    def __iter__(self) -> Iterator[Strand]:
        yield from self._sessions.values()
        yield from self._agents.values()

    def first(self) -> Strand:
        """Where lines go that come before those of any session."""
        return self._sessions.setdefault("", Strand())

    def agent(self, name: str) -> Strand | None:
        """The conversation of a subagent, if it has begun."""
        return self._agents.get(f"agent {name}")

    def of(self, record: Record, above: Spot | None, number: int) -> Strand:
        """The conversation that a line belongs to, which may begin with it. `above` is where the line before it went."""
        side = record.get("isSidechain") is True
        session = text_of(record.get("sessionId")) or ""
        agent = text_of(record.get("agentId"))
        if side and agent:
            strand = self._agents.setdefault(f"agent {agent}", Strand(side=True))
        elif above and above[0].side is side:
            strand = above[0]
        elif side:
            strand = self._agents.setdefault(f"side {record.get('parentUuid') or number}", Strand(side=True))
        else:
            strand = self._sessions.get(session) or self._sessions.pop("", None) or Strand()
        if session not in self._sessions:
            self.conversations += above is None
            self._sessions[session] = Strand() if side else strand
        return strand

    def names(self, strand: Strand, root: str) -> Iterator[tuple[Strand, str, str]]:
        """Conversations that get a name now that one begins with the entry `root`: each with its first entry and its name.

        Several in one file have names; one alone needs none.
        """
        self._nameless.append((strand, root))
        if len(self._sessions) > 1:
            names = {id(its): session for session, its in self._sessions.items()}
            for its, target in self._nameless:
                yield its, target, f"session {names.get(id(its), target)}"
            self._nameless.clear()
