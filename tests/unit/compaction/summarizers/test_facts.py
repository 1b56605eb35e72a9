"""Facts that are carried from checkpoint to checkpoint.

Skills that were loaded are known by name and text, each once, over all checkpoints.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.planning.facts import Command, Facts, Name, Skill
from promptkit.compaction.planning.tool_calls import find_skill_name
from promptkit.compaction.summarizers import facts as module
from promptkit.compaction.summarizers.facts import MAX_NAMES, MAX_SKILL_CHARACTERS, extend_facts
from promptkit.messages import Message, OpaquePart, ToolCall
from promptkit.tools import ToolResult
from promptkit.transcript.log.view import ViewItem
from tests.conversations import ConversationBuilder

THOUGHT = OpaquePart(
    value={"type": "thinking", "thinking": "hm", "signature": "s"}, tokens=4, provider="anthropic"
)


def call(talk: ConversationBuilder, name: str, outcome: str = "ok", **arguments: object) -> None:
    key = f"c{len(talk.log)}"
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id=key, name=name, arguments=json.dumps(arguments)),),
        )
    )
    talk.result(key, outcome)


def facts_of(talk: ConversationBuilder) -> Facts:
    return extend_facts(Facts(), talk.view.items)


def test_requests_are_kept_word_for_word_and_nothing_else_is_one() -> None:
    talk = ConversationBuilder()
    talk.checkpoint("S")
    talk.user("  Fix it.\nNow. ")
    talk.user("<conversation-summary>")
    talk.reminder("Be brief.")
    talk.branch("elsewhere")
    talk.user(" ")

    assert facts_of(talk).requests == ("Fix it.\nNow.", "<conversation-summary>")


@pytest.mark.spec("E69")
def test_an_earlier_summary_is_no_request() -> None:
    talk = ConversationBuilder()
    talk.checkpoint("S1")

    assert facts_of(talk).requests == ()


@pytest.mark.spec("E107")
def test_files_that_were_read_and_changed_are_told_apart_the_newest_last() -> None:
    talk = ConversationBuilder()
    call(talk, "read_file", path="a.py")
    call(talk, "view", file_path="b.py")
    call(talk, "replace_string_in_file", filePath="b.py")
    call(talk, "write_file", path="c.py")
    call(talk, "edit", path="b.py")
    call(talk, "grep", path="d.py", pattern="x")

    facts = facts_of(talk)

    assert facts.read == ("a.py",)
    assert facts.changed == ("c.py", "b.py")
    assert facts.commands == ()
    assert dict(facts.tools) == {
        "read_file": 1,
        "view": 1,
        "replace_string_in_file": 1,
        "write_file": 1,
        "edit": 1,
        "grep": 1,
    }


def test_files_of_calls_that_failed_or_were_refused_are_not_listed() -> None:
    talk = ConversationBuilder()
    call(talk, "read_file", path="a.py")
    for number, (name, path) in enumerate(
        (("write_file", "secret.env"), ("write_file", "a.py"), ("read_file", "gone.py"))
    ):
        made = ToolCall(id=f"f{number}", name=name, arguments=json.dumps({"path": path}))
        talk.say(Message(role="assistant", tool_calls=(made,)))
        talk.say(ToolResult("Error: refused", is_error=True).to_message(made))
    assert (facts_of(talk).read, facts_of(talk).changed) == (("a.py",), ())


def test_files_of_calls_without_a_result_are_listed_and_an_id_may_be_used_again() -> None:
    talk = ConversationBuilder()
    for path in ("a.py", "b.py"):
        made = ToolCall(id="same", name="write_file", arguments=json.dumps({"path": path}))
        talk.say(Message(role="assistant", tool_calls=(made,)))
    items = [
        ViewItem(message=entry.message, entry_id=entry.id) for entry in talk.path if entry.message
    ]
    assert extend_facts(Facts(), items).changed == ("a.py", "b.py")
    failed = ViewItem(message=ToolResult("Error", is_error=True).to_message(made), entry_id="e3")
    assert extend_facts(Facts(), [*items, failed]).changed == ("a.py",)


def test_commands_have_the_end_of_what_they_returned_and_errors_are_noted() -> None:
    talk = ConversationBuilder()
    call(talk, "bash", "collected 2\nE  TypeError: no\n\n1 failed\n", command="pytest")
    call(talk, "bash", "", cmd="true")
    call(talk, "deploy", "refused by host", target="prod")
    call(talk, "read_file", "raise TypeError", path="a.py")

    facts = facts_of(talk)

    assert facts.commands == (
        Command("bash", "pytest", "1 failed"),
        Command("bash", "true", "(nothing)"),
        Command("deploy", '{"target": "prod"}', "refused by host"),
    )
    assert facts.errors == ("E  TypeError: no", "1 failed", "refused by host")


def test_the_open_points_of_the_last_list_count() -> None:
    talk = ConversationBuilder()
    talk.answer("- [ ] one\n- [ ] two")
    talk.answer("1. [x] one\n  2. [ ] two")
    talk.answer("Nothing of the kind.")

    assert facts_of(talk).todos == ("two",)
    assert facts_of(talk).last_reply == "Nothing of the kind."

    call(
        talk,
        "todo_write",
        todos=[
            {"content": "three", "status": "completed"},
            {"content": "four", "status": "pending"},
            5,
        ],
    )
    assert facts_of(talk).todos == ("four",)

    talk.answer("- [x] four")
    assert facts_of(talk).todos == ()


@pytest.mark.spec("E14")
def test_the_last_thought_is_kept_whole_or_not_at_all() -> None:
    talk = ConversationBuilder()
    talk.say(Message(role="assistant", content=(THOUGHT, "I look.")))

    assert Facts.from_json(json.loads(json.dumps(facts_of(talk).to_json()))).thinking == THOUGHT

    talk.say(
        Message(
            role="assistant",
            content=(OpaquePart(value={"type": "thinking", "thinking": "x" * 200_000}),),
        )
    )
    assert facts_of(talk).thinking is None


def test_arguments_that_are_no_object_are_taken_as_they_are() -> None:
    talk = ConversationBuilder()
    for number, arguments in enumerate(["{", "[1]", "[" * 100_000]):
        talk.say(
            Message(
                role="assistant",
                tool_calls=(ToolCall(id=f"c{number}", name="x", arguments=arguments),),
            )
        )

    assert [command.what[:1] for command in facts_of(talk).commands] == ["{", "[", "["]


def conversation(numbers: list[int]) -> ConversationBuilder:
    talk = ConversationBuilder()
    for number in numbers:
        match number % 5:
            case 0:
                talk.user(f"ask {number}")
            case 1:
                call(talk, "read", path=f"{number % 3}.py")
            case 2:
                call(talk, "edit", path=f"{number % 3}.py")
            case 3:
                call(talk, "run", f"error {number % 4}", command=f"cmd {number}")
            case _:
                talk.answer(f"- [{'x' if number % 2 else ' '}] point {number}")
    return talk


@pytest.mark.spec("I38")
@given(st.lists(st.integers(0, 30), max_size=25), st.integers(0, 25))
def test_folding_in_parts_is_folding_at_once(numbers: list[int], part: int) -> None:
    items = conversation(numbers).view.items
    cut = _block(items, part)

    first = Facts.from_json(json.loads(json.dumps(extend_facts(Facts(), items[:cut]).to_json())))

    assert extend_facts(first, items[cut:]) == extend_facts(Facts(), items)


def _block(items: tuple[ViewItem, ...], at: int) -> int:
    """A place that parts no call from its result, as no plan does."""
    at = min(at, len(items))
    while at < len(items) and items[at].message.role == "tool":
        at += 1
    return at


@pytest.mark.spec("I39")
def test_nothing_more_changes_nothing() -> None:
    facts = facts_of(conversation(list(range(30))))

    assert extend_facts(facts, ()) == facts


def test_facts_are_bounded_and_the_first_request_and_the_newest_stay() -> None:
    talk = ConversationBuilder()
    for number in range(200):
        talk.user(f"request {number} " + "x" * 5_000)
    for number in range(500):
        call(talk, f"tool{number}", "error " + "y" * 1_000, command="z" * 2_000)

    facts = facts_of(talk)

    assert len(json.dumps(facts.to_json())) < 5 * module.MAX_LIST_CHARACTERS
    assert facts.requests[0].startswith("request 0 ")
    assert facts.requests[-1].startswith("request 199 ")
    assert len(facts.commands) <= module.MAX_ENTRIES
    assert extend_facts(facts, ()) == facts


def test_of_many_short_entries_the_newest_stay() -> None:
    talk = ConversationBuilder()
    for number in range(2 * module.MAX_ENTRIES):
        call(talk, "read", path=f"{number}")

    assert facts_of(talk).read == tuple(
        str(number) for number in range(module.MAX_ENTRIES, 2 * module.MAX_ENTRIES)
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {
            "requests": "x",
            "read": [1, None],
            "commands": ["x", {"name": 3}],
            "tools": [["a"], ["b", "c"], "d"],
            "messages": "many",
        },
        {
            "last_reply": 7,
            "todos": {},
            "errors": None,
            "changed": 1.5,
            "thinking": {"value": 3},
            "earlier": 9,
        },
    ],
)
def test_facts_of_another_program_count_as_nothing(data: dict[str, object]) -> None:
    facts = Facts.from_json(data)  # type: ignore[arg-type]  # hostile on purpose

    assert facts == Facts(commands=(Command("", ""),) if data.get("commands") else ())


def test_facts_are_the_same_after_a_way_through_a_file() -> None:
    talk = conversation(list(range(30)))
    facts = facts_of(talk)

    assert Facts.from_json(facts.to_json()) == facts
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_hostile_lists_cost_linear_time() -> None:
    talk = ConversationBuilder()
    talk.answer("x" + "\n" * 200_000 + "x")
    talk.answer("- [ ] " * 50_000)
    talk.answer("x\n" + " \t" * 100_000 + "x")

    assert facts_of(talk).messages == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "skill"),
    [
        ("Skill", {"command": "pdf"}, "pdf"),
        ("load_skill", {"name": " sheets "}, "sheets"),
        ("skill", {"skill": 3, "skill_name": "x"}, "x"),
        ("skill", {}, None),
        ("skill", {"name": " "}, None),
        ("mcp__host__load_skill", {"name": "pdf"}, "pdf"),
        ("activate_skill", {"name": "pdf"}, "pdf"),
        ("read", {"name": "pdf"}, None),
    ],
)
def test_a_call_names_the_skill_that_it_invokes(
    tool: str, arguments: dict[str, object], skill: str | None
) -> None:
    assert find_skill_name(tool, arguments) == skill


def test_skills_are_carried_from_checkpoint_to_checkpoint_and_are_no_commands() -> None:
    talk = ConversationBuilder()
    for call, arguments in enumerate(
        ('{"command": "pdf"}', '{"skill": "sheets"}', '{"command": "pdf"}', "no json")
    ):
        talk.say(
            Message(
                role="assistant",
                tool_calls=(ToolCall(id=f"c{call}", name="Skill", arguments=arguments),),
            )
        )
        talk.result(f"c{call}", f"how to do it, {call}")
    facts = Facts.from_json(
        extend_facts(Facts(skills=(Skill("old", "as ever"),)), talk.view.items).to_json()
    )
    assert facts.skills == (
        Skill("old", "as ever"),
        Skill("sheets", "how to do it, 1"),
        Skill("pdf", "how to do it, 2"),
    )
    assert [command.what for command in facts.commands] == ["no json"]


def load_skill(talk: ConversationBuilder, text: str) -> str:
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="c", name="skill", arguments='{"name": "pdf"}'),),
        )
    )
    return talk.result("c", text)


@pytest.mark.parametrize("reason", ["pruned", "superseded"])
def test_the_text_of_a_skill_is_the_one_it_had_before_it_was_pruned(reason: str) -> None:
    talk = ConversationBuilder()
    talk.edit(load_skill(talk, "use tabs"), "[removed]", reason=reason)
    assert facts_of(talk).skills == (Skill("pdf", "use tabs"),)


def test_what_a_program_took_out_of_a_result_does_not_come_back_when_the_result_is_pruned() -> None:
    talk = ConversationBuilder()
    result = load_skill(talk, "use tabs, the password is x")
    talk.edit(result, "use tabs", reason="redacted")
    talk.edit(result, "[removed]", reason="pruned")
    assert facts_of(talk).skills == (Skill("pdf", "[removed]"),)


def test_a_skill_that_could_not_be_loaded_is_not_carried() -> None:
    talk = ConversationBuilder()
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="c", name="skill", arguments='{"name": "pdf"}'),),
        )
    )
    talk.say(
        ToolResult("no such skill", is_error=True).to_message(
            ToolCall(id="c", name="skill", arguments="")
        )
    )
    facts = extend_facts(Facts(), talk.view.items)
    assert facts.skills == ()
    assert facts.errors == ("no such skill",)


def test_all_skills_are_named_and_the_newest_texts_stay_within_the_bounds_of_a_list() -> None:
    talk = ConversationBuilder()
    for number in range(5):
        arguments = json.dumps({"name": f"s{number}"})
        talk.say(
            Message(
                role="assistant",
                tool_calls=(ToolCall(id=f"c{number}", name="skill", arguments=arguments),),
            )
        )
        talk.result(f"c{number}", "x" * (MAX_SKILL_CHARACTERS + 1_000 if number == 3 else 15_000))
    facts = extend_facts(Facts(), talk.view.items)
    assert [(skill.name, len(skill.text)) for skill in facts.skills] == [
        ("s0", 0),
        ("s1", 0),
        ("s2", 0),
        ("s3", MAX_SKILL_CHARACTERS),
        ("s4", 15_000),
    ]
    assert extend_facts(facts, ()) == facts == Facts.from_json(facts.to_json())


def test_names_that_the_user_and_the_model_wrote_come_before_those_that_were_only_read() -> None:
    talk = ConversationBuilder()
    talk.user("look at load_row")
    talk.answer("load_row and save_row are there: ValueError")
    call(talk, "read", "other_row, in a result", path="src/io.py")

    names = [name.text for name in facts_of(talk).names]

    assert names[0] == "load_row"  # the user and the model said it
    assert names.index("save_row") < names.index("other_row")
    assert "ValueError" not in names  # every model knows it


def test_a_name_that_the_last_edit_removed_comes_after_all_others_until_it_is_written_again() -> (
    None
):
    talk = ConversationBuilder()
    call(talk, "read", "load_row and save_row", path="src/io.py")
    call(talk, "edit", path="src/io.py", old_string="load_row()", new_string="save_row()")
    assert [name.text for name in facts_of(talk).names] == ["src/io.py", "save_row", "load_row"]
    talk.answer("load_row is back")
    assert facts_of(talk).names[0].text == "load_row"


def test_names_are_bounded_and_survive_the_way_through_a_checkpoint() -> None:
    talk = ConversationBuilder()
    talk.user(" ".join(f"name_{number}" for number in range(2 * MAX_NAMES)))
    facts = facts_of(talk)
    assert len(facts.names) == MAX_NAMES
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    assert Facts.from_json({"names": [1, "x", {"text": "a", "seen": "b"}]}).names == (
        Name("a", 0, 0, 0),
    )


def test_values_of_a_summary_s_own_facts_replace_those_of_the_messages() -> None:
    found = Facts(requests=("Build it.",), read=("a.py",), messages=3)
    own = Facts(read=("b.py",), earlier="", memories="")

    assert found.merge(own) == attrs.evolve(found, read=("b.py",), earlier="", memories="")
    assert found.merge(Facts()) == found


def test_a_list_of_memories_that_is_empty_is_stored() -> None:
    assert Facts(memories="").to_json() == {"memories": ""}
    assert Facts.from_json({"memories": ""}).memories == ""
    assert Facts.from_json({"memories": 1}).memories is None


def test_a_list_that_a_summarizer_of_a_program_gave_is_stored() -> None:
    fields: dict[str, Any] = {"requests": ["Fix the login."], "changed": ["a.py"]}
    assert attrs.evolve(Facts(), **fields).to_json() == fields
