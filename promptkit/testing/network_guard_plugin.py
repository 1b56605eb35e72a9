"""The pytest side of the network guard: `promptkit_loopback_only = true` in the ini file, `@pytest.mark.loopback_only` on a test.

pytest loads this module in every test session where promptkit is installed, and with it the guard,
which needs the standard library and attrs alone.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from promptkit.testing.network_guard import Refusal, describe_refusals, record_refusals

_OPTION = "promptkit_loopback_only"
_MARKER = "loopback_only"
_HELP = "fail this test if it opens a connection beyond loopback; with False, allow it to although promptkit_loopback_only is set"


_KEY = pytest.StashKey[list["Refusal"]]()
"""The refusals of a test that no phase of it has reported yet."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that guards every test of a suite."""
    parser.addini(
        _OPTION,
        "fail every test that opens a connection beyond loopback",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that guards one test."""
    config.addinivalue_line("markers", f"{_MARKER}(on=True): {_HELP}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Guard the whole test, so that its threads find no gap between set-up, call and tear-down."""
    marker = item.get_closest_marker(_MARKER)
    if not (
        item.config.getini(_OPTION)
        if marker is None
        else marker.kwargs.get("on", marker.args[0] if marker.args else True)
    ):
        return (yield)
    with record_refusals() as refused:
        item.stash[_KEY] = refused
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a phase of a test, and fail it if anything was refused that no earlier phase has reported."""
    try:
        result = yield
    except pytest.skip.Exception:  # a test must not skip itself because it found no network
        _fail_on_refusals(item)
        raise
    except BaseException as error:  # the test failed already, perhaps because of the refusal
        if message := _describe_new_refusals(item):
            error.add_note(message)
        raise
    _fail_on_refusals(item)
    return result


# what fixtures tried, and threads since
pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call


def _fail_on_refusals(item: pytest.Item) -> None:
    __tracebackhide__ = True
    if message := _describe_new_refusals(item):
        pytest.fail(message, pytrace=False)


def _describe_new_refusals(item: pytest.Item) -> str | None:
    refused = item.stash.get(_KEY, None)
    if not refused:
        return None
    new = refused[:]
    del refused[: len(new)]  # a thread may have added one in the meantime
    return f"{describe_refusals(new)}\nA test that needs the network says so: @pytest.mark.{_MARKER}(False)."
