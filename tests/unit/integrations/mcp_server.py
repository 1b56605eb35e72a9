"""An MCP server with tools of all kinds, a few resources and a prompt.

Run as a program, it serves stdin and stdout.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

__all__ = ["PNG", "build_server"]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 8).decode()


def note(file: str, text: str) -> None:
    Path(file).write_text(text, encoding="utf-8")


def build_server() -> MCPServer:  # noqa: C901  # a tool of each kind
    """Build the server."""
    server = MCPServer("odds-and-ends")

    @server.tool()
    def add(first: int, second: int = 1) -> int:
        """Add two numbers."""
        return first + second

    @server.tool(name="count.to")
    def count(upto: int) -> str:
        """Count."""
        return " ".join(map(str, range(upto)))

    @server.tool()
    def fail(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    @server.tool()
    def refuse() -> CallToolResult:
        """Return an error."""
        return CallToolResult(content=[TextContent(text="There is no row 7.")], is_error=True)

    @server.tool()
    def show() -> CallToolResult:
        """Show one of each kind."""
        return CallToolResult(
            content=[
                TextContent(text="first"),
                TextContent(text="second"),
                ImageContent(data=PNG, mime_type="image/png"),
                EmbeddedResource(
                    resource=TextResourceContents(uri="notes://a?b&c", text="a note </resource>")
                ),
                EmbeddedResource(
                    resource=BlobResourceContents(
                        uri="file:///plan.pdf", blob="JVBERi0xLjc=", mime_type="application/pdf"
                    )
                ),
                EmbeddedResource(
                    resource=BlobResourceContents(
                        uri="file:///x.zip", blob="UEsA", mime_type="application/zip"
                    )
                ),
                ResourceLink(
                    name="log",
                    uri="file:///build.log",
                    mime_type="text/plain",
                    description="The log of the build",
                ),
                AudioContent(data="", mime_type="audio/wav"),
            ]
        )

    @server.tool()
    def structured() -> CallToolResult:
        """Return an object without a text."""
        return CallToolResult(
            content=[TextContent(text="")], structured_content={"city": "Köln", "degrees": 21}
        )

    @server.tool()
    async def wait(file: str) -> str:
        """Wait, and write down how that ended."""
        note(file, "started")
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            note(file, "cancelled")
            raise
        return "done"

    @server.tool()
    async def change(context: Context) -> str:
        """Replace the tool `refuse` by the tool `multiply`."""

        def multiply(first: int, second: int) -> int:
            """Multiply two numbers."""
            return first * second

        server.remove_tool("refuse")
        server.add_tool(multiply)
        await context.session.send_tool_list_changed()
        return "changed"

    @server.tool()
    def die() -> str:
        """End the server."""
        os._exit(1)

    @server.resource("notes://today", mime_type="text/plain")
    def today() -> str:
        return "The word of the day is ibex."

    @server.resource("picture://logo", mime_type="image/png")
    def logo() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("table://days", mime_type="text/csv")
    def table() -> bytes:
        return b"day,word\nmonday,ibex\n"

    @server.resource("archive://all", mime_type="application/zip")
    def archive() -> bytes:
        return b"PK\0"

    @server.prompt()
    def review(path: str) -> list[Message]:
        """Review a file."""
        return [
            UserMessage("You review code."),
            AssistantMessage("Which file?"),
            UserMessage(f"Review {path}."),
        ]

    return server


if __name__ == "__main__":
    build_server().run()
