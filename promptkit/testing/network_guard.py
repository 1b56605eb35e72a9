"""Refuse connections beyond loopback in a test, and fail the test even if the code under test swallows the error.

An audit hook sees every connection that Python's own sockets make, including those of threads,
asyncio, HTTP clients and DNS look-ups. It comes too late in one case: a host name that is passed to
`connect` itself is looked up before the hook runs. Therefore `connect`, `connect_ex`, `sendto` and
`sendmsg` are wrapped as well.

The guard does not see other processes, proxies on this machine, libraries with sockets of their own
in C (uvloop, gRPC, libcurl), and asyncio on Windows where it connects to an IP address instead of a
name.

Why not pytest-socket (0.8.1 was compared): its allow-list wraps `socket.socket.connect` alone, so
`connect_ex`, `sendto`, `sendmsg`, sockets of the C class and DNS look-ups pass; its
`--disable-socket` refuses loopback too. Its error is a `RuntimeError` that fails the test only
where the code under test lets it through, while HTTP clients usually catch it and retry. It stops
guarding when the tear-down of a test begins, and it needs pytest, while `loopback_only()` also
guards a plain `with` block.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from inspect import currentframe
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from threading import Lock, current_thread
from traceback import walk_stack
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import attrs


class NotLoopbackError(ConnectionRefusedError):
    """A connection beyond loopback was refused.

    The code under test sees the same kind of error as for a port without a server.
    """


@attrs.frozen(kw_only=True)
class Refusal:
    """One refused connection, datagram or look-up."""

    what: str
    """What was refused, for example `a connection to 192.0.2.1:9`."""
    thread: str
    """Name of the thread that tried it."""
    where: tuple[str, ...] = ()
    """The innermost calls as `file:line in function`; calls inside the standard library are left
    out."""


@contextmanager
def loopback_only() -> Generator[Sequence[Refusal]]:
    """Allow only connections to this machine inside a `with` block.

    Unix sockets, 127.0.0.0/8, ::1, localhost and 0.0.0.0 are allowed. Other connections, datagrams
    and look-ups of names raise `NotLoopbackError`. The whole process is watched: a refusal in any
    thread belongs to the innermost block that runs at the time.

    Yields:
        The refusals so far, as a list that grows.

    Raises:
        AssertionError: At the end of the block, if anything was refused.

    >>> with loopback_only():
    ...     run_agent(model)
    """
    __tracebackhide__ = True
    with record_refusals() as refused:
        try:
            yield refused
        except BaseException as error:  # the error that happened first is raised, with a note
            if refused:
                error.add_note(describe_refusals(refused))
            raise
    if refused:
        raise AssertionError(describe_refusals(refused))


@contextmanager
def record_refusals() -> Generator[list[Refusal]]:
    """Refuse connections beyond loopback and record them, but raise nothing at the end of the block."""
    refused: list[Refusal] = []
    _install_audit_hook()
    with _lock:
        if not _watches:
            _wrap_socket_methods()
        _watches.append(refused)
    try:
        yield refused
    finally:
        with _lock:
            _watches[:] = [other for other in _watches if other is not refused]
            if not _watches:
                _wrapped.close()


def describe_refusals(refused: Sequence[Refusal]) -> str:
    """Describe refusals as the message of a failed test: each one once, with how often and where it happened."""
    lines = ["The code under test tried to leave this machine:"]
    times = Counter(refusal.what for refusal in refused)
    # the first of each
    for refusal in {refusal.what: refusal for refusal in reversed(refused)}.values():
        again = f", {times[refusal.what]} times" if times[refusal.what] > 1 else ""
        thread = "" if refusal.thread == "MainThread" else f", in thread {refusal.thread}"
        lines += [f"  {refusal.what}{again}{thread}", *(f"    {each}" for each in refusal.where)]
    lines.append(
        "Give it a model, a client or a server that stays on this machine: promptkit.testing.ScriptedModel, or one on 127.0.0.1."
    )
    return "\n".join(lines)


_lock = Lock()
_watches: list[list[Refusal]] = []
"""The refusals of each running block, the innermost last. Global, because audit hooks belong to the
process."""


@cache
def _install_audit_hook() -> None:
    """Install the one audit hook of this process.

    It cannot be removed, so it does nothing while no block runs.
    """
    sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:  # Any: each event has its own
    if _watches and event.startswith("socket.") and (describe := _DESCRIBE_REFUSED.get(event)):
        _refuse_beyond_loopback(describe, arguments)


# Any: as above, it may be anything.
def _refuse_beyond_loopback(
    describe: Callable[..., str | None], arguments: tuple[Any, ...]
) -> None:
    what = describe(*arguments)
    if what is None:
        return
    for watched in _watches[-1:]:
        watched.append(Refusal(what=what, thread=current_thread().name, where=_innermost_calls()))
    raise NotLoopbackError(f"{what} was refused: nothing but loopback may be reached in this test.")


_MAX_CALLS = 4
"""How many calls a message shows."""


def _innermost_calls() -> tuple[str, ...]:
    """List the innermost calls, up to pytest; calls inside the standard library are left out."""
    here = f"{Path.cwd()}{os.sep}"
    places: list[str] = []
    for frame, line in walk_stack(currentframe()):
        module = str(frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if top in {"_pytest", "pluggy"} or len(places) == _MAX_CALLS:
            break
        if module != __name__ and top not in sys.stdlib_module_names:
            places.append(
                f"{frame.f_code.co_filename.removeprefix(here)}:{line} in {frame.f_code.co_name}"
            )
    return tuple(places)


def _describe_connection(sock: socket.socket, address: object) -> str | None:
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return (
            None
            if address is None or sock.family in _ON_THIS_MACHINE
            else f"a connection to {address!r}"
        )
    host, port = _host_and_port(address)
    kind = "datagram" if sock.type == socket.SOCK_DGRAM else "connection"
    return None if host is None or _is_this_machine(host) else f"a {kind} to {host}:{port}"


def _describe_look_up(host: object, *_: object) -> str | None:
    name = _host_text(host)
    # An IP address is not looked up, and servers ask for the name of their own machine.
    return (
        None
        if name is None
        or parse_ip_address(name)
        or _is_this_machine(name)
        or name == socket.gethostname()
        else f"a look-up of {name}"
    )


def _describe_reverse_look_up(address: object) -> str | None:
    host = _host_and_port(address)[0] or _host_text(address)
    number = parse_ip_address(host or "")
    return (
        _describe_look_up(host)
        if number is None or _is_this_machine(str(number))
        else f"a look-up of {host}"
    )


_DESCRIBE_REFUSED: dict[str, Callable[..., str | None]] = {
    "socket.connect": _describe_connection,
    "socket.sendto": _describe_connection,
    "socket.sendmsg": _describe_connection,
    "socket.getaddrinfo": _describe_look_up,
    "socket.gethostbyname": _describe_look_up,
    "socket.gethostbyaddr": _describe_reverse_look_up,
    "socket.getnameinfo": _describe_reverse_look_up,
}
"""Audit event → a function that describes what must be refused, or returns None where the address
is on this machine."""

_ON_THIS_MACHINE = {
    getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name)
}


def _host_and_port(address: object) -> tuple[str | None, object]:
    if not isinstance(address, tuple):
        return None, None  # the call itself raises an error
    parts = cast("tuple[object, ...]", address)  # of unknown items
    return (_host_text(parts[0]), parts[1]) if len(parts) > 1 else (None, None)


def _host_text(host: object) -> str | None:
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else host
    return text if isinstance(text, str) else None


def parse_ip_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a text is; None for a name."""
    try:
        number = ip_address(host)
    except ValueError:
        return None
    return (number.ipv4_mapped or number) if isinstance(number, IPv6Address) else number


def _is_this_machine(host: str) -> bool:
    if (number := parse_ip_address(host)) is not None:
        return number.is_loopback or number.is_unspecified
    # some systems ask DNS servers for `localhost.` and `x.localhost`
    return host.casefold() in {"", "localhost"}


_wrapped = ExitStack()
"""Takes the wrapped methods back."""


def _wrap_socket_methods() -> None:
    for name in ("connect", "connect_ex", "sendto", "sendmsg"):
        if hasattr(socket.socket, name):  # Windows has no sendmsg
            if name in vars(socket.socket):
                _wrapped.callback(setattr, socket.socket, name, vars(socket.socket)[name])
            else:  # it is inherited
                _wrapped.callback(delattr, socket.socket, name)
            setattr(socket.socket, name, _guard_method(getattr(socket.socket, name)))


P = ParamSpec("P")
T = TypeVar("T")


def _guard_method(
    method: Callable[Concatenate[socket.socket, P], T],
) -> Callable[Concatenate[socket.socket, P], T]:
    # The address is the last argument: sendmsg(buffers, ancillary, flags, address), sendto(bytes,
    # address), connect(address).
    min_arguments = 4 if method.__name__ == "sendmsg" else 1

    @wraps(method)
    def guarded(self: socket.socket, /, *arguments: P.args, **named: P.kwargs) -> T:
        if _watches and len(arguments) >= min_arguments:
            _refuse_beyond_loopback(_describe_connection, (self, arguments[-1]))
        return method(self, *arguments, **named)

    return guarded
