"""Targets: HTML pages with hostile texts, and settings of presets."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import attrs
from hypothesis import strategies as st

from promptkit import Group, SystemMessage, TextChunk, UserMessage, render
from promptkit.bench.plot import format_run
from promptkit.bench.results import Element
from promptkit.compaction.presets.coding_agents import (
    GSV,
    ClaudeCode,
    Codex,
    CopilotCLI,
    GSVProcess,
    OhMyPi,
    OpenCode,
    Pi,
    VSCode,
    claude_code,
    codex,
    copilot_cli,
    gsv,
    gsv_process,
    oh_my_pi,
    opencode,
    pi,
    vscode,
)
from promptkit.compaction.presets.settings import load_settings, original_names
from promptkit.errors import PromptKitError, SettingsError, ToolsFillBudgetError
from promptkit.testing import WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tracing.page import build_columns, trace_to_html
from tests.behaviour.transcript_strategies import new_file
from tests.fuzz.target import Target, as_case, check_sentence, read_case
from tests.unit.bench.prompts import run_of, sweep_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from promptkit.compaction.presets.preset import Preset

__all__ = ["PAGES", "SETTINGS"]


# Pages
# -----------------------------------------------------------------------------------------------------------------------------


class _Markup(HTMLParser):
    """The markup of a page: its tags with their attributes, in order, without the texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[object] = []
        self.record: list[str] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))
        self._inside = ("id", "record") in attrs

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)
        self._inside = False

    def handle_comment(self, data: str) -> None:
        self.tags.append(("a comment", data))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("a declaration", decl))

    def unknown_decl(self, data: str) -> None:
        self.tags.append(("an unknown declaration", data))

    def handle_pi(self, data: str) -> None:
        self.tags.append(("an instruction", data))

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.record.append(data)


def _trace_page(text: str) -> tuple[str, object]:
    prompt = (
        SystemMessage(label=text or None)[text, "end"],
        Group(label=text or None)[
            UserMessage(name=text or None, priority=1)[TextChunk(priority=2)[text], "b"]
        ],
    )
    trace = render(prompt, budget=50, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    return trace_to_html(trace, title=text), build_columns(trace)


def _bench_page(text: str) -> str:
    sweep = attrs.evolve(
        sweep_of(model=text),
        tokenizer=text,
        elements=(Element(path=text, whole=10, kept=(None, 0, 5)),),
    )
    return format_run(attrs.evolve(run_of(sweep), target=text), ["<svg></svg>"] * 2)


def _check_pages(case: bytes) -> None:
    """No text of a prompt becomes markup: a page has the tags that it has with any other text."""
    text = case.decode(errors="surrogateescape")
    page, columns = _trace_page(text)
    markup = _Markup(page)
    assert markup.tags == _Markup(_trace_page("harmless")[0]).tags
    shown = json.loads("".join(markup.record))
    del shown["title"]
    assert shown == json.loads(json.dumps(columns)), "the page shows another trace"
    page.encode()
    assert _Markup(_bench_page(text)).tags == _Markup(_bench_page("harmless")).tags


_MARKUP = (
    "<script>",
    "</script>",
    "</SCRIPT ",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "</title>",
    "</style>",
    '"',
    "'",
    ">",
    "<",
    "&",
    "&lt;",
    "&#60;",
    "\\u003c",
    "\x00",
    "\ud800",
    "\u2028",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "javascript:",
    "a",
    " ",
    "\n",
)
PAGES = Target(
    check=_check_pages,
    cases=st.lists(st.sampled_from(_MARKUP), max_size=10).map(
        lambda pieces: "".join(pieces).encode(errors="surrogatepass")
    ),
    seeds=tuple(piece.encode(errors="surrogatepass") for piece in _MARKUP),
)


# Settings
# --------------------------------------------------------------------------------------------------------------------------

_SETTINGS: Mapping[str, tuple[type[Any], Callable[..., Preset]]] = {  # Any: settings of any preset
    "claude_code": (ClaudeCode, claude_code),
    "codex": (Codex, codex),
    "copilot_cli": (CopilotCLI, copilot_cli),
    "gsv": (GSV, gsv),
    "gsv_process": (GSVProcess, gsv_process),
    "oh_my_pi": (OhMyPi, oh_my_pi),
    "opencode": (OpenCode, opencode),
    "pi": (Pi, pi),
    "vscode": (VSCode, vscode),
}


def _check_settings(case: bytes) -> None:
    """Settings are refused with one sentence, or they make a preset that works with every window that is larger than the tools."""
    spec = read_case(case)
    if spec is None:
        return
    kind, make = _SETTINGS[spec["preset"]]
    with new_file() as path:
        path.write_text(spec["toml"], encoding="utf-8", errors="replace")
        try:
            made = load_settings(kind, prefix="PK_", file=path, environ=spec["environ"])
        except SettingsError as error:
            check_sentence(error)
            return
        try:
            preset = make(made)
        except PromptKitError as error:
            check_sentence(error)
            return
    preset.policy(lambda: 0.5)
    for budget in (
        ContextBudget(),
        ContextBudget(window=1),
        ContextBudget(window=8_000, tools=100),
        ContextBudget(window=2_000_000),
    ):
        try:
            adjusted = preset.adjust_budget(budget)
        except ToolsFillBudgetError as error:
            check_sentence(error)
            continue
        preset.keep(adjusted)
        assert adjusted.window == budget.window


def _names(kind: type[Any]) -> list[str]:
    """The names of settings, the system's own included, as keys of a file."""
    originals = [original.name for names in original_names(kind).values() for original in names]
    return [*(field.name for field in attrs.fields(kind)), *originals]


_VALUES = (
    "1",
    "0",
    "-1",
    "0.5",
    "80",
    "1e400",
    "nan",
    "inf",
    "true",
    '"a"',
    '""',
    "[]",
    '["a"]',
    "{}",
    "99999999999999999999",
    "1979-05-27",
)
_TEXTS = (
    "1",
    "0",
    "-1",
    "0.5",
    "80",
    "1e400",
    "nan",
    "inf",
    "true",
    "a",
    "",
    "none",
    "9" * 30,
    "\u0661",
    "\ud800",
    "a, b",
    "_1",
    "1_0",
)


@st.composite
def _settings_cases(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(tuple(_SETTINGS)))
    names = _names(_SETTINGS[name][0])
    keys = st.sampled_from((*names, *(f'"{each}"' for each in names), "unknown", "a.b"))
    lines = draw(st.lists(st.builds("{} = {}".format, keys, st.sampled_from(_VALUES)), max_size=3))
    variables = st.sampled_from(
        (
            *(f"PK_{each.upper()}" for each in names),
            *(each for each in names if each.isupper()),
            "PK_X__Y",
            "PK_",
        )
    )
    environ = draw(st.dictionaries(variables, st.sampled_from(_TEXTS), max_size=2))
    return as_case({"preset": name, "toml": "\n".join(lines), "environ": environ})


SETTINGS = Target(check=_check_settings, cases=_settings_cases())
