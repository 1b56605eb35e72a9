"""`promptkit mcp`: serve the search of transcripts to other agents, as a tool over the Model Context Protocol."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptkit import transcript as transcripts
from promptkit.cli.input.params import SIZE, redact_option
from promptkit.cli.output.terminal import usage_error
from promptkit.errors import TranscriptError

if TYPE_CHECKING:
    from mcp.server import Server

    from promptkit.messages import Json


@click.command(
    short_help="Serve the search of transcripts to other agents, over MCP.",
    epilog="""
    Examples:
      promptkit mcp talk.jsonl
      promptkit mcp talk.jsonl other.jsonl --redact
    """,
)
@click.argument(
    "files", type=click.Path(path_type=Path), metavar="FILE...", nargs=-1, required=True
)
@redact_option
@click.option(
    "--max-tokens",
    type=SIZE,
    default=1_500,
    show_default=True,
    help="The most tokens of a result; the rest is on further pages.",
)
def mcp(*, files: tuple[Path, ...], redact: bool, max_tokens: int) -> None:
    """Serve the tool recall over MCP, on stdin and stdout: it searches transcripts, and reads their entries by page.

    Nothing is written. A file may grow meanwhile: each call sees the branch that was written last.
    With several files, the tool has an argument that names one of them. The command ends when stdin
    does.
    """
    if max_tokens < 1:
        usage_error("--max-tokens must be at least 1.")
    readers = [TranscriptFile(file) for file in files]
    for reader in readers:
        reader.read()  # so that a wrong file is reported at once, and not to the first call
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        usage_error(
            "promptkit mcp needs the MCP SDK: run `pip install 'mcp>=2'`, or `pip install '.[mcp]'` in a checkout of promptkit."
        )
    server = build_server(
        readers, max_tokens=max_tokens, redactor=transcripts.redact_secrets if redact else None
    )

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


class TranscriptFile:
    """A transcript, which is read again when its file has changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._state: tuple[int, int, int] | None = None
        self._path: Sequence[transcripts.Entry] = ()

    def read(self) -> Sequence[transcripts.Entry]:
        """Return the entries of the branch that was written last.

        Raises TranscriptError if the file cannot be read.
        """
        from promptkit.transcript.stores.jsonl.reader import StoredEntry, TranscriptReader

        try:
            status = self.file.stat()
        except OSError as error:
            raise TranscriptError(f"cannot read {self.file}: {error.strerror}.") from error
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if state != self._state:
            # Without a store of its own, so that no lock file is made beside the transcript.
            store = transcripts.InMemoryStore(
                [
                    item.entry
                    for item in TranscriptReader(self.file)
                    if isinstance(item, StoredEntry)
                ]
            )
            self._path, self._state = transcripts.Transcript(store).path(), state
        return self._path


# Any stands for SDK
def build_server(
    readers: Sequence[TranscriptFile], *, max_tokens: int, redactor: transcripts.Redactor | None
) -> Server[dict[str, Any]]:
    """Build the MCP server of transcripts.

    Args:
        readers: The transcripts.
        max_tokens: The most tokens of one result.
        redactor: Removes secrets from each message before it is searched and divided into pages.
    """
    import mcp_types as types
    from anyio import Lock, to_thread
    from mcp.server import Server

    from promptkit.compaction.recall.tool import RECALL, recall

    counts = Counter(reader.file.name for reader in readers)
    named = {
        _encodable(
            reader.file.name if counts[reader.file.name] == 1 else os.fspath(reader.file)
        ): reader
        for reader in readers
    }
    tool = types.Tool(
        name=RECALL.name,
        description=RECALL.description,
        input_schema=_build_schema(RECALL.parameters or {}, [*named]),
        annotations=types.ToolAnnotations(
            title="Search a conversation", read_only_hint=True, open_world_hint=False
        ),
    )
    reading = Lock()

    def answer(arguments: Mapping[str, object]) -> str:
        name = arguments.get("transcript") if len(named) > 1 else next(iter(named))
        if (reader := named.get(str(name))) is None:
            return f"Error: name one of the transcripts: {', '.join(named)}."
        try:
            return recall(reader.read(), arguments, max_tokens=max_tokens, redactor=redactor)
        except TranscriptError as error:
            return f"Error: {error}"

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        async with reading:
            text = (
                await to_thread.run_sync(answer, params.arguments or {})
                if params.name == RECALL.name
                else f"Error: there is no tool {params.name!r}."
            )
        return types.CallToolResult(
            content=[types.TextContent(text=_encodable(text))], is_error=text.startswith("Error: ")
        )

    return Server(
        "promptkit", version=version("promptkit"), on_list_tools=list_tools, on_call_tool=call_tool
    )


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which cannot be sent, and which a transcript and the name of a file may have."""
    return text.encode(errors="replace").decode()


def _build_schema(parameters: Mapping[str, Json], names: Sequence[str]) -> dict[str, Json]:
    """Return the tool's parameters, with one that names the transcript where there are several."""
    properties = parameters.get("properties")
    if len(names) == 1 or not isinstance(properties, dict):
        return dict(parameters)
    return {
        **parameters,
        "properties": {
            "transcript": {
                "type": "string",
                "enum": list(names),
                "description": "The transcript to search or to read.",
            },
            **properties,
        },
        "required": ["transcript"],
    }
