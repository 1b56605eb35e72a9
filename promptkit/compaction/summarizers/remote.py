"""A summary from a service: `POST {"systemPrompt", "prompt"}`, answered by `{"summary"}`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import attrs

from promptkit.compaction.summarizers.prompts import TEMPLATE, SummaryOfText, render_summary_request
from promptkit.compaction.summarizers.simple import RESULT_SHARE
from promptkit.compaction.summarizers.summarizer import summary_from_reply
from promptkit.errors import InvalidArgumentError, ModelUnavailableError, SummaryError
from promptkit.messages import Message, Usage
from promptkit.providers.errors import Failure, error_from_failure
from promptkit.providers.model import Reply

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from openai import DefaultAsyncHttpxClient

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["RemoteSummarizer"]

LARGEST = 4_000_000
"""Bytes of an answer: a summary that is larger is none."""

SUCCESS = range(200, 300)


@attrs.frozen(kw_only=True)
class RemoteSummarizer:
    """Has a service write the summary of the conversation as text, as oh-my-pi does.

    What it answers is held to what every summary is held to. Nothing is asked twice: put it into a Chain with another behind it. It does
    not follow redirects: the conversation goes to this address and to no other.
    """

    url: str
    window: int
    """The most tokens of the prompt and the summary together."""
    tokenizer: Tokenizer
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Sent with it, such as an authorization."""
    timeout: float = 60.0
    """Seconds for all of it, from the connection to the end of the answer."""
    client: DefaultAsyncHttpxClient | None = attrs.field(default=None, repr=False)
    """The HTTP client to use, which stays open; None: one of its own for each summary."""
    template: str | os.PathLike[str] = TEMPLATE

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            problem = f"url={self.url!r} is no address of a service: write http://… or https://…"
            raise InvalidArgumentError(problem)
        if not self.timeout > 0:
            problem = f"timeout={self.timeout:g} must be above 0 seconds."
            raise InvalidArgumentError(problem)

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary. Raises SummaryError if nothing fits or the answer holds no summary, and ModelError if the service gives none."""
        prompt = SummaryOfText(task=task, max_result_tokens=max(1, self.window // RESULT_SHARE), template=self.template)
        rendered = await render_summary_request(prompt, self.window, tokenizer=self.tokenizer, marks_new=True)
        body = {
            "systemPrompt": "\n\n".join(message.text for message in rendered.messages if message.role == "system"),
            "prompt": "\n\n".join(message.text for message in rendered.messages if message.role != "system"),
        }
        text = _summary(await self._posted(body))
        reply = Reply(message=Message(role="assistant", content=(text,)), usage=Usage(input_tokens=0), finish="stop")
        made = summary_from_reply(reply, task, mode="remote", model="remote", tokenizer=self.tokenizer, require_tags=False)
        return attrs.evolve(made, model=None, usage=None)

    async def _posted(self, body: Mapping[str, str]) -> bytes:
        """The body of the answer. Raises ModelError."""
        from openai import DefaultAsyncHttpxClient

        client = self.client or DefaultAsyncHttpxClient()
        try:
            async with asyncio.timeout(self.timeout):
                return await self._read(client, body)
        except TimeoutError as error:
            message = f"no answer from {self._place} within {self.timeout:g} seconds."
            raise ModelUnavailableError(message) from error
        finally:
            if client is not self.client:
                await client.aclose()

    async def _read(self, client: DefaultAsyncHttpxClient, body: Mapping[str, str]) -> bytes:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        headers = {"content-type": "application/json", "accept": "application/json", **self.headers}
        got = bytearray()
        try:
            asked = client.stream("POST", self.url, content=data, headers=headers, follow_redirects=False, timeout=self.timeout)
            async with asked as answer:
                async for piece in answer.aiter_bytes():
                    got += piece
                    if len(got) > LARGEST:
                        break
                status, wait = answer.status_code, answer.headers.get("retry-after")
        except Exception as error:
            # The SDK brings one HTTP library or another, by its version: their errors have no class in common.
            message = f"{self._place} could not be asked ({type(error).__name__}: {error})."
            raise ModelUnavailableError(message) from error
        if status not in SUCCESS:
            raise error_from_failure(
                Failure(
                    model=self._place,
                    message=f"the service answered {status}",
                    status=status,
                    body=_json(bytes(got)),
                    retry_after=float(wait) if wait is not None and wait.isdecimal() else None,
                )
            )
        return bytes(got)

    @property
    def _place(self) -> str:
        """The service, without a password or a key in its address."""
        return urlsplit(self.url).hostname or ""


def _summary(body: bytes) -> str:
    """The summary in an answer. Raises SummaryError for any other answer."""
    if len(body) > LARGEST:
        raise SummaryError(reason="too_large", detail=f"the service answered with more than {LARGEST:,} bytes.")
    answer = _json(body)
    summary = cast("dict[str, object]", answer).get("summary") if isinstance(answer, dict) else None  # JSON has no other keys
    if not isinstance(summary, str):
        raise SummaryError(reason="untagged", detail='the service answered without {"summary": "…"}.')
    return summary


def _json(body: bytes) -> object:
    """The JSON of a body; its text where it is none."""
    text = body.decode("utf-8", "replace")
    try:
        return cast("object", json.loads(text))  # of whatever
    except (ValueError, RecursionError):
        return text
