"""What is carried over beside a summary: the plan, the open points, the skills that were invoked, whose part the model plays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.facts import Facts
from promptkit.compaction.serialise import neutral
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.compaction.plan import Plan, Summary
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Carried", "carried_over"]


@attrs.frozen(kw_only=True)
class Carried:
    """What holds now, in the host's words. It is said anew at every checkpoint, and never summarized."""

    plan: str | None = None
    todos: Sequence[str] = ()
    """The open points."""
    skills: Sequence[str] = ()
    """Each as its name, or as its text where the model needs it again."""
    agent: str | None = None
    """What a custom agent says of itself, where one is at work."""

    def text(self, tokenizer: Tokenizer, *, each: int | None = None) -> str:
        """All of it in tagged blocks, of at most `each` tokens, whose middle is cut out where they have more; empty where there is nothing."""
        blocks: list[str] = []
        for tag, text in self._blocks():
            shown = text if each is None else truncate_text(text, each, keep="middle", ratio=0.5, tokenizer=tokenizer)
            if shown:
                blocks.append(f"<{tag}>\n{shown}\n</{tag}>")
        return "\n\n".join(blocks)

    def _blocks(self) -> Iterator[tuple[str, str]]:
        todos = "\n".join(f"- [ ] {_line(todo)}" for todo in self.todos)
        skills = "\n".join(f"- {_indented(skill)}" for skill in self.skills)
        for tag, text in (("plan", self.plan), ("todos", todos), ("skills", skills), ("agent", self.agent)):
            if text and text.strip():
                yield tag, _within(text.strip(), tag)


def carried_over(plan: Plan, summary: Summary) -> Carried:
    """What the conversation itself tells, by the summary's facts: the open points, and the skills that were invoked."""
    _ = plan
    facts = Facts.from_json(summary.facts)
    return Carried(todos=facts.todos, skills=facts.skills)


def _line(text: str) -> str:
    return " ".join(text.split())


def _indented(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())


def _within(text: str, tag: str) -> str:
    """Text that ends neither its own block nor that of a summary."""
    return neutral(text).replace(f"</{tag}", f"<\\/{tag}")
