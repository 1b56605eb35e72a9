"""`Reminder`: rules at the end of the prompt."""

from __future__ import annotations

from promptkit_components import Reminder

from promptkit import UserMessage, render


def test_is_a_tagged_user_message() -> None:
    (message,) = render(Reminder()["Be brief.", " Be kind."]).messages
    assert message.role == "user"
    assert message.text.strip() == "<reminder>\nBe brief. Be kind.\n</reminder>"


def test_without_words_is_nothing() -> None:
    assert (
        render((UserMessage()["hi"], Reminder()[None, False, ""])).messages
        == render(UserMessage()["hi"]).messages
    )


def test_takes_another_tag() -> None:
    assert "<rules>" in render(Reminder(tag="rules")["Be brief."]).messages[0].text
