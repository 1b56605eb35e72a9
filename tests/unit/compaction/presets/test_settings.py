"""Settings from files and variables: what is given arrives, and nothing is silently ignored, guessed or overruled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

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
    copilot_cli,
)
from promptkit.compaction.presets.settings import (
    disables,
    load_settings,
    optional,
    original_names,
    percent,
    setting,
)
from promptkit.errors import InvalidArgumentError, SettingsError


@attrs.frozen(kw_only=True)
class Sample:
    """One of each type."""

    threshold: float | None = setting(None, threshold=True)
    keep_tokens: int = setting(20_000, minimum=1)
    enabled: bool = True
    place: Literal["first", "last"] = "first"
    tools: tuple[str, ...] = ()
    retries: int = setting(2, minimum=0, maximum=5)
    model: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.keep_tokens == 13:
            problem = "thirteen is no number of tokens."
            raise ValueError(problem)


def read(toml: str | None = None, folder: Path | None = None, **environ: str) -> Sample:
    file = None
    if toml is not None and folder is not None:
        file = folder / "c.toml"
        file.write_text(toml, encoding="utf-8")
    return load_settings(Sample, prefix="PI_", file=file, environ=environ)


def refused(toml: str | None = None, folder: Path | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(toml, folder, **environ)
    return str(caught.value)


def test_what_is_not_given_keeps_its_default() -> None:
    assert read(HOME="/x", PIPE="1") == Sample()


def test_values_of_every_type_arrive_from_a_file(tmp_path: Path) -> None:
    toml = 'threshold = 1\nkeep_tokens = 5\nenabled = false\nplace = "last"\ntools = ["a", "b"]\nmodel = "gpt-5"\n'
    expected = Sample(
        threshold=1.0,
        keep_tokens=5,
        enabled=False,
        place="last",
        tools=("a", "b"),
        model="gpt-5",
    )
    assert read(toml, tmp_path) == expected


def test_values_of_every_type_arrive_from_variables_which_win_over_the_file(tmp_path: Path) -> None:
    environ = {
        "PI_THRESHOLD": "0.8",
        "PI_ENABLED": "No",
        "PI_PLACE": "last",
        "PI_TOOLS": "a, b",
        "PI_RETRIES": "3",
    }
    made = read("keep_tokens = 7\nthreshold = 0.5\nmodel = 'x'", tmp_path, **environ)
    expected = Sample(
        threshold=0.8,
        keep_tokens=7,
        enabled=False,
        place="last",
        tools=("a", "b"),
        model="x",
        retries=3,
    )
    assert made == expected
    assert read("threshold = 0.5", tmp_path, PI_THRESHOLD="none").threshold is None


@pytest.mark.spec("E52")
def test_a_threshold_between_a_share_and_tokens_is_refused_with_its_place(tmp_path: Path) -> None:
    from_file = refused("threshold = 80", tmp_path)
    assert str(tmp_path / "c.toml") in from_file
    assert "threshold=80 is neither a share nor a number of tokens" in from_file
    assert refused(PI_THRESHOLD="99.5").startswith("PI_THRESHOLD: threshold: ")
    assert read(PI_THRESHOLD="100").threshold == 100
    assert "at least 0" in refused(PI_THRESHOLD="-1")


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("keep_token = 1", "keep_token: unknown setting; did you mean keep_tokens?"),
        ("zzz = 1", "unknown setting; known are threshold,"),
        ('keep_tokens = "5"', "it must be a whole number, not '5'"),
        ("keep_tokens = 5.0", "it must be a whole number, not 5.0"),
        ("keep_tokens = true", "it must be a whole number, not True"),
        ("threshold = nan", "it must be a number, not nan"),
        ("enabled = 1", "it must be true or false, not 1"),
        ('place = "middle"', "it must be 'first' or 'last', not 'middle'"),
        ('tools = "a"', "it must be a list of texts, not 'a'"),
        ("tools = [1]", "it must be a list of texts"),
        ("keep_tokens = 0", "it must be at least 1, not 0"),
        ("retries = 6", "retries: it must be at least 0 and at most 5, not 6"),
        ("[zzz]\nx = 1", "zzz: unknown setting"),
        ("keep_tokens = {}", "it must be a whole number, not a group of settings"),
        ("[zzz]", "zzz: unknown setting"),
        ("[keep_tokens]\nx = 1", "it must be a whole number, not a group of settings"),
        ("keep_tokens = 13", "thirteen is no number of tokens"),
        ("keep_tokens = ", "it is not valid TOML"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_file_name_and_reason(
    toml: str, why: str, tmp_path: Path
) -> None:
    said = refused(toml, tmp_path)
    assert said.startswith(str(tmp_path / "c.toml"))
    assert why in said
    assert said.count("?.") == said.count("\n") == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PI_KEEP_TOKENS", "many"),
        ("PI_ENABLED", "maybe"),
        ("PI_MODEL", ""),
        ("PI_NONSENSE", "1"),
        ("PI_THRESHOLD", "inf"),
    ],
)
def test_a_variable_that_cannot_be_taken_is_named(variable: str, value: str) -> None:
    assert refused(None, None, **{variable: value}).startswith(f"{variable}: ")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(Sample, prefix="PI_", file=tmp_path / "none.toml")


@attrs.frozen(kw_only=True)
class Named:
    """Settings with names of their system's own, one of each kind."""

    enabled: bool = setting(default=True, names=(disables("X_DISABLE"), "auto.on"))
    share: float | None = setting(
        None, names=(percent("X_PERCENT"), percent("auto.percent")), minimum=0, maximum=1
    )
    tokens: int | None = setting(None, names=(optional("auto.tokens"),))
    tools: tuple[str, ...] = setting((), names=("X_TOOLS", "auto.tools"))


def read_named(toml: str | None = None, folder: Path | None = None, **environ: str) -> Named:
    if toml is not None and folder is not None:
        (folder / "c.toml").write_text(toml, encoding="utf-8")
    return load_settings(
        Named,
        prefix="X_",
        file=folder / "c.toml" if toml is not None and folder is not None else None,
        environ=environ,
    )


def test_the_names_of_the_system_are_read_with_their_own_units(tmp_path: Path) -> None:
    environ = {"X_DISABLE": "1", "X_PERCENT": "80", "X_TOOLS": "a, b"}
    assert read_named(None, None, **environ) == Named(enabled=False, share=0.8, tools=("a", "b"))
    toml = '[auto]\non = false\npercent = 25\ntokens = 7\ntools = ["a"]'
    assert read_named(toml, tmp_path) == Named(enabled=False, share=0.25, tokens=7, tools=("a",))
    # one key with dots, or a table
    assert read_named('"auto.percent" = 50\nauto.tokens = 3', tmp_path) == Named(
        share=0.5, tokens=3
    )


def test_a_value_that_means_the_default_there_sets_nothing(tmp_path: Path) -> None:
    assert read_named(X_DISABLE="0", X_PERCENT="-1") == Named()
    assert read_named(
        "enabled = false\n[auto]\npercent = -1\ntokens = -1", tmp_path, X_DISABLE="false"
    ) == Named(enabled=False)


def test_two_names_for_one_setting_must_agree(tmp_path: Path) -> None:
    assert read_named(X_SHARE="0.5", X_PERCENT="50").share == 0.5
    with pytest.raises(
        SettingsError,
        match="X_SHARE and X_PERCENT: share: it has a different value under each of these names",
    ):
        read_named(X_SHARE="0.6", X_PERCENT="50")
    with pytest.raises(SettingsError, match=r"c\.toml and .*c\.toml: auto\.on: enabled"):
        read_named("enabled = true\nauto.on = false", tmp_path)
    # variables override the file
    assert read_named("auto.percent = 25", tmp_path, X_PERCENT="50").share == 0.5
    assert read_named("auto.percent = 25", tmp_path, X_SHARE="0.75").share == 0.75


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        (
            'auto.percent = "many"',
            "auto.percent: share: it cannot be read as a value of auto.percent: 'many'",
        ),
        ("auto.percent = 180", "auto.percent: share: it must be at least 0 and at most 1, not 1.8"),
        ("auto.tokens = 1.5", "auto.tokens: tokens: it must be a whole number"),
        ("auto.percents = 5", "auto: unknown setting"),
        ("auto.on = true\nshare = 0.5\nauto.other = 5", "auto: unknown setting"),
    ],
)
def test_a_wrong_value_of_a_name_of_the_system_is_refused_with_that_name(
    toml: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_named(toml, tmp_path)
    assert why in str(caught.value)


def test_what_another_system_s_file_has_besides_is_named_and_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = "\n".join(f"other{number} = 1" for number in range(12))
    assert read_named(f"{others}\nauto.on = false\nauto.other = 5", tmp_path) == Named(
        enabled=False
    )
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{tmp_path / 'c.toml'}: not known here, and left aside: auto.other, other0, other1"
    )
    assert record.getMessage().endswith("other8 and 3 more")


def test_a_json_file_of_a_system_is_read_as_its_editor_writes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(
        """\ufeff{
            // "auto.tokens": 1
            "auto": {"on": false, "tools": ["a // b", "/* c */"], "other": null,},
            "auto.percent": 25, /* a share,
            } */
            "url": "http://x/,}", "last": [1, 2,],
        }""",
        encoding="utf-8",
    )
    assert load_settings(Named, prefix="X_", file=file) == Named(
        enabled=False, share=0.25, tools=("a // b", "/* c */")
    )
    assert "left aside: url, last" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not valid JSON"),
        ("[]", "it is not a JSON object"),
        ("[" * 100_000, "it is not valid JSON"),
        ('{"nothing": 1}', "unknown setting"),
        ('{"share": 0.5, "shared": 1}', "unknown setting"),
    ],
)
def test_a_json_file_that_cannot_be_taken_is_refused(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=why):
        load_settings(Named, prefix="X_", file=file)


ORIGINALS: list[tuple[object, str | None, dict[str, str]]] = [
    (
        VSCode(enabled=False),
        '"github.copilot.chat.summarizeAgentConversationHistory.enabled" = false',
        {},
    ),
    (
        VSCode(threshold=0.5),
        '"github.copilot.chat.advanced.summarizeAgentConversationHistoryThreshold" = 0.5',
        {},
    ),
    (
        VSCode(mode="simple"),
        '"github.copilot.chat.advanced.agentHistorySummarizationMode" = "simple"',
        {},
    ),
    (VSCode(enabled=False), '"chat.summarizeAgentConversationHistory.enabled" = false', {}),
    (
        VSCode(threshold=0.5),
        '"chat.advanced.summarizeAgentConversationHistoryThreshold" = 0.5',
        {},
    ),
    (VSCode(mode="simple"), '"chat.advanced.agentHistorySummarizationMode" = "simple"', {}),
    (VSCode(summary_model="m"), '"chat.conversationCompaction.model" = "m"', {}),
    (
        VSCode(summary_model_filter=("a",)),
        '"chat.conversationCompaction.prismModelFilter" = "a"',
        {},
    ),
    (VSCode(context_size=64_000), '"modelConfiguration.contextSize" = 64000', {}),
    (
        VSCode(summary_model="gpt-4o-mini"),
        '"github.copilot.chat.conversationCompaction.model" = "gpt-4o-mini"',
        {},
    ),
    (VSCode(), '"github.copilot.chat.conversationCompaction.model" = ""', {}),
    (
        VSCode(summary_model_filter=("a", "b")),
        '"github.copilot.chat.conversationCompaction.prismModelFilter" = "a, b"',
        {},
    ),
    (CopilotCLI(enabled=False), "infiniteSessions.enabled = false", {}),
    (CopilotCLI(background=0.7), None, {"COPILOT_BACKGROUND_COMPACTION_THRESHOLD": "0.7"}),
    (CopilotCLI(background=0.7), "infiniteSessions.backgroundCompactionThreshold = 0.7", {}),
    (CopilotCLI(block=0.9), None, {"COPILOT_BUFFER_EXHAUSTION_THRESHOLD": "0.9"}),
    (CopilotCLI(block=0.9), "infiniteSessions.bufferExhaustionThreshold = 0.9", {}),
    (Pi(enabled=False), "compaction.enabled = false", {}),
    (Pi(reserve_tokens=8_000), "compaction.reserveTokens = 8000", {}),
    (Pi(keep_recent_tokens=9_000), "compaction.keepRecentTokens = 9000", {}),
    (OhMyPi(enabled=False), "compaction.enabled = false", {}),
    (
        OhMyPi(threshold=0.8),
        "compaction.thresholdPercent = 80\ncompaction.thresholdTokens = -1",
        {},
    ),
    (
        OhMyPi(threshold=100_000),
        "compaction.thresholdTokens = 100000\ncompaction.thresholdPercent = -1",
        {},
    ),
    (OhMyPi(reserve_tokens=8_000), "compaction.reserveTokens = 8000", {}),
    (OhMyPi(keep_recent_tokens=9_000), "compaction.keepRecentTokens = 9000", {}),
    (OhMyPi(idle_enabled=True), "compaction.idleEnabled = true", {}),
    (OhMyPi(idle_tokens=80_000), "compaction.idleThresholdTokens = 80000", {}),
    (OhMyPi(idle_seconds=60.0), "compaction.idleTimeoutSeconds = 60", {}),
    (OhMyPi(auto_continue=False), "compaction.autoContinue = false", {}),
    (OhMyPi(strategy="handoff"), 'compaction.strategy = "handoff"', {}),
    (OhMyPi(strategy="off"), 'compaction.strategy = "off"', {}),
    (OhMyPi(remote_enabled=False), "compaction.remoteEnabled = false", {}),
    (
        OhMyPi(remote_endpoint="http://localhost"),
        'compaction.remoteEndpoint = "http://localhost"',
        {},
    ),
    (OhMyPi(promote=False), "contextPromotion.enabled = false", {}),
    (ClaudeCode(enabled=False), None, {"DISABLE_AUTO_COMPACT": "1", "DISABLE_COMPACT": "0"}),
    (ClaudeCode(enabled=False), None, {"DISABLE_COMPACT": "true"}),
    (ClaudeCode(enabled=False), "autoCompactEnabled = false", {}),
    (ClaudeCode(threshold=0.8), None, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "80"}),
    (Codex(auto_compact_tokens=64_000), "model_auto_compact_token_limit = 64000", {}),
    (OpenCode(enabled=False), None, {"OPENCODE_DISABLE_AUTOCOMPACT": "true"}),
    (OpenCode(enabled=False), "compaction.auto = false", {}),
    (OpenCode(prune=True), "compaction.prune = true", {"OPENCODE_DISABLE_PRUNE": "0"}),
    (OpenCode(), "compaction.prune = true", {"OPENCODE_DISABLE_PRUNE": "1"}),
    (OpenCode(reserved=4_000), "compaction.reserved = 4000", {}),
    (OpenCode(preserve_recent_tokens=8_000), "compaction.preserve_recent_tokens = 8000", {}),
    (OpenCode(tail_turns=2), "compaction.tail_turns = 2", {}),
    (GSVProcess(mode="fail"), 'overflow = "fail"', {}),
    (GSVProcess(compact_at_pressure=0.8), "compactAtPressure = 0.8", {}),
    (GSVProcess(keep_last=40), "keepLast = 40", {}),
    (GSV(enabled=False), "compaction.enabled = false", {}),
    (GSV(reserve_tokens=8_000), "compaction.reserveTokens = 8000", {}),
    (GSV(keep_recent_tokens=9_000), "compaction.keepRecentTokens = 9000", {}),
    (GSV(extract_memories=False), "compaction.extractMemories = false", {}),
    (GSV(reset="idle"), 'session.defaultResetPolicy.mode = "idle"', {}),
    (GSV(reset_hour=5), "session.defaultResetPolicy.atHour = 5", {}),
    (GSV(reset_idle_minutes=30.0), "session.defaultResetPolicy.idleMinutes = 30", {}),
]


@pytest.mark.parametrize(("expected", "toml", "environ"), ORIGINALS)
def test_a_setting_is_known_by_its_name_in_the_system(
    expected: object, toml: str | None, environ: dict[str, str], tmp_path: Path
) -> None:
    file = None
    if toml is not None:
        file = tmp_path / "c.toml"
        file.write_text(toml, encoding="utf-8")
    assert load_settings(type(expected), prefix="MINE_", file=file, environ=environ) == expected


@pytest.mark.parametrize("cls", [OhMyPi, Pi])
@pytest.mark.parametrize("with_others", [False, True])
def test_settings_of_branch_summaries_as_pi_writes_them_are_named_and_left_aside(
    cls: type[OhMyPi | Pi],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    with_others: bool,
) -> None:
    file = tmp_path / "settings.json"
    others = {"compaction": {"reserveTokens": 8_000}} if with_others else {}
    file.write_text(json.dumps({"branchSummary": {"enabled": True, "reserveTokens": 9}, **others}))
    expected = cls(reserve_tokens=8_000) if with_others else cls()
    assert load_settings(cls, prefix="MINE_", file=file) == expected
    assert "left aside: branchSummary.enabled, branchSummary.reserveTokens" in caplog.text


def test_every_name_of_a_system_is_tried_here() -> None:
    # Any stands for attrs knows no closer type
    classes: set[type[Any]] = {type(expected) for expected, _, _ in ORIGINALS}
    tried = {
        (type(expected), word)
        for expected, toml, environ in ORIGINALS
        for word in [*environ, *_KEY.findall(toml or "")]
    }
    names = {
        (cls, original.name)
        for cls in classes
        for originals in original_names(cls).values()
        for original in originals
    }
    assert names == tried


_KEY = re.compile(r'^"?([\w.]+)"? =', re.MULTILINE)


def test_nothing_is_read_without_a_prefix() -> None:
    with pytest.raises(SettingsError, match="prefix"):
        load_settings(Sample, prefix="", environ={"KEEP_TOKENS": "5"})


def test_a_background_summary_cannot_start_where_no_request_is_sent_without_one() -> None:
    with pytest.raises(InvalidArgumentError, match="background must be at most block"):
        copilot_cli(CopilotCLI(background=0.97))
    copilot_cli(CopilotCLI(background=0.95))


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (Pi, "reserve_tokens"),
        (VSCode, "threshold"),
        (VSCode, "context_size"),
        (OpenCode, "reserved"),
    ],
)
def test_a_number_of_tokens_is_text_in_a_program_a_file_and_a_variable(
    cls: type[Any], name: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'{name} = "12k"\n')
    expected = cls(**{name: 12_000})
    assert cls(**{name: "12k"}) == expected
    assert load_settings(cls, prefix="X_", file=file) == expected
    assert load_settings(cls, prefix="X_", environ={f"X_{name.upper()}": "12k"}) == expected
    with pytest.raises(InvalidArgumentError, match="invalid token count '12q'"):
        cls(**{name: "12q"})
