"""Summaries from a service over real HTTP on this machine: the request, and every kind of response."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.remote import MAX_RESPONSE_BYTES, RemoteSummarizer
from promptkit.errors import (
    InvalidArgumentError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
    SummaryError,
)
from tests.conversations import summary_text
from tests.unit.compaction.summarizers.tasks import (
    SUMMARY,
    TAGGED,
    TOKENIZER,
    long_task,
    parser_talk,
    summarized,
    task_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class Service:
    """Answers each request with one body, and keeps what it was sent."""

    def __init__(
        self, body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.asked: list[tuple[dict[str, Any], dict[str, str]]] = []  # Any: JSON
        self.arrived = threading.Event()
        self.hang = threading.Event()
        self.hangs = False
        self.url = ""


@contextmanager
def running(service: Service) -> Generator[Service]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            service.asked.append(
                (json.loads(data), {name.lower(): value for name, value in self.headers.items()})
            )
            service.arrived.set()
            if service.hangs:
                service.hang.wait(5)
            self.send_response(service.status)
            for name, value in service.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(service.body)))
            self.end_headers()
            try:
                self.wfile.write(service.body)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that http.server gives it
            _ = format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}/summary"
    try:
        yield service
    finally:
        service.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()


def remote(
    service: Service, *, timeout: float = 5.0, headers: Mapping[str, str] | None = None
) -> RemoteSummarizer:
    return RemoteSummarizer(
        url=service.url, window=2_000, tokenizer=TOKENIZER, timeout=timeout, headers=headers or {}
    )


def said(value: object) -> bytes:
    return json.dumps(value).encode()


def test_the_conversation_goes_out_as_text_and_the_summary_comes_back() -> None:
    with running(Service(said({"summary": SUMMARY}))) as service:
        made = summarized(
            remote(service, headers={"authorization": "Bearer t"}),
            task_of(parser_talk("S1"), instructions="Mind it."),
        )
    assert (made.text, made.mode, made.model, made.usage) == (SUMMARY, "remote", None, None)
    ((body, headers),) = service.asked
    assert set(body) == {"systemPrompt", "prompt"}
    assert "Mind it." in body["systemPrompt"]
    assert "S1" in body["prompt"]
    assert "recursive descent" in body["prompt"]
    assert headers["authorization"] == "Bearer t"
    assert headers["content-type"] == "application/json"


def test_a_tagged_summary_is_taken_out_of_its_tags() -> None:
    with running(Service(said({"summary": TAGGED}))) as service:
        assert summarized(remote(service), task_of(parser_talk())).text == SUMMARY


@pytest.mark.spec("E56")
def test_what_is_sent_fits_the_window() -> None:
    with running(Service(said({"summary": SUMMARY}))) as service:
        summarized(remote(service), long_task(turns=300))
    ((body, _),) = service.asked
    assert TOKENIZER.count(body["prompt"]) + TOKENIZER.count(body["systemPrompt"]) <= 2_000


@pytest.mark.spec("E57")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "untagged"),
        (b"no json", "untagged"),
        (b"[" * 100_000, "untagged"),
        (said([]), "untagged"),
        (said({"text": "S"}), "untagged"),
        (said({"summary": 3}), "untagged"),
        (said({"summary": "  "}), "empty"),
        (said({"summary": "I cannot help with that."}), "no_sections"),
        (said({"summary": summary_text("w " * 1_000)}), "too_large"),
        (said({"summary": "w" * (MAX_RESPONSE_BYTES + 10)}), "too_large"),
    ],
)
def test_an_answer_without_a_usable_summary_is_a_failure(body: bytes, reason: str) -> None:
    with running(Service(body)) as service, pytest.raises(SummaryError) as caught:
        summarized(remote(service), task_of(parser_talk()))
    assert caught.value.reason == reason


def test_statuses_are_told_apart_and_nothing_is_asked_twice() -> None:
    for status, kind in (
        (401, ModelRequestError),
        (500, ModelUnavailableError),
        (429, RateLimitedError),
        (302, ModelRequestError),
    ):
        with running(
            Service(
                said({"error": "no"}),
                status,
                {"retry-after": "7", "location": "http://127.0.0.1:9/"},
            )
        ) as service:
            with pytest.raises(kind) as caught:
                summarized(remote(service), task_of(parser_talk()))
            assert len(service.asked) == 1
        if isinstance(caught.value, RateLimitedError):
            assert caught.value.retry_after == 7


def test_a_service_that_does_not_answer_in_time_is_given_up() -> None:
    service = Service(said({"summary": "late"}))
    service.hangs = True
    with running(service), pytest.raises(ModelUnavailableError, match=r"within 0\.2 seconds"):
        summarized(remote(service, timeout=0.2), task_of(parser_talk()))


def test_a_service_that_is_not_there_leaves_the_next_summarizer() -> None:
    with running(Service()) as service:
        pass
    made = summarized(
        FallbackSummarizer([remote(service), ExtractiveSummarizer(tokenizer=TOKENIZER)]),
        task_of(parser_talk()),
    )
    assert made.mode == "extractive"
    with pytest.raises(ModelUnavailableError, match=r"the request to .* failed"):
        summarized(remote(service), task_of(parser_talk()))


def test_cancelling_ends_the_request() -> None:
    service = Service(said({"summary": "late"}))
    service.hangs = True

    async def run() -> None:
        asked = asyncio.ensure_future(remote(service).summarize(task_of(parser_talk())))
        await asyncio.to_thread(service.arrived.wait, 5)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with running(service):
        asyncio.run(run())


def test_errors_do_not_repeat_a_password_from_the_address() -> None:
    with running(Service(status=500)) as service:
        url = service.url.replace("http://", "http://user:hunter2@")
        with pytest.raises(ModelUnavailableError) as caught:
            summarized(
                RemoteSummarizer(url=url, window=2_000, tokenizer=TOKENIZER), task_of(parser_talk())
            )
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "timeout"), [("ftp://x/", 1.0), ("summary", 1.0), ("http://", 1.0), ("http://x/", 0.0)]
)
def test_what_is_no_address_or_no_time_is_refused(url: str, timeout: float) -> None:
    with pytest.raises(InvalidArgumentError):
        RemoteSummarizer(url=url, window=100, tokenizer=TOKENIZER, timeout=timeout)
