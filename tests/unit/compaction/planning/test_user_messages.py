"""User messages stay verbatim, the newest first, within a total and a length of each."""

from __future__ import annotations

import time

import attrs
import pytest

from promptkit.compaction.planning.user_messages import (
    UserMessageHistory,
    VerbatimUserMessages,
    find_constraints,
)
from promptkit.compaction.run.pins import find_marked
from promptkit.errors import InvalidArgumentError
from promptkit.messages import ImagePart
from promptkit.testing import WordTokenizer
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.log.view import ViewItem
from tests.conversations import ConversationBuilder, words

TOKENIZER = WordTokenizer()


def kept(talk: ConversationBuilder, originals: VerbatimUserMessages) -> tuple[list[str], int]:
    said, omitted = originals.select(talk.view.items, TOKENIZER)
    return [item.message.text for item in said], omitted


def asked(*texts: str) -> ConversationBuilder:
    talk = ConversationBuilder()
    for text in texts:
        talk.user(text)
        talk.answer("yes")
    return talk


def test_everything_stays_where_there_is_room_in_its_order() -> None:
    assert kept(asked("one", "two", "three"), VerbatimUserMessages()) == (
        ["[answered] one", "[answered] two", "[answered] three"],
        0,
    )


@pytest.mark.spec("E71")
def test_the_message_on_the_edge_is_cut_in_the_middle_with_a_marker_and_older_ones_are_counted() -> (
    None
):
    talk = asked("old", words(20, "a"), words(5, "b"))
    assert kept(talk, VerbatimUserMessages(max_tokens=12)) == (
        ["[answered] a a […] a a", f"[answered] {words(5, 'b')}"],
        1,
    )


def test_a_long_message_is_cut_in_the_middle_whatever_the_total() -> None:
    assert kept(asked(words(50, "a"), "b"), VerbatimUserMessages(max_message_tokens=6)) == (
        ["[answered] a a […] a a", "[answered] b"],
        0,
    )


@pytest.mark.spec("E71")
def test_a_cut_never_ends_inside_a_character_of_any_script() -> None:
    talk = asked("👩‍👩‍👧‍👦🇫🇷é" * 40)
    (item,), _ = VerbatimUserMessages(max_tokens=30).select(
        talk.view.items, tokenizer_for("gpt-4o")
    )
    text = item.message.text
    assert "[…]" in text
    text.encode("utf-8")
    head, tail = text.removeprefix("[answered] ").split("[…]")
    assert set(head.replace("👩‍👩‍👧‍👦", "").replace("🇫🇷", "").replace("é", "")) == set()
    assert set(tail.replace("👩‍👩‍👧‍👦", "").replace("🇫🇷", "").replace("é", "")) == set()


@pytest.mark.spec("E69")
def test_earlier_summaries_and_reminders_are_not_collected() -> None:
    talk = ConversationBuilder()
    talk.checkpoint("the summary before")
    talk.reminder("mind the gap")
    talk.branch("a branch")
    talk.user("the request")
    assert kept(talk, VerbatimUserMessages()) == (["[open] the request"], 0)


def test_a_replacement_of_the_checkpoint_before_is_collected_again_but_not_what_nobody_said() -> (
    None
):
    said = [
        ViewItem(message=item.message, entry_id="c", kind="replacement")
        for item in asked("first").view.items[:1]
    ]
    noted = [
        ViewItem(message=item.message, entry_id="c", kind="summary")
        for item in asked("a note").view.items[:1]
    ]
    shown, omitted = VerbatimUserMessages().select([*noted, *said], TOKENIZER)
    assert ([item.message.text for item in shown], omitted) == (["[open] first"], 0)


def test_pictures_stay_with_what_stays_whole() -> None:
    talk = ConversationBuilder()
    picture = ImagePart(url="https://example.org/a.png")
    talk.user("look", picture)
    (item,), _ = VerbatimUserMessages().select(talk.view.items, TOKENIZER)
    assert item.message.content == ("[open] ", "look", picture)


def test_each_message_is_marked_and_one_that_was_answered_stays_so_where_its_reply_is_gone() -> (
    None
):
    talk = asked("one")
    talk.user("two")
    once, _ = VerbatimUserMessages().select(talk.view.items, TOKENIZER)
    again, _ = VerbatimUserMessages().select(
        [attrs.evolve(item, kind="replacement") for item in once], TOKENIZER
    )
    assert [item.message.text for item in again] == ["[answered] one", "[open] two"]
    answered, _ = VerbatimUserMessages().select(once, TOKENIZER, kept=asked("three").view.items)
    assert [item.message.text for item in answered] == ["[answered] one", "[answered] two"]


@pytest.mark.parametrize("said", ["[…]", ""])
def test_a_message_that_looks_like_what_was_cut_out_hides_no_older_ones(said: str) -> None:
    text = UserMessageHistory(max_tokens=60).format(
        ["Always use tabs.", said, words(100)], tokenizer=TOKENIZER
    )
    assert f"[answered] Always use tabs.\n[answered] {said}\n[answered] w w" in text


def test_negative_figures_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        VerbatimUserMessages(max_tokens=-1)


@pytest.mark.parametrize(
    "said",
    [
        "Pushe nicht auf main.",
        "Fass die Datenbank nicht an!",
        "Ne pousse pas sur main.",
        "No hagas push a main.",
        "Não faça push.",
        "Non toccare il database.",
        "не пушь в main.",
        "main にプッシュするな。",
        "别动数据库。",
        "You can't touch the db.",
        "no force pushes",
        "- no force pushes",
        "Never push to main, ok?",
        "Do NOT push to main (e.g. via git).",
        "Bitte nicht pushen, z.B. auf main.",
    ],
)
def test_orders_not_to_do_something_are_found_whole_and_in_many_languages(said: str) -> None:
    assert find_constraints([said]) == (said,)


@pytest.mark.parametrize(
    "end", [". ", "! ", "? ", ": ", "; ", ", ", "\u2014 ", "- ", "* ", "\u2022 ", ""]
)
def test_an_order_is_found_at_the_start_of_each_clause_and_nowhere_else(end: str) -> None:
    text = f"Go on{end} \tno force pushes"
    assert bool(find_constraints([text])) is bool(end)


def test_sentences_end_at_wide_marks_with_and_without_white_space_but_not_at_abbreviations() -> (
    None
):
    text = "别动数据库。好的。 Never push!不要删除。ok. Avoid e.g. tabs, z. B. here. Go on."
    assert find_constraints([text]) == (
        "别动数据库。",
        "Never push!不要删除。",
        "Avoid e.g. tabs, z. B. here.",
    )


@pytest.mark.parametrize(
    "said",
    [
        "Never mind, go on.",
        "Don't worry about the tests.",
        "It works without errors now.",
        "Add a flag --without-docs.",
        "No problem.",
        "cat: a.py: No such file or directory",
        "No tests failed.",
        "Das geht nicht.",
        "Tests laufen nicht.",
        "Ça ne marche pas.",
        "не очень хорошо.",
        "这是特别好的类别。",
        "終わるかな。",
        "You can't see it?",
    ],
)
def test_what_forbids_nothing_is_no_constraint(said: str) -> None:
    assert find_constraints([said]) == ()


FILE = '<attachment path="a.md">\nYou must not ask. [[no]]\n```\n</attachment>'


@pytest.mark.parametrize(
    "quoted",
    [
        FILE,
        f"{FILE}\n\n{FILE}",
        "```py\nNever do it. [[no]]\n```",
        "```\r\nNever do it. [[no]]\r\n```\r",
        "> ~~~~\n> ~~~\n> Never do it. [[no]]\n> ~~~~",
        "# Do not edit by hand. Never ask.\n// Never call it.\nlog('it does not avoid it');",
    ],
)
def test_attached_files_and_code_are_not_the_user_s_words(quoted: str) -> None:
    text = f"Never push. [[one\n{FILE}\ntwo]]\n\n{quoted}\n\nNever pull. [[yes]]"
    assert find_constraints([text]) == ("Never push.", "Never pull.")
    assert list(find_marked(text, ("[[", "]]"))) == [f"one\n{FILE}\ntwo", "yes"]


def test_of_an_attached_file_whose_start_is_cut_nothing_is_a_constraint() -> None:
    text = f"Never push. {words(10)}\n{words(10)}[…]tail\nNever ask.\n</attachment>\nNever pull."
    assert find_constraints([text]) == ("Never push.", "Never pull.")


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 40_000,
        "no " * 40_000,
        "`" * 40_000,
        "```\n" * 40_000,
        f"{FILE}\n" * 2_000,
        "не " * 40_000,
    ],
)
def test_constraints_are_found_in_linear_time(text: str) -> None:
    started = time.process_time()
    find_constraints([text, text.replace("\n", " ")])
    assert time.process_time() - started < 2
