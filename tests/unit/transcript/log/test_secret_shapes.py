"""Secrets of many shapes are taken out, and what only looks like one stays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from promptkit.transcript.log.redaction import load_scanner, redact_secrets
from tests.unit.transcript.log.secret_shapes import DECOYS, RARE, SHAPES

if TYPE_CHECKING:
    from promptkit.transcript.log.redaction import Redactor


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_of_every_shape_is_taken_out(name: str) -> None:
    template, secret = SHAPES[name]
    text = template.format(secret)
    shown = redact_secrets(f"Before: x. {text} And behind.")
    assert secret not in shown
    assert secret[-12:] not in shown
    assert "[redacted: " in shown
    assert shown.startswith("Before: x. ")
    assert redact_secrets(shown) == shown


def test_secrets_without_a_space_between_are_taken_out_at_once() -> None:
    for first in SHAPES.values():
        for second in list(SHAPES.values())[::5]:
            shown = redact_secrets(first[0].format(first[1]) + second[0].format(second[1]))
            assert redact_secrets(shown) == shown


@pytest.mark.parametrize("text", DECOYS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact_secrets(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        "curl ",
        "curl -u ",
        "mysql ",
        "password=",
        "password: a1",
        "pass='",
        "cookie: ",
        "login a password ",
        "$6$",
        "--password ",
        "s.",
        "N" * 23 + ".",
    ],
)
def test_a_hundred_thousand_characters_made_to_be_slow_are_not(unit: str) -> None:
    assert redact_secrets((unit * (100_000 // len(unit) + 1))[:100_000])


@pytest.fixture(scope="module")
def redact() -> Redactor:
    pytest.importorskip(
        "kingfisher_sdk", reason="the rules of a scanner need Kingfisher: pip install '.[scanner]'"
    )
    return load_scanner()


class TestScanner:
    """The rules of a kept scanner, beyond the shapes above."""

    @pytest.mark.parametrize("name", [*RARE, *list(SHAPES)[::9]])
    def test_secrets_of_services_that_few_use_are_taken_out_too(
        self, redact: Redactor, name: str
    ) -> None:
        template, secret = (RARE | SHAPES)[name]
        shown = redact(f"See \ud800 {template.format(secret)} here.")
        assert secret not in shown
        assert redact(shown) == shown

    def test_what_only_looks_like_a_secret_stays(self, redact: Redactor) -> None:
        assert [text for text in DECOYS if redact(text) != text] == []


def test_a_scanner_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'kingfisher-secret-scanner>=1\.5'"):
        load_scanner()
