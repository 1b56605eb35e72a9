"""The guard: what may be reached, what is refused, and that a refusal fails the test whoever swallows the error.

What is refused here could not be reached anyway: 192.0.2.0/24 and 2001:db8::/32 are no one's, and
.invalid has no names.
"""

from __future__ import annotations

import _socket
import asyncio
import re
import socket
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import APIConnectionError, OpenAI

from promptkit.testing import NotLoopbackError, Refusal, loopback_only
from promptkit.testing.network_guard import describe_refusals, record_refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAR = ("192.0.2.1", 9)
NAME = "promptkit.invalid"

pytest_plugins = ["pytester"]


def tcp() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    return made


def udp(family: int = socket.AF_INET) -> socket.socket:
    return socket.socket(family, socket.SOCK_DGRAM)


async def streams(host: str) -> None:
    await asyncio.open_connection(host, 9)


async def datagrams() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=FAR
    )


async def raw_sockets() -> None:
    with closing(tcp()) as made:
        await asyncio.get_running_loop().sock_connect(made, FAR)


def with_socket(made: socket.socket, use: Callable[[socket.socket], object]) -> None:
    with closing(made):
        use(made)


def bare() -> Any:  # Any: the class below socket.socket, which is no one's to use, and used
    return _socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


ATTEMPTS: dict[str, tuple[Callable[[], object], str]] = {
    "connect": (
        lambda: with_socket(tcp(), lambda s: s.connect(FAR)),
        "a connection to 192.0.2.1:9",
    ),
    "connect to a name": (
        lambda: with_socket(tcp(), lambda s: s.connect((NAME, 9))),
        f"a connection to {NAME}:9",
    ),
    "connect_ex": (
        lambda: with_socket(tcp(), lambda s: s.connect_ex(FAR)),
        "a connection to 192.0.2.1:9",
    ),
    "connect_ex to a name": (
        lambda: with_socket(tcp(), lambda s: s.connect_ex((NAME, 9))),
        f"a connection to {NAME}:9",
    ),
    "create_connection": (
        lambda: socket.create_connection(FAR, timeout=1),
        "a connection to 192.0.2.1:9",
    ),
    "create_connection to a name": (
        lambda: socket.create_connection((NAME, 9), timeout=1),
        f"a look-up of {NAME}",
    ),
    "IPv6": (
        lambda: with_socket(udp(socket.AF_INET6), lambda s: s.connect(("2001:db8::1", 9))),
        "a datagram to 2001:db8::1:9",
    ),
    "mapped": (
        lambda: with_socket(udp(socket.AF_INET6), lambda s: s.connect(("::ffff:192.0.2.1", 9))),
        "a datagram to ::ffff:192.0.2.1:9",
    ),
    "UDP connect": (
        lambda: with_socket(udp(), lambda s: s.connect(FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendto": (
        lambda: with_socket(udp(), lambda s: s.sendto(b"x", FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendto with flags": (
        lambda: with_socket(udp(), lambda s: s.sendto(b"x", 0, FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendto a name": (
        lambda: with_socket(udp(), lambda s: s.sendto(b"x", (NAME, 9))),
        f"a datagram to {NAME}:9",
    ),
    "sendmsg": (
        lambda: with_socket(udp(), lambda s: s.sendmsg([b"x"], [], 0, FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendmsg to a name": (
        lambda: with_socket(udp(), lambda s: s.sendmsg([b"x"], [], 0, (NAME, 9))),
        f"a datagram to {NAME}:9",
    ),
    "connect below the library": (
        lambda: with_socket(bare(), lambda s: s.connect(FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendto below the library": (
        lambda: with_socket(bare(), lambda s: s.sendto(b"x", FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "sendmsg below the library": (
        lambda: with_socket(bare(), lambda s: s.sendmsg([b"x"], [], 0, FAR)),
        "a datagram to 192.0.2.1:9",
    ),
    "broadcast": (
        lambda: with_socket(udp(), lambda s: s.sendto(b"x", ("<broadcast>", 9))),
        "a datagram to <broadcast>:9",
    ),
    "getaddrinfo": (lambda: socket.getaddrinfo(NAME, 9), f"a look-up of {NAME}"),
    "what only some systems know": (
        lambda: socket.getaddrinfo("x.localhost", 9),
        "a look-up of x.localhost",
    ),
    "getaddrinfo of bytes": (lambda: socket.getaddrinfo(NAME.encode(), 9), f"a look-up of {NAME}"),
    "gethostbyname": (lambda: socket.gethostbyname(NAME), f"a look-up of {NAME}"),
    "gethostbyname_ex": (lambda: socket.gethostbyname_ex(NAME), f"a look-up of {NAME}"),
    "gethostbyaddr": (lambda: socket.gethostbyaddr("192.0.2.1"), "a look-up of 192.0.2.1"),
    "getnameinfo": (lambda: socket.getnameinfo(FAR, 0), "a look-up of 192.0.2.1"),
    "asyncio": (lambda: asyncio.run(streams("192.0.2.1")), "a connection to 192.0.2.1:9"),
    "asyncio, a name": (lambda: asyncio.run(streams(NAME)), f"a look-up of {NAME}"),
    "asyncio, datagrams": (lambda: asyncio.run(datagrams()), "a datagram to 192.0.2.1:9"),
    "asyncio, a socket": (lambda: asyncio.run(raw_sockets()), "a connection to 192.0.2.1:9"),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_refuses(attempt: str) -> None:
    run, what = ATTEMPTS[attempt]
    with record_refusals() as refused:
        with pytest.raises(NotLoopbackError, match="nothing but loopback may be reached"):
            run()
        assert [refusal.what for refusal in refused] == [what]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_fails_even_if_the_error_is_swallowed(attempt: str) -> None:
    run, what = ATTEMPTS[attempt]
    with (
        pytest.raises(AssertionError, match="tried to leave this machine") as caught,
        loopback_only(),
        suppress(OSError),
    ):
        run()
    assert str(caught.value).splitlines()[1].startswith(f"  {what}")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it has there
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """A server on 127.0.0.1 that answers everything with 204."""
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "0.0.0.0"])  # noqa: S104  # connected to, not bound
def test_a_server_on_this_machine_can_be_reached(port: int, host: str) -> None:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return answer

    with loopback_only() as refused:
        with socket.create_connection((host, port)) as made:
            made.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert made.recv(100).startswith(b"HTTP/1.0 204")
        assert asyncio.run(ask()).startswith(b"HTTP/1.0 204")
    assert refused == []


def test_a_server_can_be_started_on_every_address() -> None:
    # which asks for the machine's own name
    with loopback_only(), HTTPServer(("", 0), Answers) as server:
        assert server.server_port


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_datagrams_on_this_machine_pass(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with loopback_only(), closing(udp(family)) as made:
        try:
            made.connect((host, 9))
        except OSError as error:
            if isinstance(error, NotLoopbackError):
                raise
            pytest.skip(f"this machine has no {host}: {error}")
        with suppress(ConnectionRefusedError):
            made.send(b"x")


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
def test_unix_sockets_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # their paths must be short
    with (
        loopback_only(),
        closing(socket.socket(socket.AF_UNIX)) as server,
        closing(socket.socket(socket.AF_UNIX)) as client,
    ):
        server.bind("s")
        server.listen()
        client.connect("s")
        pair = socket.socketpair()
        for end in pair:
            end.close()


def test_numbers_and_no_name_are_not_looked_up() -> None:
    with loopback_only():
        assert socket.getaddrinfo("192.0.2.1", 9)
        assert socket.getaddrinfo(None, 9)


def test_an_sdk_that_swallows_the_error_fails_the_test() -> None:
    def ask() -> None:
        client = OpenAI(api_key="none", base_url="http://192.0.2.1:9/v1", max_retries=0, timeout=1)
        with loopback_only(), client, suppress(APIConnectionError):
            client.models.list()

    with pytest.raises(AssertionError, match=r"a connection to 192\.0\.2\.1:9"):
        ask()


class TestWhatIsTold:
    def test_where_it_was_seen_from_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(Path(__file__).parent)

        def reach() -> None:
            with closing(tcp()) as made:
                made.connect(FAR)

        with record_refusals() as refused, suppress(OSError):
            reach()
        lines = describe_refusals(refused).splitlines()
        assert lines[0] == "The code under test tried to leave this machine:"
        assert lines[1] == "  a connection to 192.0.2.1:9"
        assert re.fullmatch(
            rf"    {re.escape(str(Path(__file__).relative_to(Path.cwd())))}:\d+ in reach", lines[2]
        )
        assert "ScriptedModel" in lines[-1]

    def test_no_more_than_the_innermost_calls(self) -> None:
        def reach(depth: int) -> None:
            if depth:
                reach(depth - 1)
            else:
                socket.getaddrinfo(NAME, 9)

        with record_refusals() as refused, suppress(OSError):
            reach(20)
        assert len(refused[0].where) == 4

    def test_what_was_tried_again_is_told_once(self) -> None:
        refused = [
            Refusal(what="a look-up of x", thread="MainThread"),
            Refusal(what="y", thread="worker"),
            Refusal(what="a look-up of x", thread=""),
        ]
        assert describe_refusals(refused).splitlines()[1:3] == [
            "  a look-up of x, 2 times",
            "  y, in thread worker",
        ]


def test_threads_count_to_the_block_that_runs() -> None:
    def reach() -> None:
        with suppress(OSError):
            socket.getaddrinfo(NAME, 9)

    def run() -> None:
        with loopback_only():
            thread = threading.Thread(target=reach, name="worker")
            thread.start()
            thread.join()

    with pytest.raises(AssertionError, match=f"a look-up of {NAME}, in thread worker"):
        run()


def test_of_nested_blocks_the_inner_one_is_told() -> None:
    with loopback_only() as outer:
        with pytest.raises(AssertionError), loopback_only() as inner, suppress(OSError):
            socket.getaddrinfo(NAME, 9)
        assert len(inner) == 1
        assert outer == []


def test_what_failed_keeps_its_own_reason_with_a_note() -> None:
    def run() -> None:
        with loopback_only():
            with suppress(OSError):
                socket.getaddrinfo(NAME, 9)
            raise LookupError("no answer")

    with pytest.raises(LookupError, match="no answer") as caught:
        run()
    assert f"a look-up of {NAME}" in caught.value.__notes__[0]


def test_behind_the_block_everything_is_as_it_was() -> None:
    def methods() -> dict[str, object]:
        return {
            name: vars(socket.socket).get(name)
            for name in ("connect", "connect_ex", "sendto", "sendmsg")
        }

    before = methods()  # this suite's own guard may be on
    with loopback_only(), loopback_only():
        assert None not in methods().values()
    assert methods() == before


def test_behind_the_last_block_nothing_is_refused(pytester: pytest.Pytester) -> None:
    done = pytester.runpython_c(
        "import socket; from promptkit.testing import loopback_only\n"
        "with loopback_only(): pass\n"
        "assert 'connect' not in vars(socket.socket)\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made: made.connect(('192.0.2.1', 9))\n"
    )
    # A machine without any network says so itself.
    assert done.ret == 0 or "Network is unreachable" in done.stderr.str()


REACH = """
import contextlib, socket, threading, pytest

def reach():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(("192.0.2.1", 9))
"""


def outcomes(pytester: pytest.Pytester, code: str, *, on: bool = True) -> pytest.RunResult:
    pytester.makeini(
        f"[pytest]\npromptkit_loopback_only = {str(on).lower()}\naddopts = --strict-markers -p no:cacheprovider"
    )
    pytester.makepyfile(REACH + code)
    return pytester.runpytest_inprocess("-rA")


# or this suite's own guard would refuse what is free in the suite inside
FREE = pytest.mark.loopback_only(False)


class TestPlugin:
    def test_a_test_that_reaches_out_fails_and_is_told_why(self, pytester: pytest.Pytester) -> None:
        done = outcomes(pytester, "def test_far(): reach()\ndef test_near(): pass")
        done.assert_outcomes(passed=1, failed=1)
        lines = [
            "  a datagram to 192.0.2.1:9",
            "    *in reach",
            "    *in test_far",
            "Give it *",
            "*@pytest.mark.loopback_only(False)*",
        ]
        done.stdout.fnmatch_lines(lines, consecutive=True)
        done.stdout.no_fnmatch_line("*plugin.py:*")

    @FREE
    def test_nothing_is_guarded_unless_it_is_asked_for(self, pytester: pytest.Pytester) -> None:
        outcomes(pytester, "def test_far(): reach()", on=False).assert_outcomes(passed=1)

    @FREE
    def test_the_marker_guards_one_test(self, pytester: pytest.Pytester) -> None:
        code = "@pytest.mark.loopback_only\ndef test_far(): reach()\ndef test_free(): reach()"
        outcomes(pytester, code, on=False).assert_outcomes(passed=1, failed=1)

    @FREE
    def test_the_marker_frees_one_test(self, pytester: pytest.Pytester) -> None:
        code = """
@pytest.mark.loopback_only(False)
class TestFree:
    def test_far(self): reach()
    @pytest.mark.loopback_only(on=True)
    def test_not_this_one(self): reach()
def test_guarded(): reach()
"""
        outcomes(pytester, code).assert_outcomes(passed=1, failed=2)

    def test_what_a_fixture_does_counts_to_the_test(self, pytester: pytest.Pytester) -> None:
        code = """
@pytest.fixture(scope="session")
def early(): reach()
@pytest.fixture
def late():
    yield
    reach()
def test_early(early): pass
def test_late(late): pass
"""
        done = outcomes(pytester, code)
        done.assert_outcomes(passed=1, errors=2)
        done.stdout.fnmatch_lines(["ERROR *test_early*", "ERROR *test_late*"])

    def test_what_a_thread_does_counts_to_the_test(self, pytester: pytest.Pytester) -> None:
        code = """
def test_far():
    thread = threading.Thread(target=reach)
    thread.start()
    thread.join()
@pytest.fixture
def later():
    go, thread = threading.Event(), None
    thread = threading.Thread(target=lambda: (go.wait(), reach()))
    thread.start()
    yield
    go.set()
    thread.join()
def test_later(later): pass
"""
        outcomes(pytester, code).assert_outcomes(failed=1, passed=1, errors=1)

    def test_a_test_cannot_skip_itself_for_want_of_a_network(
        self, pytester: pytest.Pytester
    ) -> None:
        code = "def test_far():\n    reach()\n    pytest.skip('offline')\ndef test_other(): pytest.skip('no need')"
        outcomes(pytester, code).assert_outcomes(failed=1, skipped=1)

    def test_a_test_that_failed_anyway_shows_both_reasons_once(
        self, pytester: pytest.Pytester
    ) -> None:
        done = outcomes(
            pytester, "def test_far():\n    reach()\n    raise LookupError('no answer')"
        )
        done.assert_outcomes(failed=1)
        assert done.stdout.str().count("tried to leave this machine") == 1
        done.stdout.fnmatch_lines(["*LookupError: no answer", "*tried to leave this machine*"])

    def test_one_refusal_fails_one_test(self, pytester: pytest.Pytester) -> None:
        code = "def test_far():\n    reach()\n    reach()\n" + "".join(
            f"def test_{index}(): pass\n" for index in range(5)
        )
        done = outcomes(pytester, code)
        done.assert_outcomes(failed=1, passed=5)
        done.stdout.fnmatch_lines(["  a datagram to 192.0.2.1:9, 2 times"])
