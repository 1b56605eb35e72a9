"""Screenshots for docs/tracing.md: `python -m tests.browser.shots` takes them from the trace page of the demo."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from promptkit import render
from promptkit.tracing import trace_to_html
from tests.browser.chromium import browser, find, opened
from tests.browser.prompts import conversation
from tests.paths import ROOT

__all__ = ["IMAGES", "main"]

IMAGES = ROOT / "docs" / "images"

BUDGET = 4_000  # tokens


def main() -> int:
    """Take the screenshots. Returns 1 if there is no browser."""
    executable = find()
    if executable is None:
        print("No Chromium on PATH: install one, or set PROMPTKIT_CHROMIUM to its path.", file=sys.stderr)
        return 1
    trace = render(conversation(), budget=BUDGET, trace=True).trace
    if trace is None:
        return 1
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
    for path in sorted(IMAGES.glob("trace-*.png")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
