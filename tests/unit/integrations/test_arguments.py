"""What all adapters have in common: keywords, arguments that are refused at once, and one line in an interactive session."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from promptkit.compaction import PRESETS, ExtractiveSummarizer
from promptkit.errors import InvalidArgumentError
from promptkit.transcript import Transcript

REASON = "the frameworks are not installed together: pip install '.[dev]'"
langchain = pytest.importorskip(
    "promptkit.integrations.langchain", reason=REASON, exc_type=ImportError
)
openai_agents = pytest.importorskip(
    "promptkit.integrations.openai_agents", reason=REASON, exc_type=ImportError
)
pydantic_ai = pytest.importorskip(
    "promptkit.integrations.pydantic_ai", reason=REASON, exc_type=ImportError
)

FITS: list[Callable[..., Any]] = [  # Any: classes of three frameworks
    langchain.FitMiddleware,
    openai_agents.fit_input_filter,
    pydantic_ai.Fit,
]
COMPACTIONS: list[Callable[..., Any]] = [  # Any: as above
    langchain.CompactionMiddleware,
    openai_agents.compaction_input_filter,
    pydantic_ai.Compaction,
]


@pytest.mark.parametrize("make", [*FITS, *COMPACTIONS, openai_agents.TranscriptSession])
def test_all_arguments_are_keywords(make: Callable[..., Any]) -> None:
    kinds = {each.kind for each in inspect.signature(make).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("make", COMPACTIONS)
def test_an_unknown_preset_is_refused_at_once_with_the_names_of_all(
    make: Callable[..., Any],
) -> None:
    with pytest.raises(InvalidArgumentError, match="vscod'") as caught:
        make(preset="vscod")
    assert all(name in str(caught.value) for name in PRESETS)


@pytest.mark.parametrize("make", COMPACTIONS)
@pytest.mark.parametrize("summarizer", ["gpt-5", "extractive", ExtractiveSummarizer])
def test_what_is_no_summarizer_is_refused_at_once(
    make: Callable[..., Any], summarizer: object
) -> None:
    with pytest.raises(TypeError, match=r"such as ExtractiveSummarizer\(…\), or a model object"):
        make(summarizer=summarizer)


@pytest.mark.parametrize("make", [*FITS, *COMPACTIONS])
@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        ("budget", "8q", "use 8000, 8k or 1m"),
        ("budget", 0, "at least 1 token"),
        ("model", 5, "a model's name such as"),
        ("tokenizer", "gpt-5", "such as tokenizer_for"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    make: Callable[..., Any], argument: str, value: object, says: str
) -> None:
    with pytest.raises((InvalidArgumentError, TypeError), match=says):
        make(**{argument: value})


@pytest.mark.parametrize("make", FITS)
def test_a_wrong_keep_is_refused_at_once(make: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgumentError, match='write "newest" or "oldest"'):
        make(keep="latest")


@pytest.mark.parametrize("make", [*FITS, *COMPACTIONS])
def test_a_representation_is_one_line_with_what_was_given(make: Callable[..., Any]) -> None:
    shown = repr(make(budget="64k", model="gpt-4.1"))
    assert "64k" in shown
    assert "gpt-4.1" in shown
    assert ("'vscode'" if make in COMPACTIONS else "'newest'") in shown
    assert "\n" not in shown
    assert len(shown) <= 120


def test_the_representation_of_a_session_names_its_conversation() -> None:
    session = openai_agents.TranscriptSession(session_id="talk", transcript=Transcript())
    assert (
        repr(session)
        == "<TranscriptSession session_id: 'talk', transcript: <Transcript entries: 0>>"
    )
