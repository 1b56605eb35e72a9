"""Which files a tool call reads or changes: the tools of the known agents, patches, MCP servers, and rules of a program's own."""

from __future__ import annotations

import pytest

from promptkit.compaction.planning.tool_calls import FILE_RULES, FileCall, FileRule, find_file_call

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/b.py\n@@\n-x\n+y\n*** Add File: c.py\n+z\n*** End Patch"
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a"


@pytest.mark.parametrize(
    ("tool", "arguments", "use", "paths"),
    [
        ("Read", {"file_path": "/a"}, "read", ("/a",)),
        ("read_file", {"path": "/a", "offset": 3}, "read", ("/a",)),
        ("read_many_files", {"paths": ["/a", "/b"]}, "read", ("/a", "/b")),
        ("multi_read", {"files": [{"path": "/a"}, {"path": "/b"}]}, "read", ("/a", "/b")),
        ("get_file_contents", {"path": "/a"}, "read", ("/a",)),
        ("view_image", {"path": "/i.png"}, "read", ("/i.png",)),
        ("str_replace_based_edit_tool", {"command": "view", "path": "/a"}, "read", ("/a",)),
        (
            "str_replace_based_edit_tool",
            {"command": "create", "path": "/a", "file_text": "x"},
            "change",
            ("/a",),
        ),
        ("str_replace_editor", {"command": "str_replace", "path": "/a"}, "change", ("/a",)),
        ("MultiEdit", {"file_path": "/a", "edits": [{"old_string": "x"}]}, "change", ("/a",)),
        (
            "multi_replace_string_in_file",
            {"replacements": [{"filePath": "/a"}, {"filePath": "/b"}, {"filePath": "/a"}]},
            "change",
            ("/a", "/b"),
        ),
        ("search_replace", {"file_path": "/a", "old_string": "x"}, "change", ("/a",)),
        ("find_and_replace", {"path": "/a"}, "change", ("/a",)),
        ("apply_diff", {"path": "/a"}, "change", ("/a",)),
        ("replace_symbol_body", {"relative_path": "a.py"}, "change", ("a.py",)),
        ("notebook_edit", {"notebook_path": "/a.ipynb"}, "change", ("/a.ipynb",)),
        ("delete_file", {"target_file": "/a"}, "change", ("/a",)),
        ("move_file", {"source": "/a", "destination": "/b"}, "change", ("/a", "/b")),
        ("apply_patch", {"input": PATCH}, "change", ("src/a.py", "src/b.py", "c.py")),
        ("shell", {"command": ["apply_patch", PATCH]}, "change", ("src/a.py", "src/b.py", "c.py")),
        ("git_apply", {"patch": DIFF}, "change", ("x.py", "old.py")),
        ("grep", {"pattern": "x", "path": "/a"}, "search", ("/a",)),
        ("list_dir", {"path": "/a"}, "search", ("/a",)),
        ("create_directory", {"path": "/d"}, "other", ("/d",)),
        ("mcp__search__read_file", {"path": "/a"}, "read", ("/a",)),
        ("filesystem.write_file", {"path": "/a"}, "change", ("/a",)),
        # the patch is what is written
        ("write_file", {"path": "/test.patch", "content": PATCH}, "change", ("/test.patch",)),
    ],
)
def test_the_tools_of_known_agents_are_told_apart(
    tool: str, arguments: dict[str, object], use: str, paths: tuple[str, ...]
) -> None:
    call = find_file_call(tool, arguments)
    assert call is not None
    assert (call.use, call.paths) == (use, paths)


@pytest.mark.parametrize("tool", ["bash", "run_tests", "now"])
def test_other_tools_use_no_files(tool: str) -> None:
    assert find_file_call(tool, {"command": "cat /a"}) is None


def test_a_rule_of_a_program_s_own_comes_first() -> None:
    rules = (FileRule(tools="^read_and_fix$", use="change", arguments=("targets",)), *FILE_RULES)
    assert find_file_call("read_and_fix", {"targets": ["a.py"]}, rules) == FileCall(
        "change", ("a.py",)
    )


def test_arguments_of_any_shape_are_survived() -> None:
    odd: list[object] = [1, {"x": 2}, [], "  "]
    assert find_file_call("read_file", {"path": None, "files": odd}) == FileCall("read", ())
