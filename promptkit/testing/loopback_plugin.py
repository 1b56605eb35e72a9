"""The guard of `loopback.py` around each test: `promptkit_loopback_only = true` in the ini file, `@pytest.mark.loopback_only` on a test.

It is loaded in every test session where promptkit is installed, so it imports the guard only where it is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from promptkit.testing.loopback import Refusal

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
]

OPTION = "promptkit_loopback_only"
MARKER = "loopback_only"
HELP = "fail this test if it opens a connection beyond loopback; with False, allow it to although promptkit_loopback_only is set"


class _Watched:
    """What one test was refused, and how much of it is accounted for."""

    def __init__(self, refused: list[Refusal]) -> None:
        self.refused = refused
        self.told = 0


_KEY = pytest.StashKey[_Watched]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option for all tests of a suite."""
    parser.addini(OPTION, "fail every test that opens a connection beyond loopback", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marker for one test."""
    config.addinivalue_line("markers", f"{MARKER}(on=True): {HELP}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch all of a test, so that its threads find no gap between set-up, call and tear-down."""
    if not _is_on(item):
        return (yield)
    from promptkit.testing.loopback import watch

    with watch() as refused:
        item.stash[_KEY] = _Watched(refused)
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Judge what fixtures did."""
    return (yield from _judged(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge what the test did."""
    return (yield from _judged(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Judge what fixtures did at the end, and what threads did since."""
    return (yield from _judged(item))


def _is_on(item: pytest.Item) -> bool:
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return bool(item.config.getini(OPTION))
    return bool(marker.kwargs.get("on", marker.args[0] if marker.args else True))


def _judged(item: pytest.Item) -> Generator[None, object, object]:
    """Let a phase of a test run, and fail it if anything was refused that no earlier phase has failed for."""
    __tracebackhide__ = True
    try:
        made = yield
    except pytest.skip.Exception:  # a test may not skip itself for want of a network either
        _fail(item)
        raise
    except BaseException as error:  # it failed already, perhaps for this reason
        if message := _message(item):
            error.add_note(message)
        raise
    _fail(item)
    return made


def _fail(item: pytest.Item) -> None:
    __tracebackhide__ = True
    if message := _message(item):
        pytest.fail(message, pytrace=False)


def _message(item: pytest.Item) -> str | None:
    watched = item.stash.get(_KEY, None)
    if watched is None or watched.told == len(watched.refused):
        return None
    from promptkit.testing.loopback import told

    new = watched.refused[watched.told :]
    watched.told += len(new)
    return f"{told(new)}\nA test that needs the network says so: @pytest.mark.{MARKER}(False)."
