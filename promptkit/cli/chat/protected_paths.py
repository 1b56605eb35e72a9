"""Paths that a model may not write, because a program runs what stands in them without being asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDERS = {
    "a version control folder": (".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "cvs"),
    "a folder of hooks": (".husky", ".githooks", ".lefthook"),
    "an editor's or an agent's folder": (
        ".vscode", ".idea", ".fleet", ".zed", ".vs", ".vim", ".nvim", ".emacs.d", ".devcontainer",
        ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".pi",
    ),
    "a folder of settings": (".config", ".local", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".direnv", "autostart"),
}  # fmt: skip
_FILES = {
    "a file that version control reads": (".gitmodules", ".gitconfig", ".hgrc", ".pre-commit-config.yaml", "lefthook.yml"),
    "a start-up file of a shell": (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".login", ".logout", ".cshrc", ".tcshrc",
        ".kshrc", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".envrc", ".xinitrc", ".xprofile", ".xsession",
        ".xsessionrc", ".tmux.conf", ".screenrc", ".mise.toml",
    ),
    "a start-up file of an editor": (
        ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".lvimrc", ".emacs", ".dir-locals.el", ".nanorc", ".sublime-project",
    ),
    "a start-up file of a program": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc", ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".irbrc", ".pryrc", ".mcp.json",
        "sitecustomize.py", "usercustomize.py",
    ),
}  # fmt: skip
_FOLDER_KINDS = {name: kind for kind, names in _FOLDERS.items() for name in names}
_FILE_KINDS = {name: kind for kind, names in _FILES.items() for name in names}


def explain_protection(steps: Sequence[str], allowed: Sequence[Sequence[str]] = ()) -> str | None:
    """Return what a protected path is, such as `a version control folder`; None for a path that may be written.

    Names are compared as file systems that ignore case do, and Windows, which ignores dots and
    spaces at the end and knows short names.

    Args:
        steps: The names that lead from the folder to the file.
        allowed: Paths that the user named, as names likewise. They may be written, and all below
            them.
    """
    if any(list(steps[: len(each)]) == list(each) for each in allowed):
        return None
    plain = [_normalize(step) for step in steps]
    for name in plain:
        if kind := _FOLDER_KINDS.get(name):
            return kind
    name = plain[-1] if plain else ""
    return "a start-up file of a program" if name.endswith(".pth") else _FILE_KINDS.get(name)


def _normalize(name: str) -> str:
    # HFS+ ignores some invisible characters
    visible = "".join(each for each in name.casefold() if each.isprintable())
    plain = visible.split(":")[0].rstrip(". ")  # a stream of NTFS
    return ".git" if plain.startswith("git~") else plain
