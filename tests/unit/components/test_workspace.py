"""`Workspace`: files, changes and terminal, each with its share."""

from __future__ import annotations

from promptkit_components import Diff, Terminal, Workspace

from promptkit import UserMessage, render

LONG = "\n".join(f"line {i} of the output" for i in range(300))


def test_is_nothing_when_there_is_nothing_to_say() -> None:
    assert render(UserMessage()[Workspace()]).messages == ()
    assert render(UserMessage()[Diff(text="\n"), Terminal(output=" ")]).messages == ()


def test_keeps_the_end_of_the_terminal() -> None:
    text = render(UserMessage()[Terminal(output=LONG, command="make")], budget=80).messages[0].text
    assert "line 299" in text
    assert "line 0 " not in text
    assert "[… earlier output …]" in text


def test_keeps_the_head_of_the_diff() -> None:
    text = render(UserMessage()[Diff(text=LONG)], budget=80).messages[0].text
    assert "line 0 " in text
    assert "line 299" not in text
    assert "[… the diff goes on …]" in text


def test_gives_every_part_room() -> None:
    paths = [f"src/module_{i}.py" for i in range(300)]
    rendered = render(
        UserMessage()[
            Workspace(root="shop", paths=paths, diff=LONG, terminal=LONG, notes="Branch: main")
        ],
        budget=600,
    )
    text = rendered.messages[0].text
    assert rendered.tokens <= 600
    for part in ('<workspace root="shop">', "Branch: main", "<files>", "<diff>", "<terminal>"):
        assert part in text


def test_never_exceeds_the_budget() -> None:
    paths = [f"src/module_{i}.py" for i in range(100)]
    for budget in range(0, 1_500, 150):
        assert (
            render(
                UserMessage()[Workspace(paths=paths, diff=LONG, terminal=LONG)], budget=budget
            ).tokens
            <= budget
        )
