"""The reports of `bench` and `replay` in a real browser: figures under the pointer, links, and a width of 400 pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit.cli.main import main
from tests.browser.chromium import browser, find
from tests.unit.lab.replay.conversations import long_conversation, write_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

CHROMIUM = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium on PATH: install one, or name it in PROMPTKIT_CHROMIUM",
    ),
]

PROMPT = """
from promptkit import TextChunk, UserMessage, component

@component
def prompt():
    return UserMessage()["Files:", [TextChunk(priority=at)[f"file {at} of them"] for at in range(9)]]
"""

# The titles of what is under a place of the picture that is shown, from its left and top edge on.
UNDER = """([left, top]) => {
  const svg = [...document.querySelectorAll('figure svg')].find((each) => each.clientWidth);
  const box = svg.getBoundingClientRect();
  const found = document.elementFromPoint(box.left + left * box.width, box.top + top * box.height);
  return found.closest('.hover')?.querySelector('title').textContent ?? '';
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both reports, which are written before the browser starts an event loop."""
    folder = tmp_path_factory.mktemp("reports")
    write_transcript(folder / "talk.jsonl", long_conversation(16))
    (folder / "prompt.py").write_text(PROMPT, encoding="utf-8")
    replay = ["--window", "8k", "--policy", "vscode,drop_oldest", "--views", folder / "views"]
    run("replay", folder / "talk.jsonl", *replay, "--plot", folder / "replay.html")
    target = f"{folder / 'prompt.py'}:prompt"
    run("bench", target, "--budgets", "20:60:8", "--plot", folder / "bench.html")
    return folder


def run(*arguments: object) -> None:
    assert main([str(each) for each in arguments]) == 0


@pytest.fixture(scope="module")
def chromium(folder: Path) -> Iterator[Browser]:
    assert CHROMIUM
    assert folder.exists()
    with browser(CHROMIUM) as started:
        yield started


@pytest.fixture(params=[1_280, 400], ids=["wide", "narrow"])
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": request.param, "height": 900})
    yield context.new_page()
    context.close()


def test_a_replay_shows_the_figures_of_the_request_under_the_pointer(
    page: Page, folder: Path
) -> None:
    page.goto((folder / "replay.html").as_uri())
    title = page.evaluate(UNDER, [0.5, 0.25])
    assert title.startswith("request ")
    assert "vscode: " in title
    assert "drop_oldest: " in title
    assert "tokens, " in title


def test_the_policies_of_a_replay_link_to_the_page_of_their_requests(
    page: Page, folder: Path
) -> None:
    page.goto((folder / "replay.html").as_uri())
    page.get_by_role("link", name="drop_oldest").click()
    page.wait_for_selector("body.ready")
    assert page.inner_text("#title") == "talk.jsonl"
    assert "drop_oldest" in page.inner_text("#request-facts") or not page.is_visible(
        "#request-facts"
    )


def test_a_bench_shows_the_figures_of_the_cell_and_of_the_budget_under_the_pointer(
    page: Page, folder: Path
) -> None:
    page.goto((folder / "bench.html").as_uri())
    titles = page.locator("figure:visible .hover title").all_text_contents()
    assert any("TextChunk: " in title and "tokens at 60" in title for title in titles)
    assert any(title.startswith("budget 60\nthe whole budget: 60\nused: ") for title in titles)


@pytest.mark.parametrize("name", ["replay", "bench"])
def test_a_report_needs_no_scrolling_to_the_side_on_a_telephone(
    name: str, chromium: Browser, folder: Path
) -> None:
    context = chromium.new_context(viewport={"width": 400, "height": 900})
    page = context.new_page()
    page.goto((folder / f"{name}.html").as_uri())
    boxes = "[document.documentElement, ...document.querySelectorAll('.wide, figure')].map((box) => box.scrollWidth - box.clientWidth)"
    assert max(page.evaluate(boxes)) <= 0
    sizes = (
        "[...document.querySelectorAll('td')].every((cell) => cell.getBoundingClientRect().height)"
    )
    assert page.evaluate(sizes)
    context.close()


def test_views_need_a_page_that_links_to_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["replay", folder / "talk.jsonl", "--views", folder / "v"]
    assert main([str(each) for each in arguments]) == 2
    assert "--views needs --plot with an .html file" in capsys.readouterr().err
