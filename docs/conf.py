"""Configuration of the site: `sphinx-build -W --keep-going docs site` builds it into the folder `site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.logging import getLogger

from promptkit import PromptElement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils.parsers.rst.states import Inliner
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate_reference import (
    COMPONENTS,
    GROUPED,
    NAMESPACES,
    convert_docstring,
    list_homes,
    list_names,
    make_grouped_arguments,
    write_reference,
)

project = "promptkit"
html_title = "promptkit"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
nitpicky = True  # a name that no page documents is an error
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

myst_heading_anchors = 4

default_role = "name"  # docstrings write names in single backticks
autodoc_default_options = {
    "members": True,
    # Bases whose members are not repeated in each class.
    "inherited-members": "PromptElement, object, BaseException, Exception, ABC, Protocol, Generic, NamedTuple, Executor",
}
autoclass_content = "both"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# The frameworks exclude each other, and take seconds to import.
autodoc_mock_imports = [
    "agents",
    "langchain",
    "langchain_core",
    "langgraph",
    "litellm",
    "llama_index",
    "mcp",
    "mcp_types",
    "pydantic_ai",
]
python_maximum_signature_line_length = 90
toc_object_entries = False  # the navigation of each page would list each method
_LAYOUT_PROPS = re.compile(
    r", (?:priority|pass_priority|flex_grow|flex_basis|flex_reserve|required|fallback|label): [^=]+ = [^,)]+"
)
_HOMES = list_homes()
_LOGGER = getLogger(__name__)


def setup(app: Sphinx) -> None:
    """Write the reference before the build, and connect what the pages need."""
    write_reference(HERE / "reference")
    app.add_role("name", _make_name)
    app.connect("source-read", _drop_links_to_code)
    app.connect("source-read", _show_file_names)
    app.connect("doctree-read", _link_names)
    app.connect("autodoc-process-docstring", _convert_docstring)
    app.connect("autodoc-process-signature", _shorten_signature)
    app.connect("missing-reference", _find_public_name)
    app.connect("env-check-consistency", _check_reference)


def _drop_links_to_code(app: Sphinx, page: str, source: list[str]) -> None:
    """Write links to files outside the site as plain text. A file that is missing is a warning."""

    def drop(match: re.Match[str]) -> str:
        path = (Path(app.srcdir) / page).parent / match["path"]
        if not path.exists():
            _LOGGER.warning("there is no %s", match["path"], location=page)
        return match["text"]

    link = re.compile(r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<path>\.\./[^)#\s]+)(?:#[^)]*)?\)")
    source[0] = link.sub(drop, source[0])


def _show_file_names(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the name of its file above a code block that has one."""
    _ = app, page
    block = re.compile(r"^(`{3,})(\w+)(?: [^\n]*?)? ?file=(\S+)[^\n]*\n", re.MULTILINE)
    source[0] = block.sub(r"\1{code-block} \2\n:caption: \3\n\n", source[0])


def _make_name(
    name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Inliner,
    options: object = None,
    content: Sequence[str] = (),
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Show a text in single backticks as code, with a link if it is a public name."""
    _ = name, lineno, inliner, options, content
    return [_make_reference(text) or nodes.literal(rawtext, text)], []


def _make_reference(text: str) -> pending_xref | None:
    """Return a link to the reference for a public name, or for an attribute of one. None for other texts."""
    first, _, rest = text.removeprefix("promptkit.").removesuffix("()").partition(".")
    is_word = first.islower() and "_" not in first and first not in {"fit", "render"}
    if (
        first not in _HOMES
        or is_word
        or not all(map(str.isidentifier, rest.split(".") if rest else ()))
    ):
        return None
    target = f"{_HOMES[first]}.{first}{'.' if rest else ''}{rest}"
    literal = nodes.literal(text, text, classes=["py"])
    return pending_xref(
        text, literal, refdomain="py", reftype="obj", reftarget=target, optional=True
    )


def _link_names(app: Sphinx, tree: nodes.document) -> None:
    """Link each public name to the reference where a page writes it first."""
    page = app.env.current_document.docname
    seen: set[str] = set()
    for literal in [*tree.findall(nodes.literal)]:
        inside = (nodes.title, nodes.reference, pending_xref)
        if page.startswith("reference/") or isinstance(literal.parent, inside):
            continue
        text = literal.astext()
        link = _make_reference(text)
        if link is not None and text not in seen:
            seen.add(text)
            link["refdoc"] = page
            literal.replace_self(link)


def _convert_docstring(
    app: Sphinx, kind: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Convert a docstring in Google's style, with Markdown tables, to reStructuredText."""
    _ = app, name, options
    text = convert_docstring("\n".join(lines))
    if kind not in {"attribute", "data", "property"}:  # `word: text` is no section there
        if isinstance(obj, type) and obj.__name__ in GROUPED:
            text = re.sub(
                r"^Args:\n(?:\n|[ ]+.*\n)*",
                lambda _: f"{make_grouped_arguments(obj)}\n",
                text,
                flags=re.MULTILINE,
            )
        text = str(GoogleDocstring(text))
    lines[:] = [*text.splitlines(), ""]


def _shorten_signature(
    app: Sphinx,
    kind: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Write the layout props, which every element has, as `**layout`."""
    _ = app, name, options
    if (
        signature
        and kind == "class"
        and isinstance(obj, type)
        and issubclass(obj, PromptElement)
        and obj is not PromptElement
    ):
        own = _LAYOUT_PROPS.sub("", signature).removesuffix(")")
        signature = "(**layout)" if own == "(*" else f"{own}, **layout)"
    return signature, returns


def _find_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Link a name of a signature to its page. One that is not public is shown without a link."""
    name: str = node["reftarget"]
    last = name.rpartition(".")[2]
    if node.get("refdomain") != "py" or not (
        node.get("optional") or node["refdoc"].startswith("reference/")
    ):
        return None  # written by hand, and so an error
    if home := _HOMES.get(last):
        found = env.domains["py"].resolve_xref(
            env, node["refdoc"], app.builder, "obj", f"{home}.{last}", node, content
        )
        if found is not None:
            return found
    return content


def _check_reference(app: Sphinx, env: BuildEnvironment) -> None:
    """Report public names that the reference lacks."""
    _ = app
    documented = {each[0] for each in env.domains["py"].get_objects()}
    for namespace in (*NAMESPACES, COMPONENTS):
        for name in list_names(namespace):
            if f"{_HOMES[name]}.{name}" not in documented:
                _LOGGER.warning("%s.%s is not in the reference", namespace, name)
