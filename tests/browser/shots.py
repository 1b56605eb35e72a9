"""The pictures of docs/tracing.md: `python -m tests.browser.shots` takes them anew from the page that the demonstration gives."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from promptkit import render
from tests.browser.chromium import browser, find, opened
from tests.browser.prompts import conversation

__all__ = ["IMAGES", "main"]

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"

BUDGET = 4_000  # tokens


def main() -> int:
    """Take the pictures; 1 where there is no browser to take them with."""
    executable = find()
    if executable is None:
        print("There is no Chromium on PATH: install one, or name it in PROMPTKIT_CHROMIUM.", file=sys.stderr)
        return 1
    trace = render(conversation(), budget=BUDGET, trace=True).trace
    if trace is None:
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, browser(executable) as chromium:
        file = Path(folder) / "trace.html"
        file.write_text(trace.to_html(title="promptkit_components.demo"), encoding="utf-8")
        with opened(chromium, file, width=1280, height=740) as (page, _):
            page.locator("#tree .row", has_text="KeepWith[2]").first.click()
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-light.png")
        with opened(chromium, file, width=1280, height=740, dark=True) as (page, _):
            page.click("#tab-receipt")
            page.fill("#budget", "8000")
            page.locator("#receipt .removal.last").wait_for(state="attached")
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-dark.png")
        with opened(chromium, file, width=400, height=800) as (page, _):
            page.locator("#tree .row").nth(6).click()
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "trace-narrow.png")
    for path in sorted(IMAGES.glob("trace-*.png")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
