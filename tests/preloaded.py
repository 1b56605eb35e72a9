"""What the programs of the tests share, loaded once in the server that they are forked from (see `tests/processes.py`)."""

from __future__ import annotations

import importlib

from promptkit.tokens import tokenizer_for

for _name in (
    # pytest, with what it loads when a session begins
    "pytest",
    "_pytest.faulthandler",
    "_pytest.helpconfig",
    "_pytest.junitxml",
    "_pytest.pastebin",
    "_pytest.setuponly",
    "_pytest.setupplan",
    "_pytest.threadexception",
    "_pytest.tracemalloc",
    "_pytest.unittest",
    "_pytest.unraisableexception",
    "_pytest.warnings",
    "anyio._backends._asyncio",
    "anyio.from_thread",
    "anyio.pytest_plugin",
    "pdb",
    "syrupy",
    "syrupy.extensions.json",
    "syrupy.extensions.single_file",
    "unittest",
    "xdist.dsession",
    "xdist.looponfail",
    "xdist.newhooks",
    "xdist.plugin",
    "xdist.remote",
    "promptkit.testing.snapshots.plugin",
    "promptkit.testing.snapshots.snapshot",
    # the command line
    "openai",
    "openai.types.chat",
    "openai.types.responses",
    "rich.console",
    "promptkit.agent.session.session",
    "promptkit.agent.sync",
    "promptkit.bench.sweep",
    "promptkit.cli.chat.command",
    "promptkit.cli.chat.demo_model",
    "promptkit.cli.chat.loop",
    "promptkit.cli.chat.loop",
    "promptkit.cli.main",
    "promptkit.cli.output.transcript",
    "promptkit.testing.snapshots.documents",
):
    importlib.import_module(_name)

for _model in ("gpt-4", "gpt-5"):  # the two vocabularies
    tokenizer_for(_model).count("loaded")
