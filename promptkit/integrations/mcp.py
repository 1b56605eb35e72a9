"""MCP as a client: a server's tools for the model, its resources as attachments, and its prompts as messages.

>>> async with Client(StdioServerParameters(command="my-server")) as client:
...     session = AgentSession(model="gpt-5", tools=await mcp_tools(client, prefix="my__"))
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from promptkit.agent import Attachment, TextAttachment
from promptkit.agent.session.attachments import parse_attachment
from promptkit.errors import InvalidArgumentError, ToolError
from promptkit.messages import DocumentPart, ImagePart, Message, Part, ToolDefinition
from promptkit.tools import Tool, ToolResult

try:
    import mcp_types as types
    from mcp import Client, MCPError
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.mcp needs the MCP SDK: run `pip install 'mcp>=2'`, or `pip install '.[mcp]'` in a checkout of promptkit."
    ) from error

Contents: TypeAlias = "types.TextResourceContents | types.BlobResourceContents"

__all__ = ["mcp_attachments", "mcp_prompt", "mcp_tools"]

MAX_NAME = 64
"""Characters of a tool's name that providers accept."""

MAX_PAGES = 1_000
"""Pages of a list of tools that are read. A server that always names another page must not hang the
program."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that providers refuse in the name of a tool."""

DISCONNECTED = "the connection to the MCP server of this tool is closed. It is not known whether the call had an effect."
"""The result of a call whose server ended."""


async def mcp_tools(
    client: Client,
    *,
    prefix: str = "",
    timeout: float | None = None,  # noqa: ASYNC109  # of each call, not of this one
    max_tokens: int | None = None,
    images: bool = True,
) -> list[Tool]:
    """Return the tools of an MCP server, as they are now.

    The client must stay connected as long as the tools are used.

    Descriptions and schemas are the server's own. Of the name, characters that providers refuse
    become `_`. The tools are sorted by name: the same tools give the same request, whatever order
    the server lists them in, which the provider's prompt cache needs. A call that is cancelled, for
    example with its turn or at its time limit, is cancelled on the server as well.

    Args:
        client: A connected client: inside its `async with`.
        prefix: Put before the names, so that the tools of two servers do not have the same names:
            `github__`.
        timeout: The longest time that a call may take, in seconds; None: no limit, or the client's own.
        max_tokens: The most tokens of a result's text that the model is shown, as in `Tool`.
        images: Pass images and PDFs on. False: a note in their place, for models that take none.

    Raises:
        InvalidArgumentError: `prefix` has characters that names cannot have, or `max_tokens` is too
            low.
        MCPError: The server refuses to list its tools.
    """
    _check_client(client)
    if _UNSAFE.search(prefix):
        raise InvalidArgumentError(
            f"prefix must have only letters, digits, _ and -, not {prefix!r}."
        )
    tools: dict[str, Tool] = {}
    for listed in await _list_tools(client):
        name = _make_name(prefix, listed.name, tools)
        tools[name] = Tool(
            definition=ToolDefinition(
                name=name,
                description=listed.description or listed.title,
                parameters=listed.input_schema,
            ),
            run=_make_run(client, listed.name, images=images),
            timeout=timeout,
            max_tokens=max_tokens,
        )
    return [*tools.values()]


async def mcp_attachments(client: Client, *uris: str) -> list[Attachment]:
    """Read resources of an MCP server, as attachments of a user message: texts, images and PDFs.

    >>> await session.run("Sum up my notes.", attachments=await mcp_attachments(client, "notes://today"))

    Args:
        client: A connected client.
        uris: The URIs of the resources.

    Raises:
        InvalidArgumentError: A resource is of another kind.
        MCPError: The server has no such resource, or cannot read it.
    """
    _check_client(client)
    return [
        TextAttachment(name=contents.uri, text=part) if isinstance(part, str) else part
        for uri in uris
        for contents in (await client.read_resource(uri)).contents
        for part in [_parse_resource(contents)]
    ]


async def mcp_prompt(
    client: Client, name: str, *, arguments: Mapping[str, str] | None = None
) -> list[Message]:
    """Return the messages of a prompt of an MCP server.

    >>> *before, last = await mcp_prompt(client, "review", arguments={"path": "parser.py"})
    >>> session.window.add(*before)
    >>> await session.run(last.content)

    Args:
        client: A connected client.
        name: The name of the prompt.
        arguments: Its arguments.

    Raises:
        MCPError: The server has no such prompt, or refuses the arguments.
    """
    _check_client(client)
    return [
        Message(role=message.role, content=_read_blocks([message.content]))
        for message in (await client.get_prompt(name, dict(arguments or {}))).messages
    ]


def _check_client(client: object) -> None:
    if not isinstance(client, Client):
        raise TypeError(
            f"an mcp.Client is needed, as in `async with Client(StdioServerParameters(command=…)) as client`, not {client!r:.80}."
        )


async def _list_tools(client: Client) -> Sequence[types.Tool]:
    """List all pages of tools, as the server has them now, sorted by name."""
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(tools, key=lambda tool: tool.name)


def _make_name(prefix: str, name: str, taken: Collection[str]) -> str:
    """Return a name that providers accept.

    One that is too long, or would be the same as another one, ends with a hash of the server's
    name.
    """
    made = _UNSAFE.sub("_", f"{prefix}{name}")
    if len(made) <= MAX_NAME and made not in taken:
        return made
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{made[: MAX_NAME - len(digest) - 1]}_{digest}"


def _make_run(
    client: Client, name: str, *, images: bool
) -> Callable[[Mapping[str, object]], Awaitable[ToolResult]]:
    async def run(arguments: Mapping[str, object]) -> ToolResult:
        try:
            result = await client.call_tool(name, dict(arguments))
        except MCPError as error:
            raise ToolError(
                DISCONNECTED if error.code == types.CONNECTION_CLOSED else error.message
            ) from error
        content = _read_blocks(result.content, images=images)
        if (
            result.structured_content is not None
            and not "".join(part for part in content if isinstance(part, str)).strip()
        ):
            content = [
                json.dumps(result.structured_content, ensure_ascii=False),
                *(part for part in content if not isinstance(part, str)),
            ]
        return ToolResult(
            _mark_error(content) if result.is_error else content, is_error=result.is_error
        )

    return run


def _mark_error(content: Sequence[Part]) -> Sequence[Part]:
    """Begin an error with that word, as promptkit's own errors do: most providers have no other mark."""
    first = content[0] if content else ""
    if not isinstance(first, str):
        return ("Error:", *content)
    return (
        content
        if first[:5].lower() == "error"
        else (f"Error: {first or 'the tool failed without a message.'}", *content[1:])
    )


def _read_blocks(blocks: Iterable[types.ContentBlock], *, images: bool = True) -> list[Part]:
    """Convert content blocks to parts. Texts that follow each other become one."""
    read = (
        part
        if images or isinstance(part, str)
        else f"[{part.media_type} was left out: this model takes none from tools]"
        for part in map(_read_block, blocks)
    )
    return [
        part
        for is_text, run in groupby(read, key=lambda part: isinstance(part, str))
        for part in (["\n".join(map(str, run))] if is_text else run)
    ]


def _read_block(block: types.ContentBlock) -> str | ImagePart | DocumentPart:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return ImagePart(
                url=f"data:{block.mime_type};base64,{block.data}", media_type=block.mime_type
            )
        case types.EmbeddedResource():
            return _read_resource(block.resource)
        case types.ResourceLink():
            details = (block.title or block.name, block.mime_type, block.description)
            return f"[resource {block.uri}: {', '.join(filter(None, details))}]"
        case types.AudioContent():
            return f"[{block.mime_type} was left out: models take no audio from tools]"


def _read_resource(contents: Contents) -> str | ImagePart | DocumentPart:
    """Convert an embedded resource.

    A text is put into tags that name it, and the closing tag is escaped in the text itself.
    """
    try:
        part = _parse_resource(contents)
    except InvalidArgumentError:
        return f"[the resource {contents.uri} was left out: it is {contents.mime_type or 'of an unknown type'}]"
    if not isinstance(part, str):
        return part
    escaped = part.replace("</resource", "<\\/resource").rstrip("\n")
    return f'<resource uri="{html.escape(contents.uri)}">\n{escaped}\n</resource>'


def _parse_resource(contents: Contents) -> str | ImagePart | DocumentPart:
    """Return the text, image or PDF of a resource.

    Raises InvalidArgumentError if it is none of these.
    """
    if isinstance(contents, types.TextResourceContents):
        return contents.text
    try:
        data = base64.b64decode(contents.blob, validate=True)
    except ValueError as error:
        raise InvalidArgumentError(f"the resource {contents.uri} is no base64: {error}.") from error
    return parse_attachment(contents.uri, data)
