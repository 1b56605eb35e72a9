"""The summary in what a model answered."""

from __future__ import annotations

import pytest

from promptkit.compaction.parsing import extract_summary, without_analysis


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<summary>S</summary>", "S"),
        ("Here it is:\n<summary>\n S\n</summary>\nAnything else?", "S"),
        ("<SUMMARY>S</Summary>", "S"),
        ("<summary></summary>", ""),
        ("<summary> \n </summary>", ""),
        ("no tags at all", None),
        ("", None),
        ("</summary>", None),
        ("<summary>cut sho", "cut sho"),
        ("<analysis>A</analysis><summary>cut sho", "cut sho"),
        ("<summary>first</summary><summary>second</summary>", "first"),
        ("<analysis>A</analysis><summary>first</summary><summary>second</summary>", "first"),
        ("<analysis>In <summary>s I list</summary> files.</analysis><summary>S</summary>", "S"),
        ("<analysis>In <summary> I list files.</analysis>\n\n<summary>S</summary>", "S"),
        ("<analysis>A</analysis>\nSo:\n<summary>S</summary>", "S"),
        ("<analysis>A</analysis><summary>S <analysis>inner</analysis> T</summary>", "S <analysis>inner</analysis> T"),
        ("<analysis>A</analysis>\nSo:\n<summary>S <analysis>inner</analysis> T</summary>", "S <analysis>inner</analysis> T"),
        ("<analysis>I close with </analysis> later.</analysis>So <summary>S</summary>", "S"),
        (
            "<analysis>A</analysis><summary>They asked for </analysis> and <summary> in it</summary>",
            "They asked for </analysis> and <summary> in it",
        ),
        ("<summary>S</summary><analysis>late</analysis>", "S"),
        ("<analysis>never closed <summary>S</summary>", "S"),
        ("<analysis>Next I write the <summary> with", None),
    ],
)
def test_the_block_behind_the_thoughts_counts(text: str, summary: str | None) -> None:
    assert extract_summary(text) == summary


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("S", "S"),
        ("<analysis>A</analysis>\nS", "S"),
        ("S<analysis>A</analysis> and <analysis>B</analysis>T", "S and T"),
        ("<analysis>cut sho", ""),
        ("S <analysis>cut sho", "S"),
        (" ", ""),
    ],
)
def test_thoughts_are_no_summary(text: str, rest: str) -> None:
    assert without_analysis(text) == rest


def test_hostile_replies_cost_linear_time() -> None:
    for piece in ("</analysis>", "</analysis> ", "<analysis>", "<summary", "</analysis>\n\n\n<summary", " " * 10):
        extract_summary(piece * 100_000)
        without_analysis(piece * 100_000)
