"""A real browser for tests: the Chromium of the machine, headless and without a network of its own.

Nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

__all__ = ["Seen", "browser", "find", "opened"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

FLAGS = (
    "--no-sandbox",  # it may run as root, and shows our own files only
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """The browser: what PROMPTKIT_CHROMIUM names, or the first of the usual names on PATH."""
    named = os.environ.get("PROMPTKIT_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser(executable: str) -> Generator[Browser]:
    """The browser, with a fresh profile of its own."""
    pytest.importorskip(
        "playwright", reason="pages are tested with playwright: pip install '.[dev]'"
    )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield made
        finally:
            made.close()


class Seen:
    """What a page complained about, and what it asked the network for."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on(
            "console", lambda message: self.complaints.append(f"{message.type}: {message.text}")
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def opened(
    browser: Browser, file: Path, *, width: int = 1440, height: int = 900, dark: bool = False
) -> Generator[tuple[Page, Seen]]:
    """A file as a page, once it is ready."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    try:
        page = context.new_page()
        seen = Seen(page)
        page.goto(file.as_uri())
        page.wait_for_selector("body.ready")
        yield page, seen
    finally:
        context.close()
