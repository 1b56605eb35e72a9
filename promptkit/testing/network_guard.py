"""Nothing leaves this machine: connections beyond loopback are refused, and remembered even if the code under test swallows the error.

An audit hook sees every connection that Python's own sockets make: threads, asyncio, HTTP clients and DNS look-ups included. One
thing it hears too late: a name given to `connect` itself is looked up before. So that method and its likes are wrapped as well.

Not seen: other processes, proxies on this machine, libraries with sockets of their own in C (uvloop, gRPC, libcurl), and asyncio
on Windows where it connects to a number instead of a name.

The guard of `loopback.py` around each test: `promptkit_loopback_only = true` in the ini file, `@pytest.mark.loopback_only` on a test.

It is loaded in every test session where promptkit is installed, so it imports the guard only where it is wanted.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache, wraps
from inspect import currentframe
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Lock, current_thread
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import attrs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = [
    "NotLoopbackError",
    "Refusal",
    "loopback_only",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "told",
    "watch",
]


class NotLoopbackError(ConnectionRefusedError):
    """What the code under test gets instead of a connection beyond loopback: as if nobody answered there."""


@attrs.frozen(kw_only=True)
class Refusal:
    """Something that was refused: `what` it was, in which `thread`, and `where`: the innermost calls, those of the library left out."""

    what: str
    thread: str
    where: tuple[str, ...] = ()


@contextmanager
def loopback_only() -> Generator[Sequence[Refusal]]:
    """A block in which nothing may leave this machine. Its value lists what was refused so far.

    Unix sockets, 127.0.0.0/8, ::1, localhost and 0.0.0.0 (which is this machine) are allowed. Other connections, datagrams and
    look-ups of names raise NotLoopbackError, and AssertionError is raised at the end of the block if there was any. It is the whole
    process that is watched: threads count to the block that runs at the time, and of nested blocks to the innermost.

    >>> with loopback_only():
    ...     run_agent(model)
    """
    __tracebackhide__ = True
    with watch() as refused:
        try:
            yield refused
        except BaseException as error:  # whatever failed keeps its own reason
            if refused:
                error.add_note(told(refused))
            raise
    if refused:
        raise AssertionError(told(refused))


@contextmanager
def watch() -> Generator[list[Refusal]]:
    """Refuse and remember, without a judgement at the end."""
    refused: list[Refusal] = []
    _listen()
    with _lock:
        if not _watches:
            _wrap()
        _watches.append(refused)
    try:
        yield refused
    finally:
        with _lock:
            _watches[:] = [other for other in _watches if other is not refused]
            if not _watches:
                _unwrap()


def told(refused: Sequence[Refusal]) -> str:
    """What was refused, as the message of a failed test."""
    lines = ["The code under test tried to leave this machine:"]
    times = Counter(refusal.what for refusal in refused)
    for refusal in {refusal.what: refusal for refusal in reversed(refused)}.values():  # the first of each
        count = times[refusal.what]
        again = f", {count} times" if count > 1 else ""
        thread = "" if refusal.thread == "MainThread" else f", in thread {refusal.thread}"
        lines.append(f"  {refusal.what}{again}{thread}")
        lines += [f"    {place}" for place in refusal.where]
    lines.append("Give it a model, a client or a server that stays on this machine: promptkit.testing.ScriptedModel, or one on 127.0.0.1.")
    return "\n".join(lines)


_lock = Lock()
_watches: list[list[Refusal]] = []
"""What each block that runs now has refused, the innermost last. Audit hooks are the process's, so this is, too."""


@cache
def _listen() -> None:
    """An audit hook cannot be taken back, so there is one, and it sleeps while there is no block."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:  # Any: each event has its own
    if _watches and event.startswith("socket.") and (judge := _JUDGES.get(event)):
        _judge(judge, arguments)


def _judge(judge: Callable[..., str | None], arguments: tuple[Any, ...]) -> None:  # Any: likewise
    what = judge(*arguments)
    if what is None:
        return
    refusal = Refusal(what=what, thread=current_thread().name, where=_where())
    for watched in _watches[-1:]:
        watched.append(refusal)
    message = f"{what} was refused: nothing but loopback may be reached in this test."
    raise NotLoopbackError(message)


CALLS = 4
"""Places that are shown."""


def _where() -> tuple[str, ...]:
    """The innermost calls on the way to a refusal, up to what runs the tests; those of the standard library left out."""
    here = f"{os.getcwd()}{os.sep}"  # noqa: PTH109  # a prefix of text
    places: list[str] = []
    for frame, line in walk_stack(currentframe()):
        module = str(frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if top in {"_pytest", "pluggy"} or len(places) == CALLS:
            break
        if module != __name__ and top not in sys.stdlib_module_names:
            places.append(f"{frame.f_code.co_filename.removeprefix(here)}:{line} in {frame.f_code.co_name}")
    return tuple(places)


def _connection(sock: socket.socket, address: object) -> str | None:
    if sock.family not in _INTERNET:
        return None if address is None or sock.family in _ON_THIS_MACHINE else f"a connection to {address!r}"
    host, port = _host_and_port(address)
    if host is None or _is_here(host):
        return None
    return f"a {'datagram' if sock.type == socket.SOCK_DGRAM else 'connection'} to {host}:{port}"


def _look_up(host: object, *_: object) -> str | None:
    name = _text(host)
    # A number is not looked up, and servers ask for their own name.
    if name is None or _number(name) or _is_here(name) or name == socket.gethostname():
        return None
    return f"a look-up of {name}"


def _reverse(address: object) -> str | None:
    host = _host_and_port(address)[0] or _text(address)
    number = _number(host or "")
    return _look_up(host) if number is None or _is_here(str(number)) else f"a look-up of {host}"


_JUDGES: dict[str, Callable[..., str | None]] = {
    "socket.connect": _connection,
    "socket.sendto": _connection,
    "socket.sendmsg": _connection,
    "socket.getaddrinfo": _look_up,
    "socket.gethostbyname": _look_up,
    "socket.gethostbyaddr": _reverse,
    "socket.getnameinfo": _reverse,
}

_INTERNET = {socket.AF_INET, socket.AF_INET6}
_ON_THIS_MACHINE = {getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name)}


def _host_and_port(address: object) -> tuple[str | None, object]:
    if not isinstance(address, tuple):
        return None, None  # the call itself will complain
    parts = cast("tuple[object, ...]", address)  # of unknown items
    return (_text(parts[0]), parts[1]) if len(parts) > 1 else (None, None)


def _text(host: object) -> str | None:
    if isinstance(host, bytes | bytearray):
        return host.decode("ascii", "replace")
    return host if isinstance(host, str) else None


def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        number = ip_address(host)
    except ValueError:
        return None
    return (number.ipv4_mapped or number) if isinstance(number, IPv6Address) else number


def _is_here(host: str) -> bool:
    number = _number(host)
    if number is not None:
        return number.is_loopback or number.is_unspecified
    return host.casefold() in {"", "localhost"}  # `localhost.` and `x.localhost` are asked of DNS servers by some systems


_METHODS = ("connect", "connect_ex", "sendto", "sendmsg")
_before: dict[str, Any] = {}  # Any: a method, or None where the class only inherited it


def _wrap() -> None:
    for name in _METHODS:
        if hasattr(socket.socket, name):  # Windows has no sendmsg
            _before[name] = vars(socket.socket).get(name)
            setattr(socket.socket, name, _wrapped(getattr(socket.socket, name)))


def _unwrap() -> None:
    for name, method in _before.items():
        if method is None:
            delattr(socket.socket, name)
        else:
            setattr(socket.socket, name, method)
    _before.clear()


P = ParamSpec("P")
T = TypeVar("T")


def _wrapped(method: Callable[Concatenate[socket.socket, P], T]) -> Callable[Concatenate[socket.socket, P], T]:
    least = 4 if method.__name__ == "sendmsg" else 1  # arguments, where the address is one of them: the last

    @wraps(method)
    def judged(self: socket.socket, /, *arguments: P.args, **named: P.kwargs) -> T:
        if _watches and len(arguments) >= least:
            _judge(_connection, (self, arguments[-1]))
        return method(self, *arguments, **named)

    return judged


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
    new = watched.refused[watched.told :]
    watched.told += len(new)
    return f"{told(new)}\nA test that needs the network says so: @pytest.mark.{MARKER}(False)."
