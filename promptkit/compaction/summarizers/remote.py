"""A summary from an HTTP service: `POST {"systemPrompt", "prompt"}`, answered by `{"summary"}`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from promptkit.compaction.summarizers.model_summarizers import RESULT_SHARE
from promptkit.compaction.summarizers.prompts import (
    SummaryOfText,
    count_missed,
    render_summary_request,
    write_complaint,
)
from promptkit.compaction.summarizers.summarizer import TEMPLATE, find_sections, summary_from_reply
from promptkit.errors import InvalidArgumentError, ModelUnavailableError, SummaryError
from promptkit.messages import Message, Usage, as_mapping
from promptkit.providers import Reply
from promptkit.providers.errors import error_from_failure
from promptkit.providers.model import COMPACTION, PURPOSE_HEADER
from promptkit.sizes import read_tokens

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from openai import DefaultAsyncHttpxClient

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.tokens import Tokenizer

MAX_RESPONSE_BYTES = 4_000_000
"""Largest accepted response body, in bytes."""

SUCCESS_STATUSES = range(200, 300)


@attrs.frozen(kw_only=True)
class RemoteSummarizer:
    """Has a service write the summary of the conversation as text, as oh-my-pi does.

    The response must pass the same checks as any model's summary. There are no retries: put this
    summarizer into a `FallbackSummarizer` before another one. Redirects are not followed, so that
    the conversation is sent to this address only.
    """

    url: str
    """Address of the service, with http or https."""
    window: int = attrs.field(converter=read_tokens)
    """Tokens of the prompt and the summary together."""
    tokenizer: Tokenizer
    """Counts the tokens of the prompt and the summary."""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Additional request headers, such as an authorization."""
    timeout: float = 60.0
    """Seconds for the whole request, from the connection to the end of the response."""
    client: DefaultAsyncHttpxClient | None = attrs.field(default=None, repr=False)
    """The HTTP client to use, which is left open. None: a new client for each summary."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidArgumentError(
                f"url={self.url!r} is not the address of a service: write http://… or https://…"
            )
        if not self.timeout > 0:
            raise InvalidArgumentError(f"timeout={self.timeout:g} must be above 0 seconds.")

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the service for the summary.

        Raises:
            SummaryError: There is nothing to summarize, no message fits the window, or the response
                holds no summary.
            ModelError: The service does not respond, or responds with an error.
        """
        rendered = await render_summary_request(
            SummaryOfText(
                task=task,
                max_result_tokens=max(1, self.window // RESULT_SHARE),
                template=self.template,
            ),
            self.window,
            tokenizer=self.tokenizer,
            marks_new=True,
            items=(*task.plan.dropped, *task.plan.prefix),
        )
        content = await self._post(
            {
                "systemPrompt": "\n\n".join(
                    message.text for message in rendered.messages if message.role == "system"
                ),
                "prompt": "\n\n".join(
                    message.text
                    for message in (*rendered.messages, *write_complaint(task, self.tokenizer))
                    if message.role != "system"
                ),
            }
        )
        if len(content) > MAX_RESPONSE_BYTES:
            raise SummaryError(
                reason="too_large",
                detail=f"the response has more than {MAX_RESPONSE_BYTES:,} bytes.",
            )
        text = as_mapping(_parse_json(content)).get("summary")
        if not isinstance(text, str):
            raise SummaryError(reason="untagged", detail='the response is not {"summary": "…"}.')
        summary = summary_from_reply(
            Reply(
                message=Message(role="assistant", content=(text,)),
                usage=Usage(input_tokens=0),
                finish="stop",
            ),
            task,
            mode="remote",
            model="remote",
            tokenizer=self.tokenizer,
            require_tags=False,
            sections=find_sections(self.template),
            missed=count_missed(rendered),
        )
        return attrs.evolve(summary, model=None, usage=None)

    async def _post(self, body: Mapping[str, str]) -> bytes:
        """Return the body of the response. Raises ModelError."""
        from openai import DefaultAsyncHttpxClient

        client = self.client or DefaultAsyncHttpxClient()
        try:
            async with asyncio.timeout(self.timeout):
                return await self._read(client, body)
        except TimeoutError as error:
            raise ModelUnavailableError(
                f"{self._host} did not respond within {self.timeout:g} seconds."
            ) from error
        finally:
            if client is not self.client:
                await client.aclose()

    async def _read(self, client: DefaultAsyncHttpxClient, body: Mapping[str, str]) -> bytes:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            PURPOSE_HEADER: COMPACTION,
            **self.headers,
        }
        content = bytearray()
        try:
            request = client.stream(
                "POST",
                self.url,
                content=data,
                headers=headers,
                follow_redirects=False,
                timeout=self.timeout,
            )
            async with request as response:
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_RESPONSE_BYTES:
                        break
                status, retry_after = response.status_code, response.headers.get("retry-after")
        except Exception as error:
            # The SDK uses one HTTP library or another, depending on its version. Their errors have
            # no common class.
            raise ModelUnavailableError(
                f"the request to {self._host} failed ({type(error).__name__}: {error})."
            ) from error
        if status not in SUCCESS_STATUSES:
            raise error_from_failure(
                model=self._host,
                message=f"the service responded with status {status}",
                status=status,
                body=_parse_json(bytes(content)),
                retry_after=float(retry_after)
                if retry_after is not None and retry_after.isdecimal()
                else None,
            )
        return bytes(content)

    @property
    def _host(self) -> str:
        """The service's host name, without a password or a key from its address."""
        return urlsplit(self.url).hostname or ""


def _parse_json(body: bytes) -> object:
    """Return a body as JSON, or as text if it is no JSON."""
    text = body.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
