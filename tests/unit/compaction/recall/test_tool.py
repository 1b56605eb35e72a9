"""The tool `recall`: what a summary has left out is found by words, by an expression or by a file's name, and read in full, page by page."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.recall import tool as recall_module
from promptkit.compaction.recall.tool import RECALL, recall_tool, suggest_call
from promptkit.messages import Message, ToolCall, ToolDefinition
from promptkit.testing import WordTokenizer
from promptkit.tokens import tokenizer_for
from promptkit.transcript import redact_secrets
from promptkit.transcript.log.entries import Edit
from tests.conversations import ConversationBuilder, words
from tests.examples import examples

TOKENIZER = WordTokenizer()


def recall(talk: ConversationBuilder, max_tokens: int = 120, /, **arguments: object) -> str:
    result = recall_tool(talk.log, tokenizer=TOKENIZER, max_tokens=max_tokens).run(arguments)
    assert inspect.iscoroutine(result)
    text: object = asyncio.run(result)
    assert isinstance(text, str)
    return text


def look(talk: ConversationBuilder, call_id: str, path: str, result: str) -> None:
    call = ToolCall(id=call_id, name="read_file", arguments=json.dumps({"path": path}))
    talk.say(Message(role="assistant", tool_calls=(call,)))
    talk.result(call_id, result)


def hidden_talk() -> ConversationBuilder:
    """A conversation whose files are behind a checkpoint, each with a detail in a very long line."""
    talk = ConversationBuilder()
    talk.user("Read the files.")
    for number in range(22):
        look(
            talk,
            f"c{number}",
            f"src/module_{number}.py",
            f"{words(700)} NEEDLE-{number * 7919} {words(700)}",
        )
    talk.answer("I have read them.")
    talk.checkpoint("The files were read.")
    talk.user("What now?")
    return talk


def test_each_of_many_details_is_found_by_the_name_of_its_file_and_read_in_its_entry() -> None:
    talk = hidden_talk()
    for number in range(22):
        found = recall(talk, query=f"module_{number}.py")
        result = re.search(rf"read_file .*module_{number}\.py.* → entry (\w+)", found)
        assert result, found
        pages = [recall(talk, 800, entry=result[1], page=page) for page in (1, 2)]
        assert any(f"NEEDLE-{number * 7919}" in page for page in pages)


@pytest.mark.slow
def test_each_of_many_details_is_found_by_its_own_word_in_a_long_line() -> None:
    talk = hidden_talk()
    for number in range(22):
        assert f"NEEDLE-{number * 7919}" in recall(talk, query=f"NEEDLE-{number * 7919}")
        assert f"NEEDLE-{number * 7919}" in recall(talk, pattern=rf"NEEDLE-{number * 7919}\b")


@settings(max_examples=examples(60))
@given(st.text(st.sampled_from("ab \n.é"), min_size=1, max_size=400), st.integers(20, 40))
def test_the_pages_of_an_entry_are_its_text_and_none_exceeds_the_limit(
    text: str, max_tokens: int
) -> None:
    talk = ConversationBuilder()
    entry = talk.user(f"x{text}")
    pages: list[str] = []
    while not pages or pages[-1].endswith("})]"):
        pages.append(recall(talk, max_tokens, entry=entry, page=len(pages) + 1))
        assert TOKENIZER.count(pages[-1]) <= max_tokens
    titles = [
        f"[user, entry {entry}{f', page {number}' if number > 1 else ''}]\n"
        for number in range(1, len(pages) + 1)
    ]
    assert all(map(str.startswith, pages, titles))
    body = "".join(
        re.sub(r"\n\n\[there is more: recall\(.*\)\]$", "", page)[len(title) :]
        for page, title in zip(pages, titles, strict=True)
    )
    assert body == "\n".join(f"x{text}".splitlines())


def test_a_page_ends_with_a_line_so_that_nothing_is_cut_in_two() -> None:
    talk = ConversationBuilder()
    entry = talk.user("\n".join(f"line {number} ends here{number * 7}" for number in range(60)))
    pages = [
        recall(talk, 50, entry=entry, page=page).partition("\n\n[there")[0] for page in range(1, 8)
    ]
    lines = [line for page in pages for line in page.splitlines()[1:]]
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r"line \d+ ends here\d+", line)] == []


def test_the_pages_of_a_search_show_every_match_once() -> None:
    talk = hidden_talk()
    shown: list[str] = []
    while not shown or "[there is more: recall(" in shown[-1]:
        shown.append(recall(talk, pattern=r"NEEDLE-\d+", page=len(shown) + 1))
    found = re.findall(r"NEEDLE-(\d+)", "\n".join(shown))
    assert sorted(map(int, found)) == [number * 7919 for number in range(22)]


def test_the_first_page_of_a_search_has_what_matches_well_and_the_next_pages_all_else() -> None:
    talk = ConversationBuilder()
    for number in range(30):
        talk.user(f"The kumquat of day {number} is fine.")
    talk.user("The kumquat of the quince and the medlar is bad.")
    first = recall(talk, 500, query="kumquat quince medlar")
    assert first.startswith("[user, entry e31]\nThe kumquat of the quince")
    assert first.count("kumquat of") == 3
    assert first.endswith('[there is more: recall({"query": "kumquat quince medlar", "page": 2})]')
    assert recall(talk, 500, query="kumquat quince medlar", page=2).count("kumquat of") == 28


@pytest.mark.parametrize("arguments", [{"pattern": "case"}, {"query": "case"}])
def test_every_match_in_one_long_entry_is_on_some_page_whole(arguments: dict[str, object]) -> None:
    talk = ConversationBuilder()
    entry = talk.user("\n".join(f"case {number} has failed{number * 7}" for number in range(300)))
    pages: list[str] = []
    while not pages or "[there is more: recall(" in pages[-1]:
        pages.append(recall(talk, **arguments, page=len(pages) + 1))
        assert TOKENIZER.count(pages[-1]) <= 120
        assert pages[-1].startswith(f"[user, entry {entry}]\n")
    found = re.findall(r"^case (\d+) has failed(\d+)$", "\n".join(pages), re.MULTILINE)
    assert found == [(f"{number}", f"{number * 7}") for number in range(300)]


@pytest.mark.parametrize(
    "query",
    [
        "端口",
        "部署密钥",
        "服务器的端口",
        "保险库",
        "ボタンの色",
        "部署 密钥",
        "parser.py",
        "설정",
        "สีน้ำ",
        "𠮷野",
    ],
)
def test_words_within_a_sentence_of_a_script_without_spaces_are_found(query: str) -> None:
    talk = ConversationBuilder()
    talk.user("请把服务器的端口改成八千零八十。然后修改parser.py文件。")
    talk.answer("好的。部署密钥保存在保险库的第四十二号路径里。")
    talk.user("ボタンの色を青に変えてください。설정을 바꿔라. ปุ่มสีน้ำเงิน 在𠮷野家")
    assert re.match(rf"\[.*, entry \w+\]\n.*{query.replace(' ', '')}", recall(talk, query=query))
    assert recall(talk, query="口端") == "Nothing in the conversation matches '口端'."


def test_what_was_redacted_is_not_found_and_what_was_pruned_is() -> None:
    talk = ConversationBuilder()
    talk.user("The key is kumquat.")
    secret = talk.leaf
    talk.round("c1", "a quince in a long result")
    pruned = talk.leaf
    talk.append(Edit(target=secret, content=("[redacted]",), reason="redacted"))
    talk.append(Edit(target=pruned, content=("[pruned]",), reason="pruned"))
    assert "quince" in recall(talk, query="quince")
    assert "kumquat." not in recall(talk, query="kumquat")


def test_a_recall_does_not_find_what_was_recalled_before() -> None:
    talk = ConversationBuilder()
    talk.user("The colour is mauve.")
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="r", name=RECALL.name, arguments='{"query": "mauve"}'),),
        )
    )
    talk.result("r", recall(talk, query="mauve"))
    assert recall(talk, query="mauve").count("The colour is mauve.") == 1


def test_ids_that_each_reply_uses_again_hide_no_results_and_lead_to_their_own() -> None:
    talk = ConversationBuilder()
    for fruit in ("quince", "medlar"):
        look(talk, "call_0", f"{fruit}.txt", f"The {fruit} is ripe.")
    before = talk.leaf
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="call_0", name=RECALL.name, arguments='{"query": "mauve"}'),),
        )
    )
    talk.result("call_0", "Nothing in the conversation matches 'mauve'.")
    look(talk, "call_0", "kumquat.txt", "The kumquat is ripe.")
    found = recall(talk, pattern="ripe|read_file")
    for fruit in ("quince", "medlar", "kumquat"):
        assert (entry := re.search(rf'{fruit}.txt"}} → entry (\w+)', found))
        assert (
            recall(talk, entry=entry[1])
            == f"[result of read_file, entry {entry[1]}]\nThe {fruit} is ripe."
        )
    assert "mauve" not in recall(talk, 800, pattern=".")
    assert before in found


@pytest.mark.parametrize("name", ["mcp__memory__recall", "memory.recall", "recall"])
def test_results_of_another_programs_tool_of_the_same_name_are_found(name: str) -> None:
    talk = ConversationBuilder()
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="c", name=name, arguments='{"query": "customer"}'),),
        )
    )
    talk.result("c", "The customer number is KX-4711.")
    assert (
        recall(talk, query="KX-4711")
        == f"[result of {name}, entry {talk.leaf}]\nThe customer number is KX-4711."
    )
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="d", name=name, arguments='{"query": "KX-4711"}'),),
        )
    )
    # of the call that is being answered nothing is shown
    assert recall(talk, 800, pattern="KX").count("KX-4711") == 1
    talk.result("d", recall(talk, query="KX-4711"))
    assert recall(talk, 800, pattern="KX").count("KX-4711") == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "give what to look for"),
        ({"query": " "}, "give what to look for"),
        ({"pattern": "("}, "is no regular expression"),
        ({"entry": "nowhere"}, "there is no entry 'nowhere'"),
        ({"query": "x", "page": 0}, "page must be a number from 1"),
        ({"query": "x", "page": True}, "page must be a number from 1, not True"),
        ({"query": "x", "page": "2"}, "There is nothing on this page"),
        ({"pattern": "^(a|aa)+$"}, "takes too long"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(
    arguments: dict[str, object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_module, "PATTERN_SECONDS", 0.2)
    talk = ConversationBuilder()
    talk.user("a" * 60 + "!")
    assert problem in recall(talk, **arguments)


PRIVATE_KEY = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *(f"{base64.b64encode(bytes([number]) * 48).decode()}" for number in range(25)),
        "-----END RSA PRIVATE KEY-----",
    ]
)


@pytest.mark.parametrize("lines_before", [0, 40, 130])
def test_with_a_redactor_no_piece_of_a_secret_is_served_wherever_a_page_or_a_passage_ends(
    lines_before: int,
) -> None:
    talk = ConversationBuilder()
    token = f"ghp_{'a1B2' * 9}"
    before, after = "a line\n" * lines_before, "the end\n" * 9
    look(talk, "c", "notes", f"{before}{PRIVATE_KEY}\n{after}{token}")
    entry = talk.log.path()[-1].id
    key_lines = PRIVATE_KEY.splitlines()[1:-1]

    def served(max_tokens: int, **arguments: object) -> str:
        return recall_module.recall(
            talk.log.path(),
            arguments,
            tokenizer=tokenizer_for(None),
            max_tokens=max_tokens,
            redactor=redact_secrets,
        )

    answers = [
        *(served(200, entry=entry, page=page) for page in range(1, 20)),
        *(served(size, pattern="[A-Za-z0-9+/]{20}") for size in (200, 1_500)),
        *(served(1_500, query=line) for line in key_lines),
        *(served(1_500, pattern=re.escape(line[:30])) for line in key_lines),
        served(1_500, query=token),
        served(1_500, pattern="ghp_"),
    ]
    assert any("the end\n[redacted: access token]" in answer for answer in answers)
    assert [
        line for line in [*key_lines, token[:12]] if any(line in answer for answer in answers[:21])
    ] == []
    assert all(answer.startswith("Nothing in the conversation matches ") for answer in answers[19:])


def test_with_a_redactor_what_stands_beside_a_secret_is_found_and_shown_without_it() -> None:
    talk = ConversationBuilder()
    look(talk, "c", "notes", "the kumquat: ghp_" + "a1B2" * 9)
    tool = recall_tool(talk.log, tokenizer=TOKENIZER, redactor=redact_secrets)
    for arguments in ({"query": "kumquat"}, {"pattern": "k.mquat"}):
        result = tool.run(arguments)
        assert inspect.iscoroutine(result)
        assert str(asyncio.run(result)).endswith("]\nthe kumquat: [redacted: access token]")


@pytest.mark.parametrize(
    "query",
    [
        "authentication",
        "user authentication timeout",
        "AuthenticationTimeout",
        "parse",
        "index",
        "rebuild",
        "reviews",
        "retry",
        "test",
        "failing",
        "config",
        "bug",
    ],
)
def test_parts_of_names_and_other_forms_of_words_are_found(query: str) -> None:
    talk = ConversationBuilder()
    talk.user("hello")
    talk.answer(
        "userAuthenticationTimeoutMs: parsing failed, indexes were rebuilt, the reviewer retried all tests of configurations for bugs"
    )
    assert "userAuthentication" in recall(talk, query=query)


def test_the_word_itself_comes_before_a_form_that_is_as_rare_and_the_user_before_the_rest() -> None:
    talk = ConversationBuilder()
    talk.answer("The parsers stand here, on the shelf.")
    talk.answer("A parser stands here.")
    talk.user("On the shelf there is no room.")
    found = recall(talk, query="parser")
    assert found.index("A parser") < found.index("The parsers")
    found = recall(talk, query="shelf")
    assert found.index("no room") < found.index("stand here")


def test_where_nothing_matches_words_that_are_spelt_nearly_so_are_named() -> None:
    talk = ConversationBuilder()
    talk.user("The persimmon is in session_store.py with the sekretwort.")
    assert recall(talk, query="presimmon sesion_store.py") == (
        "[user, entry e1]\nThe persimmon is in session_store.py with the sekretwort."
    )
    assert recall(talk, query="presimmon") == (
        "Nothing in the conversation matches 'presimmon'. Words that are spelt nearly so: persimmon."
    )
    redacted = recall_module.recall(
        talk.log.path(),
        {"query": "secretwort"},
        redactor=lambda text: text.replace("sekretwort", "***"),
    )
    assert redacted == "Nothing in the conversation matches 'secretwort'."


@pytest.mark.parametrize("query", ["is it", "the", "?"])
def test_a_search_for_words_that_are_in_no_index_says_so(query: str) -> None:
    assert "too short or too common" in recall(hidden_talk(), query=query)


def test_nothing_found_is_said_so() -> None:
    assert (
        recall(hidden_talk(), query="persimmon")
        == "Nothing in the conversation matches 'persimmon'."
    )


@pytest.mark.parametrize(
    ("tools", "call"),
    [
        ((RECALL,), 'recall({"query": "b.py"})'),
        ((attrs.evolve(RECALL, name="mcp__talk__recall"),), 'mcp__talk__recall({"query": "b.py"})'),
        # that of another conversation comes first
        ((attrs.evolve(RECALL, name="mcp__old__recall"), RECALL), 'recall({"query": "b.py"})'),
        ((ToolDefinition(name="read_file"),), 'read_file({"path": "/talk.jsonl"})'),
        ((ToolDefinition(name="recall"),), None),  # a tool of another kind
        ((ToolDefinition(name="bash"),), None),
        ((), None),
    ],
)
def test_an_example_call_names_only_a_tool_that_is_there(
    tools: tuple[ToolDefinition, ...], call: str | None
) -> None:
    facts = Facts(changed=("src/a.py", "src/b.py"), requests=("Mend it.",))
    talk = ConversationBuilder()
    look(talk, "c", "src/b.py", "text")
    assert suggest_call(tools, facts, talk.log.path(), location="/talk.jsonl") == call


@pytest.mark.parametrize(
    "request_",
    [
        "Read https://example.com/docs/",
        "Write src/parser/ again",
        "go on",
        "ok",
        "do it",
        "now?",
        "use CI/CD",
        "why not",
        "🙂",
        "请修复解析器的错误",
    ],
)
@pytest.mark.parametrize("earlier", ["Please help with the parser", "why?"])
def test_the_example_call_of_a_breadcrumb_finds_something_that_was_dropped(
    request_: str, earlier: str
) -> None:
    talk = ConversationBuilder()
    for text in (earlier, request_):
        talk.user(text)
        talk.answer("Now.")
    dropped = talk.log.path()
    talk.user(f"{request_} {earlier}")
    call = suggest_call(
        (RECALL,),
        Facts(requests=(earlier, request_), errors=(" ",), changed=("gone/",)),
        dropped,
    )
    assert call is not None
    found = recall(talk, **json.loads(call.removeprefix("recall(").removesuffix(")")))
    assert any(f"entry {entry.id}]" in found for entry in dropped), (call, found)


def test_without_anything_that_recall_could_find_no_call_is_suggested() -> None:
    assert suggest_call((RECALL,), Facts(requests=("Mend it.",)), []) is None
