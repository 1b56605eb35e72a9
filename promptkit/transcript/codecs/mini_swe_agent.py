"""mini-swe-agent's trajectories: chat messages with what the agent notes beside them, in a file of their own or in one with settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.transcript.codecs.chat import read_chat
from promptkit.transcript.codecs.talks import Talks, walk
from promptkit.transcript.codecs.values import object_of, objects_of, seconds, text_of, usage_of
from promptkit.transcript.entries import Custom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.codecs.codec import Batch
    from promptkit.transcript.codecs.head import Head
    from promptkit.transcript.codecs.source import Source
    from promptkit.transcript.codecs.values import Record
    from promptkit.transcript.entries import Payload

__all__ = ["MiniSweAgent"]

NAME = "mini_swe_agent"


class MiniSweAgent:
    """Reads mini-swe-agent's trajectories."""

    name = NAME
    about = "mini-swe-agent trajectory JSON"

    def detects(self, head: Head) -> bool:
        """The name of the format, the settings of an agent beside messages, or the ending of the file's name."""
        named = any(fact.startswith("trajectory_format=mini-swe-agent") for fact in head.facts)
        settings = "messages.item.role" in head.facts and bool({"info.config", "info.mini_version", "info.exit_status"} & head.facts)
        listed = head.name.endswith(".traj.json") and bool({"item.role", "messages.item.role"} & head.facts)
        return named or settings or listed

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = Talks(NAME)
        for member in walk(source, [(None,), ("messages", None)]):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.beside(member)
            elif isinstance(member.value, Mapping):
                time = seconds(object_of(member.value.get("extra")).get("timestamp"))
                yield talks.add(_said(member.value), messages=int(isinstance(member.value.get("role"), str)), time=time)
            else:
                yield talks.unread(member, "no JSON object.")


def _said(record: Record) -> list[Payload]:
    """A message. How the agent ended is one in the recording, but nothing that a model is shown."""
    response = object_of(object_of(record.get("extra")).get("response"))
    choices = objects_of(response.get("choices"))
    finish = text_of(choices[0].get("finish_reason")) if choices else None
    said = read_chat(record, NAME, usage=usage_of(response.get("usage")), model=text_of(response.get("model")), finish=finish)
    return said or [Custom(name=f"{NAME}.{text_of(record.get('role')) or 'message'}", data=record)]
