"""Skills that were invoked are known by name, each once, over all checkpoints."""

from __future__ import annotations

import pytest

from promptkit.compaction.facts import Facts, fold
from promptkit.compaction.skills import skill_of
from promptkit.messages import Message, ToolCall
from tests.unit.compaction.talk import Talk


@pytest.mark.parametrize(
    ("tool", "arguments", "skill"),
    [
        ("Skill", {"command": "pdf"}, "pdf"),
        ("load_skill", {"name": " sheets "}, "sheets"),
        ("skill", {"skill": 3, "skill_name": "x"}, "x"),
        ("skill", {}, None),
        ("skill", {"name": " "}, None),
        ("read", {"name": "pdf"}, None),
    ],
)
def test_a_call_names_the_skill_that_it_invokes(tool: str, arguments: dict[str, object], skill: str | None) -> None:
    assert skill_of(tool, arguments) == skill


def test_skills_are_carried_from_checkpoint_to_checkpoint_and_are_no_commands() -> None:
    talk = Talk()
    for call, arguments in enumerate(('{"command": "pdf"}', '{"skill": "sheets"}', '{"command": "pdf"}', "no json")):
        talk.say(Message(role="assistant", tool_calls=(ToolCall(id=f"c{call}", name="Skill", arguments=arguments),)))
        talk.result(f"c{call}", "how to do it")
    facts = Facts.from_json(fold(Facts(skills=("old",)), talk.view.items).to_json())
    assert facts.skills == ("old", "sheets", "pdf")
    assert [command.what for command in facts.commands] == ["no json"]
