"""The trace page in a real browser: its slider keeps and sends what a render with that budget keeps and sends, and it shows it all."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Message,
    PromptElement,
    Renderer,
    Sizing,
    TextChunk,
    ToolCall,
    ToolMessage,
    UserMessage,
    component,
    render,
)
from promptkit.messages import CacheBreakpointPart, ImagePart
from promptkit.testing import WordTokenizer
from promptkit.tracing.page import VIEWER, build_columns, describe_part, trace_to_html
from promptkit.tracing.trace import Trace
from tests.behaviour.strategies import prompts, tokenizers
from tests.browser.chromium import browser, find, opened
from tests.browser.prompts import HOSTILE, RICH, conversation, hostile, many
from tests.browser.reading import ANSWERS, CONTRASTS, OUTSIDE, READ, SLIDE
from tests.examples import examples, keep_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from promptkit import Child, Rendered
    from promptkit.tokens import Tokenizer

Answer = Any  # Any: what a page answers, JSON of any shape

CHROMIUM = find()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on PATH: install one, or name it in PROMPTKIT_CHROMIUM, to test the trace page",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    assert CHROMIUM
    with browser(CHROMIUM) as started:
        yield started


@pytest.fixture(scope="module")
def rules(chromium: Browser) -> Iterator[Page]:
    """A page with the rules of the viewer and nothing else."""
    page = chromium.new_page()
    for name in ("record", "states"):
        page.add_script_tag(content=(VIEWER / f"{name}.js").read_text(encoding="utf-8"))
    yield page
    page.close()


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Trace | None], Path]:
    """Writes a record as a page."""

    def write(trace: Trace | None) -> Path:
        assert trace
        path = tmp_path / "trace.html"
        path.write_text(trace_to_html(trace), encoding="utf-8")
        return path

    return write


def at_budget(rendered: Rendered, budget: int) -> Rendered | None:
    try:
        return rendered.at_budget(budget)
    except BudgetExceededError:
        return None


def budgets_of(trace: Trace, number: int) -> list[int]:
    """Budgets from nothing to enough for all: half of them evenly spread, half where something just fits or just does not."""
    chance = random.Random(number)
    full = max(trace.costs) + trace.reserved
    even = [full * at // (number // 2 - 1) for at in range(number // 2)]
    edges = [
        cost + trace.reserved - chance.randint(0, 1)
        for cost in chance.choices(trace.costs, k=number - len(even))
    ]
    return even + edges


# The rules alone: many prompts.


def asked(rules: Page, trace: Trace, budgets: list[int]) -> Answer:
    return json.loads(
        rules.evaluate(ANSWERS, [json.loads(json.dumps(build_columns(trace))), budgets])
    )


def as_page_says(message: Message) -> Answer:
    return {
        "role": message.role,
        "name": message.name,
        "callId": message.tool_call_id,
        "content": [
            part if isinstance(part, str) else describe_part(part) for part in message.content
        ],
        "calls": [[call.id, call.name, call.arguments] for call in message.tool_calls],
    }


def expected(rendered: Rendered, budget: int) -> Answer:
    again = at_budget(rendered, budget)
    if again is None or again.trace is None or again.trace.state is None:
        return None
    state = again.trace.state
    kept = [item.id for item in again.trace.kept(state)]
    return {
        "state": state,
        "kept": kept,
        "messages": [as_page_says(message) for message in again.messages],
    }


def without_ids(answer: Answer) -> Answer:
    for message in answer["messages"] if answer else ():
        del message["id"]
    return answer


@settings(max_examples=examples(150))
@given(prompt=prompts(), tokenizer=tokenizers(), step=st.sampled_from([0, 0, 3, 10]))
def test_the_rules_of_the_page_are_those_of_the_renderer(
    rules: Page, prompt: Child, tokenizer: Tokenizer, step: int
) -> None:
    try:
        rendered = render(
            prompt, budget=60, tokenizer=tokenizer, prune_step=step, pairing="lenient", trace=True
        )
    except BudgetExceededError:
        return
    assert rendered.trace
    budgets = list(range(0, 61, 3))
    found = asked(rules, rendered.trace, budgets)
    assert [without_ids(answer) for answer in found["answers"]] == [
        expected(rendered, budget) for budget in budgets
    ]
    assert found["paths"] == [item.path for item in rendered.trace.items]


@settings(max_examples=examples(50))
@given(prompt=prompts(), tokenizer=tokenizers(), step=st.sampled_from([0, 3, 10]))
def test_the_page_knows_at_which_budgets_an_element_is_kept(
    rules: Page, prompt: Child, tokenizer: Tokenizer, step: int
) -> None:
    try:
        trace = render(
            prompt, budget=100, tokenizer=tokenizer, prune_step=step, pairing="lenient", trace=True
        ).trace
    except BudgetExceededError:
        return
    assert trace
    top = max(trace.costs) + trace.reserved
    states = [trace.state_at(budget) for budget in range(top + 2)]
    found = asked(rules, trace, list(range(top + 1)))
    for item in trace.items:
        keeping = [
            budget for budget, state in enumerate(states) if state is not None and item.kept(state)
        ]
        span = found["spans"][item.id]
        if not keeping:
            assert span is None
        else:
            last = None if keeping[-1] == top + 1 else keeping[-1]
            assert (span["from"], span["to"]) == (keeping[0], last)
            assert keeping == list(range(keeping[0], keeping[-1] + 1))
    for budget, (smaller, larger) in enumerate(found["next"]):
        others = [other for other in range(top + 1) if states[other] != states[budget]]
        assert larger == min((other for other in others if other > budget), default=None)
        if states[budget] is not None:
            assert smaller == max((other for other in others if other < budget), default=None)


@pytest.mark.slow
def test_the_middle_of_a_very_long_path_is_left_out_as_in_the_removals(rules: Page) -> None:
    from promptkit import Group

    prompt: PromptElement = UserMessage()["deep", "er"]
    for _ in range(1_070):
        prompt = Group()[prompt]
    trace = render(
        (prompt, UserMessage()["kept"]), budget=100, tokenizer=WordTokenizer(), trace=True
    ).trace
    assert trace
    assert asked(rules, trace, [])["paths"] == [item.path for item in trace.items]


# The page itself.


def as_read(message: Message) -> Answer:
    """A message as `READ` reads it, with the kinds of its parts other than text."""
    content = [
        ["text", part] if isinstance(part, str) else ["part", str(describe_part(part)["kind"])]
        for part in message.content
    ]
    return {
        "role": message.role,
        "of": [word for word in (message.name, message.tool_call_id) if word is not None],
        "content": content,
        "calls": [
            [call.id, call.name, sort_arguments(call.arguments)] for call in message.tool_calls
        ],
    }


def sort_arguments(arguments: str) -> str:
    """The arguments of a call with their names in order, because the page shows long ones behind the others."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def kinds_only(messages: Answer) -> Answer:
    for message in messages:
        message["content"] = [
            [kind, text if kind == "text" else text.split(" · ")[0]]
            for kind, text in message["content"]
        ]
        message["calls"] = [[*call[:2], sort_arguments(call[2])] for call in message["calls"]]
    return messages


SHOWN: dict[str, tuple[Callable[[], Child], int]] = {
    "the demonstration": (conversation, 0),
    **{name: (prompt, 0) for name, prompt in RICH.items()},
    "tools, cut in steps": (RICH["tools"], 150),
}


@pytest.mark.parametrize("budgets", [4, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if "tools" in name else pytest.mark.slow) for name in SHOWN],
)
def test_the_slider_keeps_and_sends_what_a_render_with_that_budget_does(
    name: str, budgets: int, chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt, step = SHOWN[name]
    rendered = render(prompt(), budget=400, prune_step=step)
    trace = render(prompt(), budget=400, prune_step=step, trace=True).trace
    assert trace
    with opened(chromium, written(trace), height=3_000) as (page, seen):
        page.click("#unfold")
        for budget in budgets_of(trace, budgets):
            assert page.evaluate(SLIDE, budget) == budget
            read = json.loads(page.evaluate(READ))
            assert read["rows"] == len(trace.items)
            again, state = at_budget(rendered, budget), trace.state_at(budget)
            if again is None or state is None:
                assert (again, state) == (None, None)
                assert "Does not fit" in read["fit"]
                assert read["messages"] == []
                continue
            assert f"{again.tokens:,} of {budget:,}" in read["fit"]
            assert read["kept"] == [item.id for item in trace.kept(state)]
            assert kinds_only(read["messages"]) == [as_read(message) for message in again.messages]
            assert read["taken"] == f"{len(again.removals):,}"
        assert seen.complaints == []


@pytest.mark.slow
def test_the_page_opens_in_the_state_that_was_rendered_and_goes_back_to_it(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    rendered = render(conversation(), budget=2_000, trace=True)
    with opened(chromium, written(rendered.trace)) as (page, _):
        fit = page.inner_text("#fit")
        assert f"{rendered.tokens:,} of 2,000" in fit
        assert page.is_disabled("#reset")
        page.fill("#budget", "16000")
        assert "of 16,000" in page.inner_text("#fit")
        page.click("#reset")
        assert (
            page.inner_text("#fit"),
            page.input_value("#budget"),
            page.input_value("#slider"),
        ) == (fit, "2000", "2000")


def dropped_runs(trace: Trace, messages: frozenset[str]) -> list[tuple[int, int]]:
    """The runs of messages that are not among these: how many, and their tokens."""
    runs: list[tuple[int, int]] = []
    was_kept = True
    for item in trace.items:
        if item.kind == "message":
            is_kept = item.path in messages
            if not is_kept:
                number, tokens = (0, 0) if was_kept else runs.pop()
                runs.append(
                    (
                        number + 1,
                        tokens + sum(each.tokens for each in trace.items[item.id : item.end]),
                    )
                )
            was_kept = is_kept
    return runs


def test_the_page_opens_on_what_is_sent_with_a_line_for_each_run_of_dropped_messages(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    roles = (UserMessage, AssistantMessage)
    prompt = [
        roles[at % 2](priority=at % 7)[f"Message {at}, " + "of some words " * (at % 5)]
        for at in range(200)
    ]
    rendered = render(prompt, budget=1_000, trace=True)
    trace = rendered.trace
    assert trace
    assert trace.state is not None
    kept = frozenset(item.path for item in trace.kept(trace.state))
    for width in (1_440, 400):
        with opened(chromium, written(trace), width=width, height=20_000) as (page, _):
            assert page.locator("#messages .text").all_inner_texts() == [
                message.text for message in rendered.messages
            ]
            lines = [
                f"{n} message{'s'[: n != 1]}, {tokens:,} tokens dropped"
                for n, tokens in dropped_runs(trace, kept)
            ]
            assert page.locator("#messages .fold").all_inner_texts() == lines
            assert len(lines) > 20


@pytest.mark.slow
def test_a_line_of_dropped_messages_opens_and_closes_by_click_and_by_key(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (
        UserMessage(priority=1)["one"],
        UserMessage(priority=2)["two"],
        UserMessage()["three"],
    )
    rendered = render(prompt, budget=1, tokenizer=WordTokenizer(), trace=True)
    with opened(chromium, written(rendered.trace)) as (page, seen):
        texts, line = (
            page.locator("#messages .text"),
            page.get_by_role("button", name="2 messages, 2 tokens dropped"),
        )
        assert (line.get_attribute("aria-expanded"), texts.all_inner_texts()) == (
            "false",
            ["three"],
        )
        line.click()
        assert (line.get_attribute("aria-expanded"), texts.all_inner_texts()) == (
            "true",
            ["one", "two", "three"],
        )
        assert page.get_by_role("article", name="user message, dropped").count() == 2
        for expected_texts in (["three"], ["one", "two", "three"]):
            page.keyboard.press("Enter")  # the line keeps the focus
            assert texts.all_inner_texts() == expected_texts
        page.evaluate(SLIDE, 2)
        assert page.locator("#messages .fold").all_inner_texts() == ["1 message, 1 token dropped"]
        assert texts.all_inner_texts() == ["one", "two", "three"]
        assert seen.complaints == []


@pytest.mark.slow
def test_dropped_parts_of_a_message_are_folded_where_they_stood(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    calls = (
        ToolCall(id="a", name="look", arguments="{}"),
        ToolCall(id="b", name="find", arguments="{}"),
    )
    prompt = (
        UserMessage()[
            "first",
            [TextChunk(priority=at)[f"chunk {at}"] for at in range(3)],
            "between",
            TextChunk(priority=9)["late"],
            "last",
        ],
        AssistantMessage(tool_calls=calls)["I look."],
        ToolMessage(tool_call_id="a", priority=1)["gone"],
        ToolMessage(tool_call_id="b")["found"],
    )
    full = render(prompt, budget=1_000, tokenizer=WordTokenizer())
    rendered = render(prompt, budget=full.tokens - 5, tokenizer=WordTokenizer(), trace=True)
    assert [message.text for message in rendered.messages] == [
        "first\nchunk 2between\nlatelast",
        "I look.",
        "found",
    ]
    with opened(chromium, written(rendered.trace)) as (page, _):
        first = page.locator("#messages .message").first
        assert first.locator("> *:not(header)").all_inner_texts() == [
            "first\n",
            "2 parts, 4 tokens dropped",
            "chunk 2between\nlatelast",
        ]
        first.locator(".fold").click()
        assert first.locator(".gone").all_inner_texts() == ["chunk 0", "chunk 1"]
        assert json.loads(page.evaluate(READ))["messages"][1]["calls"] == [["b", "find", "{}"]]
        page.get_by_role("button", name="1 tool call dropped").click()
        assert page.locator("#messages .gone .function").all_inner_texts() == ["look"]
        assert page.get_by_role("button", name="1 message, 1 token dropped").count() == 1


@pytest.mark.slow
def test_a_marker_counts_neither_as_dropped_nor_as_written(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    marker = UserMessage(priority=1)["[older messages left out]"]
    prompt = (
        UserMessage(priority=1, fallback=marker)["one two three four five"],
        UserMessage()["six"],
    )
    trace = render(prompt, budget=100, tokenizer=WordTokenizer(), trace=True).trace
    with opened(chromium, written(trace)) as (page, _):
        folds, badges = page.locator("#messages .fold"), page.locator("#messages .badge")
        assert (folds.count(), badges.count()) == (0, 0)
        page.evaluate(SLIDE, 5)
        assert (folds.all_inner_texts(), badges.all_inner_texts()) == (
            ["1 message, 5 tokens dropped"],
            ["fallback"],
        )
        page.evaluate(SLIDE, 1)
        assert (folds.all_inner_texts(), badges.count()) == (["1 message, 5 tokens dropped"], 0)


@pytest.mark.slow
def test_the_tree_hides_what_is_dropped_until_it_is_asked_for(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (UserMessage(priority=1)["one"], UserMessage()["two"])
    trace = render(prompt, budget=1, tokenizer=WordTokenizer(), trace=True).trace
    with opened(chromium, written(trace)) as (page, _):
        labels, toggle = (
            page.locator("#tree .label"),
            page.get_by_role("button", name="Show dropped"),
        )
        assert labels.all_inner_texts() == ["prompt", "UserMessage[1]"]
        toggle.click()
        assert (labels.all_inner_texts(), toggle.get_attribute("aria-pressed")) == (
            ["prompt", "UserMessage[0]", "UserMessage[1]"],
            "true",
        )
        toggle.click()
        page.click("#tab-removals")
        page.click("#removals .removal")
        page.click("#tab-tree")
        assert (
            page.locator("#tree .row[aria-selected=true] .label").inner_text() == "UserMessage[0]"
        )


@pytest.mark.slow
def test_a_page_opens_with_what_an_earlier_turn_had_dropped(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    renderer = Renderer(budget=6, tokenizer=WordTokenizer(), prune_step=2, trace=True)
    old = UserMessage(priority=1)["old words"]
    renderer.render((old, UserMessage()["a b c d e"]))
    rendered = renderer.render((old, UserMessage()["a b"]))
    with opened(chromium, written(rendered.trace)) as (page, _):
        texts = page.locator("#messages .text")
        assert texts.all_inner_texts() == [message.text for message in rendered.messages] == ["a b"]
        assert "elements dropped in an earlier turn stay dropped" in page.inner_text("#facts")
        page.evaluate(SLIDE, 6)
        assert (
            texts.all_inner_texts()
            == [message.text for message in rendered.at_budget(6).messages]
            == ["old words", "a b"]
        )
        page.click("#reset")
        assert texts.all_inner_texts() == ["a b"]


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_opens_with_what_is_required(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (UserMessage()["four"], UserMessage(required=True)["one two three"])
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=2, tokenizer=WordTokenizer(), trace=True)
    trace = caught.value.trace
    assert isinstance(trace, Trace)
    with opened(chromium, written(trace)) as (page, seen):
        assert page.inner_text("#fit") == "✕ Does not fit. At least 3 tokens are needed, 1 more."
        assert page.locator("#tree .row.kept .label").all_inner_texts() == [
            "prompt",
            "UserMessage[1]",
        ]
        page.click("#messages .go")
        assert page.inner_text("#fit") == "✓ Fits. 3 of 3 tokens used"
        assert page.locator("#messages .text").all_inner_texts() == ["one two three"]
        assert seen.complaints == []


@pytest.mark.slow
def test_a_prompt_without_anything_is_shown_too(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    with opened(chromium, written(render((), budget=10, trace=True).trace)) as (page, seen):
        assert "No message is left" in page.inner_text("#messages")
        page.click("#tab-removals")
        assert "Nothing in this prompt can be removed" in page.inner_text("#removals")
        assert seen.complaints == []


def test_content_that_tries_to_be_more_than_text_stays_text(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    with opened(
        chromium, written(render(hostile(), budget=100_000, trace=True).trace), height=4_000
    ) as (page, seen):
        page.click("#unfold")
        read = json.loads(page.evaluate(READ))
        said = [
            text
            for message in read["messages"]
            for kind, text in message["content"]
            if kind == "text"
        ]
        for text in HOSTILE:
            assert any(text in each for each in said)
        for row in page.locator("#tree .row").all()[:20]:
            row.click()
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script, main a, #detail img").count() == 0
        assert seen.complaints == []
        assert [url for url in seen.requests if not url.startswith("file:")] == []


def test_the_policy_of_the_page_lets_nothing_in(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    with opened(chromium, written(render(UserMessage()["Hello"], budget=10, trace=True).trace)) as (
        page,
        seen,
    ):
        assert seen.complaints == []
        page.evaluate("""async () => {
          const attempts = [
            () => { const e = document.createElement('button'); e.setAttribute('onclick', 'window.pwned = 1'); document.body.append(e); e.click(); },
            () => { const e = document.createElement('script'); e.append('window.pwned = 1'); document.body.append(e); },
            () => { document.body.innerHTML = '<img src=x onerror="window.pwned = 1">'; },
            () => { window.eval('window.pwned = 1'); },
            () => { const e = document.createElement('img'); e.src = 'http://127.0.0.1:9/x.png'; document.body.append(e); },
            () => fetch('http://127.0.0.1:9/'),
          ];
          // From a timer, like the page's own code: the policy does not apply to code that a driver evaluates.
          for (const attempt of attempts) await new Promise((done) => setTimeout(() => { setTimeout(done); return attempt(); }));
        }""")
        assert page.evaluate("window.pwned") is None
        assert page.locator("#tree").count() == 1
        assert any("Content Security Policy" in complaint for complaint in seen.complaints)


@pytest.mark.slow
def test_search_goes_from_match_to_match_in_paths_and_texts(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (
        UserMessage(label="ada")["first words"],
        UserMessage(priority=1)["other words", "and the NEEDLE itself"],
    )
    with opened(chromium, written(render(prompt, budget=100, trace=True).trace)) as (page, _):
        selected = page.locator("#tree .row[aria-selected=true] .label")
        page.keyboard.press("/")
        page.keyboard.type("needle")
        assert page.inner_text("#found") == "1 of 1"
        assert selected.inner_text() == "text[1]"  # it was folded into its message
        page.fill("#query", "words")
        assert page.inner_text("#found") == "1 of 2"
        page.keyboard.press("Enter")
        assert (page.inner_text("#found"), selected.inner_text()) == ("2 of 2", "text[0]")
        page.keyboard.press("Shift+Enter")
        assert (page.inner_text("#found"), selected.inner_text()) == ("1 of 2", "ada")
        page.fill("#query", "usermessage[1] > text[1]")
        assert (page.inner_text("#found"), selected.inner_text()) == ("1 of 1", "text[1]")
        page.fill("#query", "nowhere")
        assert page.inner_text("#found") == "no match"
        page.keyboard.press("Escape")
        assert (page.input_value("#query"), page.locator("#tree .match").count()) == ("", 0)
        assert page.evaluate("document.activeElement.id") == "tree"


@pytest.mark.slow
def test_the_keyboard_walks_the_tree_and_the_budgets(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (
        UserMessage()["one"],
        UserMessage(priority=1)["two ", "three"],
        UserMessage(priority=2)["four"],
    )
    trace = render(prompt, budget=100, tokenizer=WordTokenizer(), trace=True).trace
    with opened(chromium, written(trace)) as (page, _):
        selected = page.locator("#tree .row[aria-selected=true]")
        page.focus("#tree")
        walked: list[str] = []
        for key in (
            "ArrowDown",
            "ArrowDown",
            "ArrowRight",
            "ArrowRight",
            "ArrowDown",
            "ArrowLeft",
            "ArrowLeft",
            "End",
            "Home",
        ):
            page.keyboard.press(key)
            walked.append(selected.locator(".label").inner_text())
            assert page.get_attribute("#tree", "aria-activedescendant") == selected.get_attribute(
                "id"
            )
        message = "UserMessage[1]"
        assert walked == [
            "UserMessage[0]",
            message,
            message,
            "text[0]",
            "text[1]",
            message,
            message,
            "UserMessage[2]",
            "prompt",
        ]
        budgets: list[str] = []
        for key in ("[", "[", "[", "]", "]"):
            page.keyboard.press(key)
            budgets.append(page.input_value("#budget"))
        assert budgets == ["3", "2", "1", "2", "3"]
        page.focus("#slider")
        page.keyboard.press("ArrowLeft")
        assert page.input_value("#budget") == "2"
        assert "2 of 2 tokens used" in page.inner_text("#fit")


@pytest.mark.slow
def test_labels_for_screen_readers(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (UserMessage()["one"], UserMessage(priority=1)["two"])
    with opened(
        chromium, written(render(prompt, budget=1, tokenizer=WordTokenizer(), trace=True).trace)
    ) as (page, _):
        page.get_by_role("slider", name="Budget in tokens").wait_for()
        page.get_by_role("tree", name="Elements of the prompt").wait_for()
        page.click("#dropped")
        dropped = page.get_by_role("treeitem", name="UserMessage[1], dropped, 1 token")
        assert [
            dropped.get_attribute(f"aria-{name}")
            for name in ("level", "posinset", "setsize", "selected")
        ] == ["2", "2", "2", "false"]
        assert page.get_by_role("tab", selected=True).inner_text() == "Tree"
        assert page.get_attribute("#slider", "aria-valuetext") == "1 token: fits"


@pytest.mark.slow
def test_an_element_says_when_it_goes_and_why(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    rendered = render(RICH["limits"](), budget=110, trace=True)
    assert rendered.trace
    with opened(chromium, written(rendered.trace)) as (page, _):
        page.fill("#query", "To write less")
        removal = next(
            removal for removal in rendered.trace.removals if removal.reason == "kept-with"
        )
        detail = page.inner_text("#detail")
        assert f"with {removal.label}" in detail
        assert f"removal {removal.order}, in step {removal.step + 1}" in detail
        assert f"its KeepWith group was removed, caused by {removal.partner_label}" in detail
        assert "To write less." in detail
        page.click("#detail .go")
        assert "Kept at" in page.inner_text("#detail")
        assert page.locator("#tree .row[aria-selected=true]").get_attribute("data-kept") == "yes"


@pytest.mark.slow
def test_light_and_dark_follow_the_system_until_one_is_chosen(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    file = written(render(UserMessage()["Hello"], budget=10, trace=True).trace)
    back = "getComputedStyle(document.body).backgroundColor"
    with opened(chromium, file) as (light, _), opened(chromium, file, dark=True) as (dark, _):
        white, black = light.evaluate(back), dark.evaluate(back)
        assert white != black
        shown: list[str] = []
        for _ in range(3):
            light.click("#theme")
            shown.append(light.evaluate(back))
        assert shown == [white, black, white]
        dark.click("#theme")
        assert dark.evaluate(back) == white


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    dark: bool, chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    with opened(
        chromium, written(render(conversation(), budget=2_000, trace=True).trace), dark=dark
    ) as (page, _):
        page.fill("#query", "fallback")
        page.locator("#messages .fold").first.click()
        for tab in ("tree", "removals", "sizing"):
            page.click(f"#tab-{tab}")
            assert page.evaluate(CONTRASTS) == []


@pytest.mark.parametrize("width", keep_first(1, 400, 820, 1_440))
def test_nothing_sticks_out_at_any_width(
    width: int, chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    file = written(render(hostile(), budget=100_000, trace=True).trace)
    with opened(chromium, file, width=width, height=800) as (page, seen):
        if width < 1_000:
            page.click("#tab-tree")
        page.locator("#tree .row").nth(3).click()
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


@pytest.mark.slow
def test_a_narrow_window_shows_one_view_at_a_time(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    with opened(
        chromium,
        written(render(conversation(), budget=2_000, trace=True).trace),
        width=400,
        height=800,
    ) as (page, _):
        assert [page.is_visible(f"#{name}") for name in ("messages", "tree", "detail")] == [
            True,
            False,
            False,
        ]
        page.click("#tab-tree")
        assert [page.is_visible(f"#{name}") for name in ("messages", "tree")] == [False, True]
        page.locator("#tree .row").nth(5).click()
        assert page.is_visible("#detail")
        page.keyboard.press("Escape")
        assert not page.is_visible("#detail")
        page.click("#tab-messages")
        assert [page.is_visible(f"#{name}") for name in ("messages", "tree")] == [True, False]


@pytest.mark.parametrize("count", [1_000, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_prompt_of_many_messages_is_shown_row_by_row(
    count: int, chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    rendered = render(many(count), budget=20 * count)
    trace = render(many(count), budget=20 * count, trace=True).trace
    assert trace
    assert len(trace.items) > 4 * count
    with opened(chromium, written(trace)) as (page, seen):
        page.click("#unfold")
        for budget in (10 * count, 30 * count, 4 * count):
            page.evaluate(SLIDE, budget)
            again = rendered.at_budget(budget)
            assert f"{again.tokens:,} of {budget:,}" in page.inner_text("#fit")
            assert page.inner_text("#count-messages") == f"{len(again.messages):,}"
            page.evaluate(
                "if (document.getElementById('dropped').ariaPressed === 'false') document.getElementById('dropped').click()"
            )
            page.evaluate(
                "for (const id of ['tree', 'messages']) document.getElementById(id).scrollTop = 1e9"
            )
            page.locator("#messages .message", has_text=f"Message {count - 1}").wait_for()
            assert page.locator("#messages .text").last.inner_text() == again.messages[-1].text
            assert page.locator("#tree .row").last.get_attribute("data-id") == str(
                len(trace.items) - 1
            )
            assert page.evaluate("document.querySelectorAll('*').length") < 2_000
        page.fill("#query", f"Message {count // 2}:")
        assert page.locator("#tree .row[aria-selected=true]").is_visible()
        assert seen.complaints == []


@pytest.mark.slow
def test_images_are_their_type_size_and_hash(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    rendered = render(RICH["cached"](), budget=1_000, trace=True)
    image = next(
        part
        for message in rendered.messages
        for part in message.content
        if isinstance(part, ImagePart)
    )
    breakpoints = sum(
        isinstance(part, CacheBreakpointPart)
        for message in rendered.messages
        for part in message.content
    )
    file = written(rendered.trace)
    assert image.url.partition(",")[2] not in file.read_text(encoding="utf-8")
    with opened(chromium, file) as (page, _):
        shown = page.locator("#messages .part", has_text="image").inner_text()
        assert (
            shown
            == f"image · image/png · low · 640×480 · 29 bytes · sha256 {describe_part(image)['sha256']}…"  # noqa: RUF001  # the sign between two sizes
        )
        assert page.locator("#messages .part.breakpoint").count() == breakpoints


@pytest.mark.slow
def test_an_element_of_which_only_literal_text_is_left_is_marked(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    prompt = (
        UserMessage(priority=9)["Files:", [TextChunk(priority=at)["one two"] for at in range(3)]],
        UserMessage(required=True)["Go on."],
    )
    trace = render(prompt, budget=50, tokenizer=WordTokenizer(), trace=True).trace
    mark = "#tree .row.kept:has(.badge) .label"
    with opened(chromium, written(trace)) as (page, _):
        assert page.locator(mark).count() == 0
        page.evaluate(SLIDE, 4)
        assert page.locator(mark).all_inner_texts() == ["UserMessage[0]"]
        assert "only literal text left" in page.locator("#messages .message").first.inner_text()
        page.locator("#tree .row", has_text="UserMessage[0]").click()
        assert "Only its literal text is left" in page.inner_text("#detail")


@pytest.mark.slow
def test_no_private_name_is_on_the_page(
    chromium: Browser, written: Callable[[Trace | None], Path]
) -> None:
    @component
    class _Hidden(PromptElement):
        def render(self, sizing: Sizing) -> Child:
            return TextChunk()["Some words."]

    trace = render(UserMessage()[_Hidden(), _Hidden()], budget=50, trace=True).trace
    with opened(chromium, written(trace)) as (page, _):
        page.click("#unfold")
        page.locator("#tree .row", has_text="Hidden[0]").first.click()
        assert "Hidden" in page.inner_text("#detail")
        assert "_Hidden" not in page.inner_text("body")
        assert page.locator("[title*=_Hidden]").count() == 0
