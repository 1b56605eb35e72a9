"""What the host that runs the tests has set must not change their outcome; and a way to select tests by the case that they hold."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from tests.examples import load_profile

# pytest and rich print longer lines, colours or plain text for these; a continuous integration host
# sets the first ones.
_CHANGE_OUTPUT = (
    "CI",
    "BUILD_NUMBER",
    "GITHUB_ACTIONS",
    "FORCE_COLOR",
    "PY_COLORS",
    "CLICOLOR_FORCE",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
# Every process that a test starts would compile the whole package anew.
_SLOWS_DOWN = ("PYTHONDONTWRITEBYTECODE",)

__all__ = [
    "interruptible",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_protocol",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Select tests by the edge case or invariant that they hold."""
    parser.addoption(
        "--spec",
        action="append",
        default=[],
        metavar="NUMBER",
        help="run the tests that are marked with this number, such as E55",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take these variables out of this process, and so out of every process and nested session that a test starts."""
    for name in (*_CHANGE_OUTPUT, *_SLOWS_DOWN):
        os.environ.pop(name, None)
    load_profile(whole=_is_whole(config))


def _is_whole(config: pytest.Config) -> bool:
    expression: str = config.option.markexpr
    return "slow" in expression and "not slow" not in expression


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count properties, of which other runs take a share, to the slow tests of a slow run, and deselect what `--spec` does not ask for."""
    if _is_whole(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("slow")
    numbers: list[str] = config.option.spec
    if numbers:
        chosen = [
            item
            for item in items
            if {*numbers} & {number for mark in item.iter_markers("spec") for number in mark.args}
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def pytest_collection_finish() -> None:
    """Leave what has been loaded out of every later garbage collection: it lives to the end, and there is much of it."""
    _freeze_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Do the same with what the tests of a file have loaded, such as the libraries of a framework."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        _freeze_all()
    return result


def _freeze_all() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let an interrupt arrive in this process and its children also where the host ignores it, as `nohup` in a background shell does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
