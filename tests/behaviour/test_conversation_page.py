"""The page of a conversation in a real browser: it shows what each request showed, with what was dropped, and runs nothing of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Transcript, Usage
from promptkit.lab.replay import LogOptions, log_path
from promptkit.lab.replay.conversation_log import RECORDED, ConversationLog
from promptkit.lab.replay.conversation_page import (
    CONVERSATION,
    SCRIPTS,
    build_columns,
    conversation_to_html,
)
from promptkit.tokens import read_prices
from promptkit.transcript.log.entries import MessageEntry
from promptkit.transcript.log.view import build_view
from tests.browser.chromium import browser, find, opened
from tests.browser.reading import CONTRASTS, OUTSIDE
from tests.browser.talks import agent_log, compacted_talk, hostile_log, long_log, talk_log
from tests.conversations import assistant_message, call_message, result_message, user_message
from tests.unit.lab.replay.conversations import expand_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page


Answer = Any  # Any: what a page answers, JSON of any shape

CHROMIUM = find()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on PATH: install one, or name it in PROMPTKIT_CHROMIUM, to test the page",
)

# Goes to a request and waits until the page shows it.
GO = """async (step) => {
  const slider = document.getElementById('slider');
  slider.value = step;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
  while (document.body.dataset.step !== String(step)) await new Promise(requestAnimationFrame);
}"""

# The texts of the messages in a list, and whether each was dropped, read from top to bottom; runs
# are unfolded.
READ = """async (id) => {
  const box = document.getElementById(id);
  for (const fold of box.querySelectorAll('.fold[aria-expanded=false]')) fold.click();
  return [...box.querySelectorAll('.message')].map((card) => [
    [...card.querySelectorAll('.text')].map((each) => each.textContent).join(''), card.classList.contains('dropped')]);
}"""


@pytest.fixture(scope="module")
def replayed() -> ConversationLog:
    """A log of two policies.

    A replay needs an event loop of its own, so it is played before the browser starts one.
    """
    return talk_log("vscode", "drop_oldest", window=1_200)


@pytest.fixture(scope="module")
def chromium(replayed: ConversationLog) -> Iterator[Browser]:
    assert CHROMIUM
    assert len(replayed.logs) == 2
    with browser(CHROMIUM) as started:
        yield started


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ConversationLog], Path]:
    def write_page(log: ConversationLog) -> Path:
        path = tmp_path_factory.mktemp("page") / "conversation.html"
        path.write_text(conversation_to_html(log, title="talk.jsonl"), encoding="utf-8")
        return path

    return write_page


@pytest.fixture(scope="module")
def talk(write: Callable[[ConversationLog], Path]) -> Path:
    return write(talk_log())


def shown_text(page: Page) -> str:
    return page.inner_text("#state")


def test_the_slider_shows_what_each_request_showed_and_greys_what_it_dropped(
    chromium: Browser, talk: Path
) -> None:
    path = compacted_talk()
    replies = [
        at
        for at, entry in enumerate(path)
        if at and entry.message and entry.message.role == "assistant"
    ]
    with opened(chromium, talk, height=9_000) as (page, seen):
        assert page.get_attribute("#slider", "max") == str(len(replies) - 1)
        for step, at in enumerate(replies):
            page.evaluate(GO, step)
            rows = page.evaluate(READ, "messages-0")
            items = build_view(path[:at]).items
            assert [text for text, dropped in rows if not dropped] == [
                item.message.text for item in items
            ]
            shown = {item.entry_id for item in items}
            lost = [
                entry.message.text for entry in path[:at] if entry.message and entry.id not in shown
            ]
            assert [text for text, dropped in rows if dropped] == lost
        assert seen.complaints == []
        assert seen.requests == [talk.as_uri()]


@pytest.mark.slow
def test_a_summary_is_beside_the_messages_that_it_stands_for(chromium: Browser, talk: Path) -> None:
    with opened(chromium, talk) as (page, _):
        page.evaluate("document.getElementById('messages-0').scrollTop = 0")
        page.locator(".message.summary").click()
        entry = page.inner_text("#entry")
        assert "Parts 0 to 4 were read." in entry
        assert "Stands for 22 messages" in entry
        assert page.locator(".covered .entry-row").first.inner_text().startswith("user\nQuestion 0")
        page.locator(".covered .entry-row").nth(1).click()
        assert "dropped in this request" in page.inner_text("#entry").replace("\n", " ")
        assert page.locator(".message.selected.dropped").inner_text().startswith("assistant")
        page.get_by_role("link", name="the summary that stands for it").click()
        assert "Parts 0 to 4 were read." in page.inner_text("#entry")


@pytest.mark.slow
def test_a_pruned_result_is_beside_the_recorded_one(chromium: Browser, talk: Path) -> None:
    with opened(chromium, talk, height=3_000) as (page, _):
        page.evaluate(GO, 5)
        page.locator(".message", has_text="[pruned]").click()
        assert "def part_1(): return 1" in page.inner_text("#entry")


@pytest.mark.slow
def test_the_search_finds_what_is_shown_and_what_is_dropped(chromium: Browser, talk: Path) -> None:
    with opened(chromium, talk) as (page, _):
        page.keyboard.press("/")
        page.keyboard.type("part_0()")
        assert page.inner_text("#found") == "1 of 1 · 1 dropped"
        assert "def part_0()" in page.inner_text(".message.selected.dropped")
        page.evaluate(GO, len(talk_log().logs[0].requests) - 1)
        page.fill("#query", "what does part")
        assert page.inner_text("#found") == "1 of 6 · 1 shown, 5 dropped"
        page.evaluate(GO, 2)
        assert page.inner_text("#found").endswith("2 shown, 4 later")
        page.fill("#query", "question 5")  # a later one: the page goes to the first request with it
        assert page.inner_text("#found") == "1 of 1 · 1 shown"
        page.keyboard.press("Escape")
        assert page.input_value("#query") == ""
        page.fill("#query", "no such words")
        assert page.inner_text("#found") == "no match"


def test_a_message_that_is_shown_in_another_form_is_found_once(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    transcript = Transcript()
    # the provider's ids repeat, so that the second call and its result are shown with other ids
    for turn in range(2):
        transcript.append_messages(
            user_message("Go on."),
            call_message("c1"),
            result_message("c1", f"needle {turn}"),
            assistant_message("Done."),
        )
    with opened(
        chromium,
        write(log_path(transcript.path(), LogOptions(prices=read_prices(), model="gpt-5"))),
    ) as (page, _):
        assert "nothing dropped" in page.inner_text("#state")
        page.fill("#query", "needle")
        assert page.inner_text("#found") == "1 of 2 · 2 shown"


@pytest.mark.slow
def test_the_keys_go_from_request_to_request_and_from_checkpoint_to_checkpoint(
    chromium: Browser, talk: Path
) -> None:
    with opened(chromium, talk) as (page, _):
        page.keyboard.press("End")
        last = int(page.input_value("#request"))
        steps: list[int] = []
        for key in ("ArrowLeft", "Home", "ArrowRight", "PageDown", "PageUp", "End", "[", "[", "]"):
            page.keyboard.press(key)
            steps.append(int(page.input_value("#slider")) + 1)
        first, second = (
            request + 1
            for request, each in enumerate(talk_log().logs[0].requests)
            if each.checkpoint
        )
        assert steps == [last - 1, 1, 2, 12, 2, last, second, first, second]
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "query"


@pytest.mark.slow
def test_the_figures_are_those_of_the_log(chromium: Browser, talk: Path) -> None:
    log = talk_log()
    with opened(chromium, talk) as (page, _):
        for step in (0, 7, len(log.logs[0].requests) - 1):
            page.evaluate(GO, step)
            request = log.logs[0].requests[step]
            assert shown_text(page).startswith(
                f"{request.tokens:,} tokens · {request.billed.cached_tokens:,} cached · $"
            )
            facts = page.inner_text("#request-facts")
            for tokens in filter(None, request.parts):
                assert f"{tokens:,} token" in facts
        said = page.get_by_role("slider", name="Request").get_attribute("aria-valuetext")
        assert said is not None
        assert said.startswith("Request 14 of 14. ")
        label = page.locator("canvas.strip").first.get_attribute("aria-label")
        assert label is not None
        assert label.startswith(
            "recorded: 14 requests, the largest with 1,400 tokens, 2 checkpoints, $"
        )


@pytest.mark.slow
def test_two_policies_stand_side_by_side(
    chromium: Browser, replayed: ConversationLog, write: Callable[[ConversationLog], Path]
) -> None:
    log = replayed
    file = write(log)
    with opened(chromium, file, height=6_000) as (page, seen):
        for step in (3, 9, 13):
            page.evaluate(GO, step)
            for at, source in enumerate(log.logs):
                numbers: list[int] = []
                for request in source.requests[: step + 1]:
                    numbers = expand_change(numbers, request.change)
                rows = page.evaluate(READ, f"messages-{at}")
                assert [text for text, dropped in rows if not dropped] == [
                    log.messages[number].message.text for number in numbers
                ]
        assert page.locator("canvas[role=img]").count() == 2
        assert seen.complaints == []
    with opened(chromium, file, width=400, height=800) as (page, _):
        assert [page.is_visible(f"#messages-{at}") for at in (0, 1)] == [True, False]
        page.click("#tab-messages-1")
        assert [page.is_visible(f"#messages-{at}") for at in (0, 1)] == [False, True]


@pytest.mark.slow
def test_a_conversation_without_a_request_has_a_page(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    log = log_path(compacted_talk()[:1], LogOptions(prices=read_prices()))
    with opened(chromium, write(log)) as (page, seen):
        assert page.inner_text("#state") == "no request yet."
        assert page.inner_text("#total") == "of 0"
        page.keyboard.press("ArrowRight")
        page.fill("#query", "question")
        assert seen.complaints == []


def test_no_text_of_a_conversation_runs_or_becomes_markup(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    log = hostile_log()
    file = write(log)
    with opened(chromium, file, height=2_000) as (page, seen):
        for step in range(len(log.logs[0].requests)):
            page.evaluate(GO, step)
        page.evaluate(READ, "messages-0")
        for number in range(0, log.length, 3):
            page.evaluate("(number) => { location.hash = `#message-${number + 1}`; }", number)
        page.fill("#query", "pwned")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script, main b").count() == 0
        assert (seen.complaints, seen.requests) == ([], [file.as_uri()])
        # The policy itself: not even the page's own document can run a script or load anything that
        # is not in it. playwright's error, from a package that may be absent
        with pytest.raises(Exception, match="TrustedScript"):
            page.evaluate("document.createElement('script').textContent = 'window.pwned = 1'")
        assert page.evaluate("fetch('data:,x').then(() => 'loaded', () => 'refused')") == "refused"
        assert "Content Security Policy" in " ".join(seen.complaints)


def test_the_page_opens_at_the_last_checkpoint_with_its_summary_in_sight(
    chromium: Browser, talk: Path
) -> None:
    *_, last = (at for at, each in enumerate(talk_log().logs[0].requests) if each.checkpoint)
    with opened(chromium, talk) as (page, _):
        assert page.input_value("#request") == str(last + 1)
        top = page.locator(".message.summary").bounding_box()
        assert top is not None
        assert 0 < top["y"] < 900


@pytest.fixture(scope="module")
def agent(write: Callable[[ConversationLog], Path]) -> Path:
    return write(agent_log())


def test_a_search_marks_the_word_and_unfolds_the_text_around_it(
    chromium: Browser, agent: Path
) -> None:
    with opened(chromium, agent, height=700) as (page, _):
        page.fill("#query", "NEEDLE")
        word = page.locator(".message.selected mark")
        assert word.all_inner_texts() == ["needle"]
        box = word.bounding_box()
        assert box is not None
        assert 0 < box["y"] < 700
        page.fill("#query", "")
        assert page.locator("mark").count() == 0


def test_calls_and_results_are_linked_and_results_have_the_names_of_their_tools(
    chromium: Browser, agent: Path
) -> None:
    with opened(chromium, agent, height=3_000) as (page, _):
        results = page.locator(".message.tool")
        assert results.locator(".tool-name").all_inner_texts() == ["read_file", "edit_file"]
        page.get_by_role("link", name="result: message 5").click()
        assert "No such file." in page.inner_text(".message.selected")
        page.locator(".message.selected .tool-name").click()
        assert "I edit it." in page.inner_text(".message.selected")
        page.evaluate("location.hash = '#message-6'")  # the last one, which nothing answers
        assert "no result recorded" in page.inner_text("#entry")


def test_edits_are_lines_and_errors_and_thinking_are_chips(chromium: Browser, agent: Path) -> None:
    with opened(chromium, agent, height=3_000) as (page, _):
        lines = "[...document.querySelectorAll('.edit > div')].map((line) => [line.className, line.lastChild.textContent])"
        assert page.evaluate(lines) == [
            ["same", "import json"],
            ["removed", "now()"],
            ["added", "now(UTC)"],
            ["same", ""],
        ]
        assert page.locator(".message .kind-chip").all_inner_texts() == ["thinking", "error"]
        text = page.inner_text("body")
        assert "The date has no zone." in text
        assert "opaque" not in text
        assert "is_error" not in text


@pytest.mark.slow
def test_at_each_request_the_page_says_why_tokens_were_not_cached(
    chromium: Browser, talk: Path
) -> None:
    requests = talk_log().logs[0].requests
    with opened(chromium, talk) as (page, _):
        for step, request in enumerate(requests):
            page.evaluate(GO, step)
            reason = page.inner_text(".reason")
            if step == 0:
                assert "the first request" in reason
            elif request.difference is None:
                assert f"begin with all of request {step}, unchanged" in reason
            else:
                assert f"The first block that differs from request {step} is in " in reason
                page.locator(".reason a[href^='#message']").first.wait_for()
        pruned = next(at for at, each in enumerate(requests) if each.difference)
        page.evaluate(GO, pruned)
        before, now = page.locator(".difference dd").all_inner_texts()
        assert before.startswith("def part_1")
        assert now == "[pruned]"
        assert "It was changed: " in page.inner_text(".reason")
        *_, last = (at for at, each in enumerate(requests) if each.checkpoint)
        page.evaluate(GO, last)
        assert "A summary stands there now" in page.inner_text(".reason")


def test_a_missed_cache_is_no_fault_of_the_messages_if_they_begin_alike(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    clock = iter((0, 1, 2, 3, 4_000)).__next__
    transcript = Transcript(clock=lambda: 1_790_000_000.0 + clock())
    transcript.append_messages(user_message("Go on. " * 4_000))
    for cached in (0, 0):
        usage = Usage(input_tokens=9_000, cached_tokens=cached, output_tokens=9)
        transcript.append(MessageEntry(message=assistant_message("I go on."), usage=usage))
        transcript.append_messages(user_message("Again."))
    log = log_path(transcript.path(), LogOptions(prices=read_prices(), model="gpt-5"))
    with opened(chromium, write(log)) as (page, _):
        assert "9,000 tokens of this beginning were not read from the cache" in page.inner_text(
            ".reason"
        )


def test_a_list_says_what_fills_the_window_and_its_bars_are_scaled_to_the_request(
    chromium: Browser, write: Callable[[ConversationLog], Path], agent: Path
) -> None:
    far = talk_log(window=1_000_000)
    with opened(chromium, write(far)) as (page, _):
        assert (
            page.evaluate(
                "Math.max(...[...document.querySelectorAll('.fill')].map((bar) => bar.clientWidth / bar.parentElement.clientWidth))"
            )
            > 0.5
        )
    with opened(chromium, agent) as (page, _):
        facts = page.inner_text("#request-facts")
        assert "What fills this window" in facts
        assert "read_file (1)" in facts
        largest = page.get_by_role("list", name="Largest messages").get_by_role("listitem")
        assert largest.first.inner_text().startswith("result\nread_file")
        largest.first.click()
        assert "line 0" in page.inner_text(".message.selected")


def test_tools_and_limits_that_are_not_recorded_do_not_appear(
    chromium: Browser, agent: Path
) -> None:
    with opened(chromium, agent) as (page, _):
        assert page.inner_text("#about") == "gpt-5 · 6 messages"
        assert "tools" not in page.locator("#legend li").all_inner_texts()
        facts = page.inner_text("#request-facts")
        assert "tools\n" not in facts
        assert "limit" not in facts


def test_few_requests_stand_at_the_left(chromium: Browser, agent: Path) -> None:
    with opened(chromium, agent) as (page, _):
        box = page.locator("#slider").bounding_box()
        assert box is not None
        assert box["width"] < 150
        assert box["x"] < 150


def test_the_head_folds_while_a_reader_scrolls_down_and_the_messages_stay(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    with opened(chromium, write(long_log(40)), height=800) as (page, _):
        page.evaluate(GO, 30)
        page.evaluate("document.getElementById('messages-0').scrollTop = 0")
        page.mouse.move(300, 600)
        page.mouse.wheel(0, 300)
        page.wait_for_selector("body.folded")
        head = page.locator(".top").bounding_box()
        assert head is not None
        assert head["height"] < 100
        card = page.locator(".message", has_text="Question 5:")
        before = card.bounding_box()
        page.click("#unfold")
        after = card.bounding_box()
        assert before is not None
        assert after is not None
        assert abs(before["y"] - after["y"]) < 3
        assert page.is_visible("#charts")


def test_a_link_leads_to_a_request_and_the_address_follows(chromium: Browser, talk: Path) -> None:
    with opened(chromium, talk) as (page, seen):
        page.goto(f"{talk.as_uri()}#request-3")
        page.wait_for_selector("body.ready")
        assert page.input_value("#request") == "3"
        assert page.get_attribute("#link", "href") == "#request-3"
        page.locator("#slider").press("ArrowRight")
        page.wait_for_url(f"{talk.as_uri()}#request-4")
        page.get_by_role("link", name="request 3").first.click()
        # the page follows its address a moment later
        page.wait_for_function("document.querySelector('#request').value === '3'")
        assert seen.complaints == []


def test_a_print_has_every_message_of_the_request_in_full_and_in_light_colours(
    chromium: Browser, agent: Path
) -> None:
    with opened(chromium, agent, dark=True, height=500) as (page, _):
        page.emulate_media(media="print", color_scheme="dark")
        page.locator(".message", has_text="the needle").wait_for()
        assert page.locator(".message").count() == 5
        assert page.locator(".message .more").count() == 0
        assert page.get_attribute("html", "data-theme") == "light"
        assert not page.is_visible("#query")
        assert page.evaluate("document.body.scrollHeight") > 5_000
        page.emulate_media(media="screen")
        page.wait_for_selector("html:not([data-theme])")


@pytest.mark.slow
def test_a_page_of_10_000_requests_opens_in_two_seconds_and_does_not_freeze(
    chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    check_many(chromium, write(long_log(10_000)), 10_000)


def check_many(chromium: Browser, file: Path, count: int) -> None:
    with opened(chromium, file) as (page, seen):
        opening = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        assert page.evaluate(opening) < 2_000  # some 300 on an idle machine
        for step in (0, count // 2, count - 1, count // 3):
            milliseconds = page.evaluate(
                f"async (step) => {{ const before = performance.now(); await ({GO})(step); return performance.now() - before; }}",
                step,
            )
            assert milliseconds < 1_000  # some 30 on an idle machine
            assert (
                f"Answer {step - 1}." in page.inner_text("#messages-0")
                or step == 0
                or page.locator(".message").count()
            )
        assert page.evaluate("document.querySelectorAll('*').length") < 2_000
        page.fill("#query", f"Question {count - 1}:")
        assert page.inner_text("#found") == "1 of 1 · 1 shown"
        page.click("#tab-requests")
        assert page.locator("#requests .request.current").inner_text().startswith(f"{count:,}")
        assert seen.complaints == []


@pytest.mark.parametrize(
    "width",
    [400, pytest.param(820, marks=pytest.mark.slow), pytest.param(1_440, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_nothing_sticks_out_at_any_width(
    width: int, chromium: Browser, write: Callable[[ConversationLog], Path]
) -> None:
    with opened(chromium, write(hostile_log()), width=width, height=800) as (page, seen):
        page.evaluate("location.hash = '#message-1'")
        for tab in page.locator("[role=tab]:visible").all():
            tab.click()
            outside = page.evaluate(
                "[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight]"
            )
            assert outside == [0, 0]
            boxes = page.evaluate(
                "[...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth)"
            )
            assert max(boxes) <= 0
            assert page.evaluate(OUTSIDE) == []
        assert seen.complaints == []


@pytest.mark.parametrize(
    "dark",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.slow)],
    ids=["light", "dark"],
)
def test_every_text_stands_out_from_what_is_behind_it(
    dark: bool, chromium: Browser, talk: Path
) -> None:
    with opened(chromium, talk, dark=dark) as (page, _):
        page.fill("#query", "part")
        page.locator(".fold").first.click()
        page.evaluate("document.getElementById('messages-0').scrollTop = 0")
        page.locator(".message.summary").click()
        for tab in ("request", "entry", "requests"):
            page.click(f"#tab-{tab}")
            assert page.evaluate(CONTRASTS) == []


def test_every_script_is_in_the_page_once_and_short() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in CONVERSATION.glob("*.js"))
    page = conversation_to_html(talk_log(RECORDED))
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for name in SCRIPTS:
        text = (CONVERSATION / f"{name}.js").read_text(encoding="utf-8")
        assert page.count(text) == 1
        assert len(text.splitlines()) <= 300
    assert json.loads(json.dumps(build_columns(talk_log())))["length"] == 28
