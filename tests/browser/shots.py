"""Screenshots of pages for docs/tracing.md, docs/transcripts.md and docs/economics.md: `python -m tests.browser.shots` takes them."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from promptkit import Transcript, render
from promptkit.lab.replay import LogOptions, conversation_to_html, log_path
from promptkit.tokens import read_prices
from promptkit.tracing import trace_to_html
from tests.browser.chromium import browser, find, opened
from tests.browser.prompts import conversation
from tests.browser.talks import work_talk
from tests.paths import ROOT

if TYPE_CHECKING:
    from promptkit.lab.replay import ConversationLog

__all__ = ["IMAGES", "main"]

IMAGES = ROOT / "docs" / "images"

BUDGET = 4_000  # tokens


def log_work(*policies: str) -> ConversationLog:
    """Return the log of a conversation of a coding agent in a window of 16,000 tokens, under one policy or two."""
    recorded = Transcript(
        clock=lambda: 1_790_000_000.0,
        new_id=iter(f"entry{number}" for number in range(1_000)).__next__,
    )
    recorded.append_messages(*work_talk(14))
    return log_path(
        recorded.path(),
        LogOptions(prices=read_prices(), sources=policies, model="gpt-5", window=16_000),
        seed="s",
    )


def main() -> int:
    """Take the screenshots. Returns 1 if there is no browser."""
    executable = find()
    if executable is None:
        print(
            "No Chromium on PATH: install one, or set PROMPTKIT_CHROMIUM to its path.",
            file=sys.stderr,
        )
        return 1
    trace = render(conversation(), budget=BUDGET, trace=True).trace
    if trace is None:
        return 1
    # before the browser starts an event loop
    log, compared = log_work("vscode"), log_work("vscode", "break_even")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, browser(executable) as chromium:
        file = Path(folder) / "trace.html"
        file.write_text(trace_to_html(trace, title="promptkit_components.demo"), encoding="utf-8")
        with opened(chromium, file, width=1280, height=740) as (page, _):
            page.locator("#tree .row", has_text="turn").nth(1).click()
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-light.png")
        with opened(chromium, file, width=1280, height=740, dark=True) as (page, _):
            page.click("#tab-removals")
            page.fill("#budget", "8000")
            page.locator("#removals .removal.last").wait_for(state="attached")
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-dark.png")
        with opened(chromium, file, width=400, height=800) as (page, _):
            page.locator("#messages .fold").first.click()
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-narrow.png")
        file.write_text(conversation_to_html(log, title="session.jsonl"), encoding="utf-8")
        with opened(chromium, file, width=1280, height=740) as (page, _):
            page.click("#tab-request")
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "transcript-view.png")
        file.write_text(conversation_to_html(compared, title="session.jsonl"), encoding="utf-8")
        with opened(chromium, file, width=1280, height=740) as (page, _):
            page.fill("#request", "52")
            page.evaluate("new Promise((done) => setTimeout(done, 300))")
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "transcript-compared.png")
    for path in sorted(IMAGES.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
