"""Record the demo conversation from a checkout: `python -m benchmarks.maintenance.record_demo OUT`.

A scripted agent works in a copy of the checkout, and its tools really run. The output is the same
on every machine: the path of the copy becomes `.`, and durations are removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from promptkit_components.demo import messages_to_jsonl

from benchmarks.maintenance.demo_script import SCRIPT, Ask, Do, Say
from promptkit import Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main", "record"]

COPIED = ("promptkit", "components", "pyproject.toml")
LIMIT = 4_000
"""The maximum characters of one tool result."""


def record(checkout: Path) -> Iterator[Message]:
    """Run the script, with its tools in a copy of `checkout`, and yield its messages."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "repository"
        root.mkdir()
        for name in COPIED:
            _copy(checkout / name, root / name)
        number = 0
        for step in SCRIPT:
            match step:
                case Ask(text):
                    yield Message(role="user", content=(text,))
                case Say(text):
                    yield Message(role="assistant", content=(text,))
                case Do(thought, calls):
                    tool_calls = [
                        ToolCall(id=f"call_{number + at}", name=name, arguments=json.dumps(args))
                        for at, (name, args) in enumerate(calls)
                    ]
                    number += len(tool_calls)
                    yield Message(
                        role="assistant",
                        content=(thought,) if thought else (),
                        tool_calls=tuple(tool_calls),
                    )
                    for call, (name, args) in zip(tool_calls, calls, strict=True):
                        yield Message(
                            role="tool",
                            content=(scrub_output(_run(root, name, args), root),),
                            tool_call_id=call.id,
                        )


def scrub_output(output: str, root: Path) -> str:
    """Remove the machine-specific parts of an output, and truncate it to LIMIT characters."""
    text = output.replace(f"{root}/", "").replace(str(root), ".")
    for folder in {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        str(Path.home()),
        tempfile.gettempdir(),
    }:
        text = text.replace(folder, "…")
    text = re.sub(r"\bin \d+\.\d+s\b", "", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    text = "\n".join(
        line.rstrip(" =") if line.startswith("=") else line.rstrip() for line in text.splitlines()
    )
    return text if len(text) <= LIMIT else f"{text[:LIMIT]}\n[cut after {LIMIT:,} characters]"


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "demo.jsonl")
        )
    else:
        shutil.copy(source, target)


def _run(root: Path, name: str, args: dict[str, str]) -> str:  # noqa: PLR0911  # one return per tool
    path = _inside(root, args.get("path", "."))
    match name:
        case "list_files":
            return "\n".join(
                sorted(
                    str(p.relative_to(root))
                    for p in path.rglob("*.py")
                    if "__pycache__" not in p.parts
                )
            )
        case "read_file":
            first, last = int(args.get("first", "1")), int(args.get("last", "0")) or None
            return "\n".join(path.read_text(encoding="utf-8").splitlines()[first - 1 : last])
        case "search":
            return _search(root, path, re.compile(args["pattern"]))
        case "write_file":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(args["text"], encoding="utf-8")
            return f"Wrote {len(args['text'].splitlines())} lines to {args['path']}."
        case "edit_file":
            return _edit(path, args["old"], args["new"])
        case "run_python":
            return _process(root, ["-c", args["code"]])
        case "run_tests":
            return _process(
                root,
                [
                    "-m",
                    "pytest",
                    "-q",
                    "--no-header",
                    "-p",
                    "no:cacheprovider",
                    "-c",
                    os.devnull,
                    "--rootdir",
                    ".",
                    args["path"],
                ],
            )
        case _:
            return f"There is no tool {name}."


def _inside(root: Path, path: str) -> Path:
    target = (root / path).resolve()
    if not target.is_relative_to(root):
        raise ValueError(f"{path} is outside the repository.")
    return target


def _search(root: Path, path: Path, pattern: re.Pattern[str]) -> str:
    found: list[str] = []
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        found += [
            f"{file.relative_to(root)}:{number}: {line.strip()}"
            for number, line in lines
            if pattern.search(line)
        ]
    return "\n".join(found) or "No match."


def _edit(path: Path, old: str, new: str) -> str:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return f"The text to replace occurs {text.count(old)} times; it must occur once. Nothing was changed."
    path.write_text(text.replace(old, new), encoding="utf-8")
    return "Replaced 1 occurrence."


def _process(root: Path, arguments: list[str]) -> str:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'components'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(  # noqa: S603  # the script is a part of this repository
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = (done.stdout + done.stderr).strip("\n")
    return output if done.returncode == 0 else f"{output}\n[exit code {done.returncode}]"


def main() -> None:
    """Record the checkout in the current folder, and write the recording to the given file."""
    if len(sys.argv) != 2:  # the program name and one argument
        sys.exit("usage: python -m benchmarks.maintenance.record_demo OUT")
    messages = list(record(Path.cwd()))
    Path(sys.argv[1]).write_text(
        "".join(f"{line}\n" for line in messages_to_jsonl(messages)), encoding="utf-8"
    )
    sys.stdout.write(
        f"{len(messages)} messages, {sum(len(m.text) for m in messages):,} characters\n"
    )


if __name__ == "__main__":
    main()
