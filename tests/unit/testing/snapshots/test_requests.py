"""Wire snapshots: the whole of a request, of any provider, in one readable file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from promptkit.testing.server import echo, serve
from promptkit.testing.snapshots.documents import (
    StabilizeOptions,
    Stabilizer,
    format_request,
    read_request,
)
from tests.unit.testing.project import Project

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def show(value: object) -> str:
    return format_request(read_request(value), Stabilizer(StabilizeOptions(ids=True)))


def test_a_request_of_a_foreign_program_to_anthropic_is_shown_whole() -> None:
    with serve(after=echo) as server:
        client = anthropic.Anthropic(base_url=server.anthropic_url, api_key="sk-ant-none")
        client.messages.create(
            model="claude-opus-5-5",
            max_tokens=500,
            system=[
                {
                    "type": "text",
                    "text": "You review.\nBe brief.",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            tools=[{"name": "read", "description": "Read.", "input_schema": {"type": "object"}}],
            messages=[{"role": "user", "content": "Look."}],
        )
        version = server.requests[-1].headers["anthropic-version"]
        shown = show(server.requests[-1])
    assert (
        shown.replace(version, "<version>")
        == """\
# POST /v1/messages

```
anthropic-version: <version>
```

```json
{
  "max_tokens": 500,
  "model": "claude-opus-5-5"
}
```

## messages[0] user

```json
{
  "role": "user",
  "content": "Look."
}
```

## system[0] text

```json
{
  "type": "text",
  "cache_control": {
    "type": "ephemeral"
  }
}
```

### text

```
You review.
Be brief.
```

## tools[0] read

```json
{
  "name": "read",
  "description": "Read.",
  "input_schema": {
    "type": "object"
  }
}
```
"""
    )


def test_a_request_is_also_read_from_a_transport() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    transport = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = openai.OpenAI(api_key="none", http_client=transport)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="gpt-5", instructions="Be brief.", input="Look.\nThen stop.")
    assert show(sent[0]).splitlines()[0] == "# POST /v1/responses"
    assert '"instructions": "Be brief."' in show(sent[0])
    assert "## input\n\n```\nLook.\nThen stop.\n```" in show(sent[0])


def test_a_provider_that_the_server_does_not_know_is_shown_as_well() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "Look."}]}],
        "system_instruction": {"parts": [{"text": "Be brief."}]},
    }
    with serve() as server:
        url = f"{server.anthropic_url}/v1beta/models/gemini:generateContent?key=none"
        httpx2.post(url, json=body)
        shown = show(server.requests[-1])
    assert shown.startswith("# POST /v1beta/models/gemini:generateContent\n")
    assert "### parts[0]" in shown
    assert "Be brief." in shown


def test_every_text_of_a_body_is_shown() -> None:
    """What a formatter does not know it must not leave out."""
    value: object = "leaf 0"
    for depth in range(1, 12):
        value = {"item": [value, {"text": f"leaf {depth}\nmore"}], "other": f"leaf {depth}b"}
    shown = show({"deep": value})
    assert all(f"leaf {depth}" in shown for depth in range(12))
    assert all(f"leaf {depth}b" in shown for depth in range(1, 12))


def test_secrets_keys_and_varying_headers_are_left_out() -> None:
    key = "sk-proj-{}".format("abcdefghijklmnopqrstuvwxyz0123456789ABCD")
    with serve(after=echo) as server:
        client = openai.OpenAI(base_url=server.url, api_key=key)
        client.chat.completions.create(
            model="gpt-4.1", messages=[{"role": "user", "content": f"The key is {key}."}]
        )
        shown = show(server.requests[-1])
    assert key not in shown
    assert "[redacted" in shown
    assert "user-agent" not in shown


def test_a_long_picture_is_its_size_and_hash_and_ids_are_placeholders() -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'QUFB' * 100}"}}
    call = {"role": "tool", "tool_call_id": "call_Ab12345678", "content": [part]}
    shown = show({"messages": [call]})
    assert "300 bytes, sha256" in shown
    assert "<id 1>" in shown
    assert json.dumps("call_Ab12345678") not in shown


@pytest.mark.parametrize("absent", [openai.NOT_GIVEN, openai.omit, anthropic.NOT_GIVEN])
def test_arguments_that_an_sdk_leaves_out_are_left_out(absent: object) -> None:
    assert show({"model": "m", "temperature": absent}) == show({"model": "m"})


@pytest.mark.parametrize("value", [b"bytes", float("nan"), openai.NOT_GIVEN])
def test_arguments_that_are_no_json_are_refused_with_a_sentence(value: object) -> None:
    with pytest.raises(TypeError, match="the arguments of a wire snapshot must be JSON"):
        show({"input": [value]})


@pytest.mark.parametrize("name", ["httpx2", "httpx"])
def test_a_request_that_nobody_has_read_is_read(name: str) -> None:
    client = pytest.importorskip(name)
    pieces = iter([b'{"model": ', b'"m"}'])
    request = client.Request("POST", "http://localhost/v1/files", content=pieces)
    assert '"model": "m"' in show(request)
    assert request.read() == b'{"model": "m"}', "it can be sent afterwards"


def test_a_form_is_the_same_text_each_time() -> None:
    files = {"file": ("a.txt", b"Look.")}
    first, second = (
        show(httpx2.Request("POST", "http://localhost/v1/files", files=files)) for _ in range(2)
    )
    assert "Look." in first
    assert first == second


def test_a_stream_that_cannot_be_read_is_refused_with_a_sentence() -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b"{}"

    sent = httpx2.Request("POST", "http://localhost/v1/files", content=(each for each in [b"{}"]))
    assert isinstance(sent.stream, httpx2.SyncByteStream)
    list(sent.stream)
    for request in (sent, httpx2.Request("POST", "http://localhost/v1/files", content=stream())):
        with pytest.raises(TypeError, match="the body of POST /v1/files is a stream"):
            show(request)


def test_a_value_that_is_no_request_is_refused() -> None:
    with pytest.raises(TypeError, match=r"compares with a request: one of server\.requests"):
        show("a text")


def test_the_fixture_writes_one_file_and_shows_what_changed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        """
def test_requests(wire_snapshot):
    text = "Look."
    body = {"model": "gpt-5", "input": [{"role": "user", "content": text}]}
    assert [body, {"model": "gpt-5", "input": "Go on."}] == wire_snapshot
"""
    )
    project.run("--snapshot-update")
    (file,) = tmp_path.glob("__snapshots__/*/*.request")
    assert file.read_text().count("# Request") == 2
    assert "1 passed" in project.run()

    project.write((tmp_path / "test_prompt.py").read_text().replace("Look.", "Look again."))
    failed = project.run()
    assert "@@ line 11 # Request ## input[0] user @@" in failed
    assert '+  "content": "Look again."' in failed
