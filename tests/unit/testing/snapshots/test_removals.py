"""The receipt as a snapshot: budget, tokens, what was dropped and why."""

from __future__ import annotations

from importlib.metadata import version

from promptkit import (
    KeepWith,
    Metadata,
    PrioritizedList,
    Reference,
    Reserve,
    SystemMessage,
    TextChunk,
    UserMessage,
)
from promptkit.messages import Repair
from promptkit.testing.snapshots.documents import (
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    format_receipt,
    render_levels,
)
from promptkit.testing.word_tokenizer import WordTokenizer


def document(prompt: object, *budgets: int, ids: bool = False) -> str:
    stable = Stabilizer(StabilizeOptions(ids=ids))
    return format_receipt(
        render_levels(
            prompt, SnapshotOptions(budgets=budgets or None, tokenizer=WordTokenizer()), stable
        ),
        stable,
    )


PROMPT = (
    SystemMessage(required=True)["Be brief."],
    PrioritizedList(priority=5, descending=False)[
        UserMessage()["one one one"], UserMessage()["two two"]
    ],
    KeepWith(group="pair", priority=1)[UserMessage(label="question")["three"]],
    KeepWith(group="pair", priority=7)[UserMessage()["four", Reference(to="four.md")]],
    Metadata(value=Repair(kind="missing result", detail="call c1 has none.")),
)

SHOWN = f"""\
promptkit {version("promptkit")}

== 10 tokens ==
9 of 10 tokens in 5 messages
budget: 10 tokens, as given
repaired: missing result: call c1 has none.
removed: nothing

== 5 tokens ==
4 of 5 tokens in 2 messages
budget: 5 tokens, as given
repaired: missing result: call c1 has none.
reference left out: four.md
removed: 3 pieces, first to last
   tokens  priority  reason     element
        1         1  budget     question
        1         7  kept-with  UserMessage[3] (with question)
        3         3  budget     PrioritizedList[1] > UserMessage[0]

== 1 tokens ==
4 tokens do not fit a budget of 1 (over by 3), and what would be pruned next is the last user message, PrioritizedList[1] > \
UserMessage[1]. Largest: SystemMessage[0] 2; PrioritizedList[1] > UserMessage[1] 2. Give what may go before it a lower priority, \
shorten one of them, or raise the budget.
"""


def test_says_at_each_budget_what_was_used_and_what_was_dropped_and_why() -> None:
    assert document(PROMPT, 10, 5, 1) == SHOWN


def test_one_more_removal_is_one_more_line() -> None:
    before, after = (document(PROMPT, budget).split("\n") for budget in (7, 5))
    removals = [
        line
        for line in after
        if line not in before and not line.startswith(("== ", "budget", "4 of", "removed"))
    ]
    assert removals == ["        3         3  budget     PrioritizedList[1] > UserMessage[0]"]


def test_what_is_reserved_is_said() -> None:
    assert "\nreserved: 3 tokens\n" in document((UserMessage()["one"], Reserve(tokens=3)), 10)


def test_ids_in_repairs_are_stable_too() -> None:
    repair = Metadata(
        value=Repair(
            kind="missing result", detail="call 3fa85f64-5717-4562-b3fc-2c963f66afa6 has none."
        )
    )
    assert "missing result: call <id 1> has none." in document(
        (UserMessage()["one"], repair), ids=True
    )


def test_each_removal_is_one_line_whatever_its_name_is() -> None:
    lines = document(
        (UserMessage(label="a\nb\r", priority=1)["one two"], UserMessage(priority=2)["three"]), 1
    ).split("\n")
    assert len(lines) == len(
        document((UserMessage(priority=1)["one two"], UserMessage(priority=2)["three"]), 1).split(
            "\n"
        )
    )
    assert "\r" not in "".join(lines)


def test_without_a_budget_the_default_is_named() -> None:
    shown = document(UserMessage()["one", TextChunk()["two"]])
    assert "== " not in shown
    assert "128,000 tokens, the default without a budget or a model" in shown
