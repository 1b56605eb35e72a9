"""These survive a compaction whatever a model writes: the user's own words, the plan, the open points, the newest files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import ContextBudget, ContextWindow, Message, ToolCall, UserMessage, render
from promptkit.compaction import (
    PRESETS,
    ChunkedSummarizer,
    ExtractiveSummarizer,
    FullSummarizer,
    InlineSummarizer,
    LastRequest,
    Plan,
    Replacement,
    SimpleSummarizer,
    SplitTurnSummarizer,
    Summary,
    SummaryTask,
)
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.user_messages import (
    MARKER,
    SHORTENED_TOKENS,
    UserMessageHistory,
    rank_requests,
)
from promptkit.compaction.run.replacement import carry_from_facts
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.compaction.summarizers.prompts import write_instructions
from promptkit.compaction.summarizers.summarizer import HANDOFF_TEMPLATE, SECTIONS, TEMPLATE
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript import ViewItem
from tests.conversations import ConversationBuilder, words
from tests.examples import examples, keep_first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.compaction import Summarizer
    from promptkit.providers.model import Model

WORDS = WordTokenizer()
SUMMARIZING = [name for name in PRESETS if name not in {"off", "amp", "truncate_only"}]
WITH_HISTORY = [name for name in SUMMARIZING if name not in {"codex", "copilot_cli"}]


@attrs.define
class Forgetful:
    """Writes a summary that says nothing."""

    tasks: list[SummaryTask] = attrs.field(factory=list["SummaryTask"])

    async def summarize(self, task: SummaryTask) -> Summary:
        self.tasks.append(task)
        return Summary(text=f"Summary {len(self.tasks)}: " + words(30, "nothing"), mode="test")


def open_window(preset: str, *, tokens: int = 20_000) -> ContextWindow:
    budget = ContextBudget(window=tokens, reserved_output_tokens=tokens // 10)
    return ContextWindow(
        model="m", preset=preset, budget=budget, tokenizer=WORDS, summarizer=Forgetful()
    )


def say(window: ContextWindow, said: str, *, reply: bool = True) -> None:
    """A turn with a call and, unless it goes on, its final reply."""
    number = len(window.transcript)
    window.add(Message(role="user", content=said))
    window.add(
        Message(
            role="assistant",
            tool_calls=[ToolCall(id=f"c{number}", name="bash", arguments={"command": "make"})],
        )
    )
    window.add(Message(role="tool", tool_call_id=f"c{number}", content=words(300, "output")))
    if reply:
        window.add(Message(role="assistant", content=words(100, "reply")))


def shown(window: ContextWindow) -> str:
    request = asyncio.run(window.request())
    return "\n\n".join(f"{message.role}: {message.text}" for message in request.messages)


def compact(window: ContextWindow) -> None:
    assert asyncio.run(window.compact()) is not None


def wish(number: int) -> str:
    return f"Wish {number}: never touch\n  the file `legacy_{number}.py`, <b>whatever</b> happens; Ж {number} 中文."


def fill(window: ContextWindow, first: int, count: int = 100) -> None:
    """Enough turns that every preset has something to drop."""
    for number in range(first, first + count):
        say(window, wish(number) if number < first + 3 else "Go on.")


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_whatever_a_model_writes_each_user_message_is_in_the_next_request_word_for_word(
    preset: str,
) -> None:
    window = open_window(preset)
    fill(window, 0, 40)
    compact(window)
    after = shown(window)
    assert "Summary 1:" in after
    assert [number for number in range(3) if wish(number) not in after] == []


@pytest.mark.parametrize("preset", keep_first(3, *SUMMARIZING))
def test_after_three_compactions_the_first_words_are_still_there_once(preset: str) -> None:
    window = open_window(preset)
    for round_number in range(3):
        fill(window, 100 * round_number, 40)
        compact(window)
    after = shown(window)
    assert "Summary 3:" in after
    assert "Summary 2:" not in after
    assert {
        number: after.count(wish(number)) for at in (0, 100, 200) for number in range(at, at + 3)
    } == {number: 1 for at in (0, 100, 200) for number in range(at, at + 3)}


@pytest.mark.parametrize("preset", WITH_HISTORY)
def test_what_was_answered_is_marked_so_and_the_open_request_stands_as_a_message_of_its_own(
    preset: str,
) -> None:
    window = open_window(preset)
    fill(window, 0, 40)
    say(window, "And now the lexer, please.", reply=False)
    compact(window)
    request = asyncio.run(window.request())
    (summary,) = (message for message in request.messages if "Summary 1:" in message.text)
    assert f"[answered] {wish(0)}" in summary.text
    assert "[open]" not in summary.text
    assert "lexer" not in summary.text
    assert [message.text for message in request.messages if message.role == "user"][
        -1
    ] == "And now the lexer, please."


@pytest.mark.parametrize("preset", WITH_HISTORY)
def test_a_message_that_is_still_shown_is_not_repeated(preset: str) -> None:
    window = open_window(preset)
    fill(window, 0, 40)
    say(window, "The newest wish of all.")
    compact(window)
    assert shown(window).count("The newest wish of all.") == 1


@pytest.mark.parametrize("preset", WITH_HISTORY)
def test_the_user_s_words_take_at_most_an_eighth_of_the_conversation_s_room(preset: str) -> None:
    window = open_window(preset)
    for number in range(100):
        say(window, f"{number} " + words(50, "said"))
    compact(window)
    (history,) = (
        message.text.split("<user-messages>")[1]
        for message in window.view.messages
        if "<user-messages>" in message.text
    )
    base = window.budget.base
    assert base is not None
    assert WORDS.count(history) <= base // 8
    assert "earlier messages are left out]" in history
    assert history.count("[answered] 0 ") == 1
    assert not history.count("[answered] 1 ")
    _, first, *_, last = (line for line in history.splitlines() if line.startswith("[answered]"))
    assert MARKER in first
    assert last.endswith(words(50, "said"))


def test_a_compaction_soon_after_another_takes_nothing_of_the_user_s_words() -> None:
    window = open_window("claude_code")
    fill(window, 0, 40)
    compact(window)
    before = window.view.messages[0].text.split("<user-messages>")[1]
    say(window, "One more.")
    compact(window)
    after = window.view.messages[0].text.split("<user-messages>")[1]
    assert after.replace("[answered] One more.\n", "") == before


def test_a_request_that_an_own_plan_drops_unanswered_is_marked_as_open() -> None:
    history = UserMessageHistory().format(
        ["first", "second", "third"], unanswered=2, tokenizer=WORDS
    )
    assert history.splitlines()[2:-1] == ["[answered] first", "[open] second", "[open] third"]


def test_a_huge_message_keeps_its_beginning_and_its_end() -> None:
    said = ["The goal.", f"Begin {words(500)} end.", "Thanks."]
    lines = UserMessageHistory(max_tokens=100).format(said, tokenizer=WORDS).splitlines()
    assert lines[2] == "[answered] The goal."
    assert lines[3].startswith("[answered] Begin w")
    assert MARKER in lines[3]
    assert lines[3].endswith("w end.")
    assert lines[4] == "[answered] Thanks."


def test_a_user_message_cannot_end_the_history() -> None:
    history = UserMessageHistory().format(["a</user-messages>b"], tokenizer=WORDS)
    assert history.count("</user-messages>") == 1


@settings(max_examples=examples(200))
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    most=st.integers(0, 300),
    unanswered=st.integers(0, 3),
)
def test_the_cap_holds_and_what_leaves_first_is_shortened_first(
    sizes: list[int], most: int, unanswered: int
) -> None:
    said = [words(size, f"m{at}") for at, size in enumerate(sizes)]
    text = UserMessageHistory(max_tokens=most).format(said, unanswered=unanswered, tokenizer=WORDS)
    assert WORDS.count(text) <= most
    if not text:
        return
    lines = [
        line.split("] ", 1)[1] for line in text.splitlines()[2:-1] if not line.endswith("left out]")
    ]
    assert lines
    order = rank_requests(said)
    late = order[len(said) - len(lines) :]
    shown_at = dict(zip(sorted(late), lines, strict=True))
    lines, of_newest = [shown_at[at] for at in late], [said[at] for at in late]
    whole = [line in said for line in lines]
    assert all(
        line == whole_text or MARKER in line
        for line, whole_text in zip(lines, of_newest, strict=True)
    )
    if len(lines) == len(said) and all(whole):
        return
    room = most - (WORDS.count(text) - sum(map(WORDS.count, lines)))
    # of more than half of the room
    huge = [
        WORDS.count(text) > most // 4 or WORDS.count(text) + 4 > room // 2 for text in of_newest
    ]
    shortened = [at for at, is_whole in enumerate(whole) if not is_whole and not huge[at]]
    older = lines[: shortened[-1]] if shortened else []
    # what leaves before a shortened message is short
    assert all(WORDS.count(line) <= SHORTENED_TOKENS for line in older)
    full = UserMessageHistory(max_tokens=10_000).format(
        said, unanswered=unanswered, tokenizer=WORDS
    )
    assert WORDS.count(full) > most  # nothing is shortened that fits


def leave_in_turn(said: list[str]) -> list[int]:
    """The places of messages in the order in which they leave a history that gets smaller and smaller."""
    left: list[int] = []
    whole = format_history(said, 4_000)
    assert all(text in whole for text in said)
    for size in range(WORDS.count(whole), 0, -1):
        text = format_history(said, size)
        gone = [at for at in range(len(said)) if at not in left and f"no{at}" not in text]
        left += gone
    return left


FORBIDDEN = (
    "NEVER-PUSH",
    "Please don\u2019t touch the tests",
    "You must not delete it",
    "Ask me before you deploy",
    "Bitte niemals löschen",
    "不要删除",
)


def format_history(said: list[str], size: int) -> str:
    return UserMessageHistory(max_tokens=size).format(said, tokenizer=WORDS)


@pytest.mark.parametrize(
    ("forbidding", "sizes"),
    [
        *((forbidding, (40, 40, 40, 40, 40, 40)) for forbidding in FORBIDDEN),
        (FORBIDDEN[0], (200, 5, 90, 300, 5, 60)),
    ],
)
def test_the_middle_leaves_first_then_the_first_request_then_prohibitions_and_the_latest_never(
    forbidding: str, sizes: tuple[int, ...]
) -> None:
    said = [f"no{at} {words(size)} no{at}" for at, size in enumerate(sizes)]
    said[2] = f"no2 {forbidding}. {words(sizes[2])} no2"
    assert leave_in_turn(said)[-6:] == [1, 3, 4, 0, 2, 5]


def test_a_first_request_that_forbids_something_leaves_last() -> None:
    said = [f"no{at} {words(30)} no{at}" for at in range(5)]
    said[0] = f"no0 Port it, and never push. {words(30)} no0"
    said[3] = f"no3 Do not delete it. {words(30)} no3"
    assert leave_in_turn(said) == [1, 2, 0, 3, 4]


def test_facts_keep_prohibitions_longer_than_other_requests() -> None:
    talk = ConversationBuilder()
    for number in range(12):
        text = f"no{number} {'Never push.' if number == 4 else ''} {'x' * 15_000}"
        talk.user(text)
        talk.answer("yes")
    kept = extend_facts(Facts(), talk.view.items).requests
    assert [text.split()[0] for text in kept] == ["no0", "no4", "no9", "no10", "no11"]


def test_the_extract_keeps_prohibitions_longer_than_other_requests() -> None:
    talk = ConversationBuilder()
    for number in range(40):
        talk.user(f"no{number} {'Never push.' if number == 4 else ''} {words(30)}")
        talk.answer("yes")
    view = talk.view
    task = SummaryTask(plan=Plan(leaf=talk.leaf, dropped=view.items), max_tokens=600)
    text = asyncio.run(ExtractiveSummarizer(tokenizer=WORDS).summarize(task)).text
    assert "no0 " in text
    assert "no4 Never push." in text
    assert "no39 " in text
    assert "no5 " not in text


def test_the_extractive_summary_does_not_repeat_what_stands_beside_it() -> None:
    budget = ContextBudget(window=20_000, reserved_output_tokens=2_000)
    window = ContextWindow(
        model="m",
        preset="pi",
        budget=budget,
        tokenizer=WORDS,
        summarizer=ExtractiveSummarizer(tokenizer=WORDS),
    )
    fill(window, 0, 40)
    compact(window)
    beside = shown(window).partition("</constraints>")[2]
    assert beside.count(wish(1).splitlines()[0]) == 1


def test_the_extractive_summary_keeps_words_of_any_script_as_they_are() -> None:
    said = "Почему тест падает? テストが失敗する。 لماذا يفشل الاختبار؟ नमस्ते 👩‍💻"
    window = ContextWindow(
        model="m",
        preset=attrs.evolve(PRESETS["pi"](), replacement=Replacement(originals=None)),
        budget=ContextBudget(window=20_000, reserved_output_tokens=2_000),
        tokenizer=WORDS,
        summarizer=ExtractiveSummarizer(tokenizer=WORDS),
    )
    say(window, said)
    fill(window, 0, 40)
    compact(window)
    assert said in shown(window)
    assert SECTIONS[0] in shown(window)


@pytest.mark.parametrize("template", [TEMPLATE, HANDOFF_TEMPLATE])
@pytest.mark.parametrize("live", [False, True])
def test_every_prompt_asks_for_the_user_s_language_and_for_the_tags_as_they_are(
    template: Path, live: bool
) -> None:
    task = SummaryTask(plan=Plan(leaf="", dropped=()), max_tokens=100)
    asked = write_instructions(task, template, live=live)
    rendered = render(UserMessage()[asked], budget=10_000, tokenizer=WORDS)
    assert (
        "Write in the language that the person writes in, and keep the tags"
        in rendered.messages[0].text
    )


ASKING: dict[str, Callable[[Model], Summarizer]] = {
    "inline": lambda model: InlineSummarizer(model=model, tokenizer=WORDS),
    "full": lambda model: FullSummarizer(model=model, window=20_000, tokenizer=WORDS),
    "simple": lambda model: SimpleSummarizer(model=model, window=20_000, tokenizer=WORDS),
    "chunked": lambda model: ChunkedSummarizer(model=model, window=20_000, tokenizer=WORDS),
    "split turn": lambda model: SplitTurnSummarizer(
        summarizer=SimpleSummarizer(model=model, window=20_000, tokenizer=WORDS), tokenizer=WORDS
    ),
}


@pytest.mark.parametrize("kind", ASKING)
def test_each_summarizer_asks_for_it_and_a_summary_in_another_language_passes_the_check(
    kind: str,
) -> None:
    told = "Die Person möchte den Parser repariert haben. " * 20
    model = ScriptedModel(
        [f"<summary>\n{chr(10).join(f'{heading}: {told}' for heading in SECTIONS)}\n</summary>"] * 9
    )
    talk = Plan(
        leaf="e2",
        dropped=(
            ViewItem(
                message=Message(role="user", content="Bitte den Parser reparieren."), entry_id="e1"
            ),
            ViewItem(message=Message(role="assistant", content=words(2_000)), entry_id="e2"),
        ),
    )
    request = LastRequest(messages=tuple(item.message for item in talk.dropped))
    summary = asyncio.run(
        ASKING[kind](model).summarize(
            SummaryTask(plan=talk, max_tokens=4_000, last_request=request)
        )
    )
    assert told.strip() in summary.text
    assert "Write in the language that the person writes in" in "".join(
        message.text for message in model.requests[0].messages
    )


@pytest.mark.parametrize("preset", keep_first(3, *SUMMARIZING))
def test_plan_open_points_and_skills_go_on_in_every_preset(preset: str) -> None:
    window = open_window(preset)
    calls: list[tuple[str, dict[str, object]]] = [
        ("exit_plan_mode", {"plan": "1. Mend the lexer.\n2. Test it."}),
        (
            "todo_write",
            {
                "todos": [
                    {"content": "mend it", "status": "done"},
                    {"content": "test it", "status": "pending"},
                ]
            },
        ),
        ("skill", {"name": "pdf"}),
    ]
    results = {"skill": "Call pdftotext first.\nThen count pages."}
    for number, (name, arguments) in enumerate(calls):
        window.add(Message(role="user", content="Go."))
        window.add(
            Message(
                role="assistant",
                tool_calls=[ToolCall(id=f"t{number}", name=name, arguments=arguments)],
            )
        )
        window.add(
            Message(role="tool", tool_call_id=f"t{number}", content=results.get(name, "ok")),
            Message(role="assistant", content="Done."),
        )
    for number in range(2):
        fill(window, 100 * number, 40)
        compact(window)
        after = shown(window)
        assert "<plan>\n1. Mend the lexer.\n2. Test it.\n</plan>" in after
        assert "<todos>\n- [ ] test it (to be confirmed)\n</todos>" in after
        assert "<skills>\n- pdf\n  Call pdftotext first.\n  Then count pages.\n</skills>" in after


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_the_files_and_errors_of_the_dropped_part_stand_beside_a_summary_that_says_nothing(
    preset: str,
) -> None:
    window = open_window(preset)
    calls: list[tuple[str, dict[str, object], str]] = [
        ("read_file", {"path": "lexer.py"}, "def lex(): ..."),
        ("edit_file", {"path": "parser.py"}, "ok"),
        ("bash", {"command": "pytest"}, "TypeError: no lexer"),
    ]
    for number, (name, arguments, result) in enumerate(calls):
        window.add(Message(role="user", content="Go."))
        window.add(
            Message(
                role="assistant",
                tool_calls=[ToolCall(id=f"t{number}", name=name, arguments=arguments)],
            )
        )
        window.add(
            Message(role="tool", tool_call_id=f"t{number}", content=result),
            Message(role="assistant", content="Done."),
        )
    for number in range(2):
        fill(window, 100 * number, 40)
        compact(window)
        after = shown(window)
        assert "<files>\nchanged: parser.py\nread: lexer.py\n</files>" in after
        assert "<errors-seen>\n- TypeError: no lexer\n</errors-seen>" in after


def test_what_a_summary_lists_itself_is_not_repeated() -> None:
    facts = Facts(changed=("a.py",), errors=("TypeError: x",))
    listed = "S\n\n<modified-files>\na.py\n</modified-files>"
    assert (
        carry_from_facts(Plan(leaf="x"), Summary(text=listed, mode="simple", facts=facts)).files
        == ()
    )
    own = carry_from_facts(Plan(leaf="x"), Summary(text="S", mode="extractive", facts=facts))
    assert (own.files, own.errors) == ((), ())
