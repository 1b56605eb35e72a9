# pyright: reportPrivateUsage=false
# The libraries that counts are compared with can only be seen from inside.

"""Models with a public vocabulary: text is counted as their own libraries do, and framing as their chat templates write it."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import (
    Message,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolDefinition,
    UserMessage,
    render,
)
from promptkit.errors import TokenizerError
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.tokens import HuggingFaceTokenizer, MistralTokenizer, Tokenizer
from promptkit.tokens.tokenizer import count_message
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SAMPLE = "The parser reads a file, line by line. Its tests run in a second!\n    def parse(text): return text.split('\\n')\n größe 漢字 123"
CHATML = """{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% generation %}{{ message.content }}{% endgeneration %}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEXTS = st.text(alphabet="abe \n\t.1é漢/'", max_size=60)
READ = ToolDefinition(
    name="read",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
CALL = ToolCall(id="abcdef123", name="read", arguments='{"path": "a.py"}')
CONVERSATION = (
    Message(role="system", content=("Be brief.",)),
    Message(role="user", content=("Fix the parser.",)),
    Message(role="assistant", content=("I read it.",), tool_calls=(CALL,)),
    Message(role="tool", content=("def parse",), tool_call_id="abcdef123"),
    Message(role="assistant", content=("Done.",)),
    Message(role="user", content=("Run the tests.",)),
)


def total(
    messages: Sequence[Message], tokenizer: Tokenizer, tools: Sequence[ToolDefinition] = ()
) -> int:
    system = any(message.role == "system" for message in messages)
    return tokenizer.count_overhead(tools, system=system).tokens + sum(
        count_message(message, tokenizer) for message in messages
    )


def as_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as chat templates take them."""
    written: list[dict[str, Any]] = []
    for message in messages:
        one: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            one["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.loads(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            one |= {"tool_call_id": message.tool_call_id, "name": "read"}
        written.append(one)
    return written


def train(pattern: str | None = None) -> Any:  # Any: `tokenizers` need not be installed
    """A small byte-level vocabulary, split as GPT-2's is, or by a pattern."""
    library: Any = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: it comes with the extra `huggingface`"
    )
    made = library.Tokenizer(library.models.BPE())
    level = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern:
        split = library.pre_tokenizers.Split(library.Regex(pattern), "isolated")
        level = library.pre_tokenizers.Sequence([split, level])
    made.pre_tokenizer = level
    trainer = library.trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    made.train_from_iterator([SAMPLE], trainer)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, as it is published."""
    made = train()
    made.enable_padding(length=64)  # as some are published
    made.enable_truncation(8)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": CHATML, "eos_token": {"content": "<|im_end|>"}})
    )
    return tmp_path


class TestHuggingFace:
    def test_text_is_counted_as_the_library_encodes_it(self, folder: Path) -> None:
        tokenizer = HuggingFaceTokenizer(folder)
        plain = train()
        for text in ("", "Fix the parser.", SAMPLE, SAMPLE * 50):
            assert tokenizer.count(text) == len(plain.encode(text).ids)
        assert tokenizer.count("<|im_end|>") > 1  # in the text of a user, it is text
        assert tokenizer.count("a\ud800b") > 2

    def test_a_conversation_costs_what_the_template_writes(self, folder: Path) -> None:
        tokenizer = HuggingFaceTokenizer(folder)
        plain, template = train(), tokenizer._template
        for messages in (CONVERSATION[:2], CONVERSATION[1:2], CONVERSATION):
            written = template.render(
                messages=as_chat(messages), tools=None, add_generation_prompt=True
            )
            assert total(messages, tokenizer) == len(plain.encode(written).ids)
        tools = [
            {
                "type": "function",
                "function": {
                    "name": READ.name,
                    "description": READ.description,
                    "parameters": READ.parameters,
                },
            }
        ]
        written = template.render(
            messages=as_chat(CONVERSATION), tools=tools, add_generation_prompt=True
        )
        assert total(CONVERSATION, tokenizer, [READ]) == len(plain.encode(written).ids)

    def test_a_render_fits_and_is_an_estimate_beside_text(self, folder: Path) -> None:
        tokenizer = HuggingFaceTokenizer(folder, name="small")
        rendered = render(
            (
                SystemMessage()["Be brief."],
                UserMessage()[
                    [TextChunk(priority=1)[f"line {number} of the file"] for number in range(50)]
                ],
            ),
            budget=300,
            tokenizer=tokenizer,
        )
        assert rendered.tokens == total(rendered.messages, tokenizer) <= 300
        assert not rendered.exact
        assert tokenizer.name == "small"

    def test_a_template_without_system_messages_counts_them_as_messages_of_the_user(self) -> None:
        template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}[{{ m.content }}]{% endfor %}"
        tokenizer = HuggingFaceTokenizer(train(), chat_template=template)
        assert tokenizer.count_framing("system") == tokenizer.count_framing("user") == (2, False)
        assert tokenizer.count_overhead(system=True).tokens == 0

    def test_without_a_template_a_message_costs_a_few_tokens_and_its_calls(self) -> None:
        tokenizer = HuggingFaceTokenizer(train())
        assert [
            tokenizer.count_framing(role).tokens for role in ("system", "user", "assistant", "tool")
        ] == [4, 4, 4, 4]
        call = tokenizer.count(json.dumps({"name": "read", "arguments": {"path": "a.py"}}))
        assert tokenizer.count_framing("assistant", tool_calls=[CALL]) == (4 + 4 + call, False)
        assert tokenizer.count_framing("assistant", tool_calls=[CALL, CALL]) == (
            4 + 2 * (4 + call),
            False,
        )
        written = {
            "name": "read",
            "description": READ.description,
            "parameters": READ.parameters,
        }
        tool = tokenizer.count(json.dumps({"type": "function", "function": written}))
        assert [tokenizer.count_overhead(tools).tokens for tools in ([], [READ], [READ, READ])] == [
            4,
            4 + (4 + tool),
            4 + 2 * (4 + tool),
        ]

    def test_parts_that_are_no_text_count_what_is_given_for_them_and_are_estimates(self) -> None:
        tokenizer = HuggingFaceTokenizer(train())
        image = ImagePart(url="https://a.b/c")
        assert tokenizer.count_part(image) == (1_600, False)
        assert tokenizer.count_part(
            DocumentPart(data="", media_type="application/pdf", tokens=8)
        ) == (8, False)
        assert tokenizer.count_part(OpaquePart(provider="chat", value={}, tokens=9)) == (9, False)
        assert tokenizer.count_part(DocumentPart(data="", media_type="application/pdf")) == (
            0,
            False,
        )
        thinking = OpaquePart(value={"thinking": "The parser reads."})
        assert tokenizer.count_part(thinking) == (tokenizer.count("The parser reads."), False)

    def test_what_a_template_writes_around_a_text_counts_only_beside_a_text(self) -> None:
        template = (
            "{% for m in messages %}{% if m.content %}[{{ m.content }}]{% endif %}"
            "{% for c in m.tool_calls or [] %}!{% endfor %}{% endfor %}"
        )
        tokenizer = HuggingFaceTokenizer(train(), chat_template=template)
        assert [
            tokenizer.count_framing("assistant", tool_calls=[CALL, CALL], text=text).tokens
            for text in (False, True, None)
        ] == [2, 4, 4]

    def test_what_a_vocabulary_adds_to_every_text_is_not_counted(self) -> None:
        library: Any = import_module("tokenizers")  # Any: as above
        plain, adding = train(), train()
        adding.post_processor = library.processors.TemplateProcessing(
            single="<|im_start|> $A <|im_end|>",
            special_tokens=[
                (each, adding.token_to_id(each)) for each in ("<|im_start|>", "<|im_end|>")
            ],
        )
        counts = [
            (
                tokenizer.count(SAMPLE),
                tokenizer.count_framing("user"),
                tokenizer.count_overhead([READ]),
            )
            for tokenizer in (
                HuggingFaceTokenizer(made, chat_template=CHATML) for made in (plain, adding)
            )
        ]
        assert counts[0] == counts[1]

    def test_a_template_finds_the_special_tokens_of_the_folder(self, folder: Path) -> None:
        template = (
            "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
        )
        (folder / "tokenizer_config.json").write_text(
            json.dumps(
                {
                    "chat_template": template,
                    "bos_token": "<|im_start|>",
                    "eos_token": {"content": "<|im_end|>"},
                    "unk_token": None,
                }
            )
        )
        tokenizer = HuggingFaceTokenizer(folder)
        assert tokenizer.count_framing("user").tokens == 1
        assert tokenizer.count_overhead().tokens == 1

    def test_a_template_that_writes_only_contents_has_no_framing(self) -> None:
        tokenizer = HuggingFaceTokenizer(
            train(), chat_template="{% for m in messages %}{{ m.content }}{% endfor %}"
        )
        assert [
            tokenizer.count_framing(role).tokens for role in ("system", "user", "assistant", "tool")
        ] == [0, 0, 0, 0]
        assert tokenizer.count_framing("assistant", tool_calls=[CALL]).tokens == 0

    def test_a_system_message_that_a_template_writes_where_there_is_none_counts_with_the_request(
        self,
    ) -> None:
        template = "{% if messages[0].role != 'system' %}(.){% endif %}{% for m in messages %}[{{ m.content }}]{% endfor %}"
        tokenizer = HuggingFaceTokenizer(train(), chat_template=template)
        assert tokenizer.count_overhead() == (tokenizer.count("(.)"), False)
        assert tokenizer.count_overhead(system=True) == tokenizer.count_overhead(system="Be brief.")
        assert (
            tokenizer.count_overhead(system=True).tokens + tokenizer.count_framing("system").tokens
            == tokenizer.count("[") * 2
        )

    def test_of_several_templates_the_default_is_taken(self, folder: Path) -> None:
        templates = [
            {"name": "tool_use", "template": "tool"},
            {"name": "default", "template": "default"},
        ]
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
        assert HuggingFaceTokenizer(folder)._template.render() == "default"

    def test_templates_are_rendered_as_transformers_does(self) -> None:
        template = "  {% for m in messages %}\n{{ m | tojson }}\n    {%- endfor %}\n"
        tokenizer = HuggingFaceTokenizer(train(), chat_template=template)
        assert tokenizer._template.render(messages=[{"b": "é", "a": 1}]) == '{"b": "é", "a": 1}'

    def test_a_template_may_take_arguments_as_text_or_no_calls(self) -> None:
        head = "{% for m in messages %}[{{ m.content }}"
        call = "{% for c in m.tool_calls or [] %}{{ c.function.name + ':' + c.function.arguments }}{% endfor %}"
        written = HuggingFaceTokenizer(train(), chat_template=head + call + "]{% endfor %}")
        assert written.count_framing("assistant", tool_calls=[CALL]).tokens == 2 + written.count(
            "read:" + CALL.arguments
        )
        refused = "{% if m.tool_calls %}{{ raise_exception('no tools') }}{% endif %}]{% endfor %}"
        without = HuggingFaceTokenizer(train(), chat_template=head + refused)
        assert without.count_framing("assistant", tool_calls=[CALL]).tokens > 10
        assert without.count_framing("tool", tool_call_id="c") == without.count_framing("user")

    def test_a_template_runs_in_a_sandbox(self) -> None:
        tokenizer = HuggingFaceTokenizer(train(), chat_template="{{ messages.append(1) }}")
        with pytest.raises(TokenizerError, match="chat template"):
            tokenizer.count_overhead()

    @pytest.mark.parametrize(
        "pattern",
        [
            None,
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    )
    def test_counts_add_up_at_its_safe_cuts(self, pattern: str | None) -> None:
        tokenizer = HuggingFaceTokenizer(train(pattern))
        cut = tokenizer.safe_cut
        assert cut is not None

        @settings(max_examples=examples(200))
        @given(TEXTS)
        def adds_up(text: str) -> None:
            for place in cut.finditer(text):
                assert tokenizer.count(text) == tokenizer.count(
                    text[: place.start()]
                ) + tokenizer.count(text[place.start() :])

        adds_up()

    def test_a_vocabulary_that_is_split_in_another_way_has_no_safe_cut(self) -> None:
        assert HuggingFaceTokenizer(train("a+")).safe_cut is None
        library: Any = import_module("tokenizers")  # Any: as above
        spaces = library.pre_tokenizers.Split(library.Regex(r"\s+(?!\S)|\S+"), "isolated")
        for splitter in (
            spaces,
            library.pre_tokenizers.Whitespace(),
            library.pre_tokenizers.ByteLevel(add_prefix_space=True),
        ):
            made = train()
            made.pre_tokenizer = splitter
            assert HuggingFaceTokenizer(made).safe_cut is None

    def test_one_step_that_splits_before_spaces_is_enough_and_one_that_adds_a_space_too_many(
        self, folder: Path
    ) -> None:
        library: Any = import_module("tokenizers")  # Any: as above
        steps = library.pre_tokenizers
        byte_level, whole = (
            steps.ByteLevel(add_prefix_space=False, use_regex=splits) for splits in (True, False)
        )
        words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"
        digits, letters = (
            steps.Split(library.Regex(each), "isolated") for each in (r"\p{N}{1,3}", words)
        )
        for sequence, is_cut in (
            ([byte_level, whole], True),
            ([digits, letters, whole], True),
            ([digits, whole], False),
            ([steps.ByteLevel(add_prefix_space=True), byte_level], False),
        ):
            made = train()
            made.pre_tokenizer = steps.Sequence(sequence)
            assert (HuggingFaceTokenizer(made).safe_cut is not None) == is_cut
        older = json.loads((folder / "tokenizer.json").read_text())
        assert older["pre_tokenizer"].pop("use_regex")
        (folder / "tokenizer.json").write_text(json.dumps(older))
        assert HuggingFaceTokenizer(folder).safe_cut is not None

    def test_a_vocabulary_that_changes_text_or_is_no_bpe_has_no_safe_cut(self) -> None:
        made = train()
        library: Any = import_module("tokenizers")  # Any: as above
        made.normalizer = library.normalizers.Lowercase()
        assert HuggingFaceTokenizer(made).safe_cut is None
        listed = library.Tokenizer(library.models.WordLevel({"x": 0}, "x"))
        listed.pre_tokenizer = train().pre_tokenizer
        assert HuggingFaceTokenizer(listed).safe_cut is None

    @pytest.mark.parametrize("keep", ["head", "tail"])
    def test_a_cut_fits(self, folder: Path, keep: Literal["head", "tail"]) -> None:
        tokenizer, text = HuggingFaceTokenizer(folder), SAMPLE * 200
        for tokens in (0, 1, 10, 1_000, 10**6):
            assert tokenizer.count(tokenizer.truncate(text, tokens, keep=keep)) <= tokens
        assert tokenizer.truncate(text, 10**6) == text

    def test_errors_say_what_to_give(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip(
            "tokenizers",
            reason="tokenizers is not installed: it comes with the extra `huggingface`",
        )
        with pytest.raises(TokenizerError, match=re.escape(str(tmp_path / "tokenizer.json"))):
            HuggingFaceTokenizer(tmp_path)
        with pytest.raises(TokenizerError, match="Nothing is downloaded by name"):
            HuggingFaceTokenizer("meta-llama/Llama-3.3-70B-Instruct")
        monkeypatch.setitem(import_module("sys").modules, "tokenizers", None)
        with pytest.raises(TokenizerError, match="tokenizers is not installed: run"):
            HuggingFaceTokenizer(tmp_path)


@pytest.fixture(scope="module")
def mistral() -> MistralTokenizer:
    pytest.importorskip(
        "mistral_common",
        reason="mistral-common is not installed: it comes with the extra `mistral`",
    )
    return MistralTokenizer()


class TestMistral:
    def test_text_is_counted_as_the_library_encodes_it(self, mistral: MistralTokenizer) -> None:
        for text in ("", "Fix the parser.", SAMPLE):
            assert mistral.count(text) == len(
                mistral._vocabulary.encode(text, bos=False, eos=False)
            )
        assert mistral.count("[INST]") > 1
        assert mistral.name == "mistral v3 Tekkenizer"

    @pytest.mark.parametrize(
        "messages",
        [CONVERSATION[1:2], CONVERSATION[:2], (*CONVERSATION[1:2], *CONVERSATION[4:])],
        ids=len,
    )
    def test_a_conversation_costs_what_the_library_encodes(
        self, mistral: MistralTokenizer, messages: Sequence[Message]
    ) -> None:
        encoded = len(
            mistral._chat.encode_chat_completion(
                mistral._requests.from_openai(messages=as_chat(messages))
            ).tokens
        )
        merged = messages[0].role == "system"  # the end of its text with the line breaks behind it
        assert total(messages, mistral) == encoded + merged

    def test_an_answer_costs_its_end_and_an_image_what_is_given(
        self, mistral: MistralTokenizer
    ) -> None:
        assert mistral.count_framing("assistant") == (1, False)
        assert mistral.count_part(ImagePart(url="https://a.b/c")) == (1_600, False)

    def test_tools_are_about_what_the_library_encodes(self, mistral: MistralTokenizer) -> None:
        tools: list[Any] = [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": READ.description,
                    "parameters": READ.parameters,
                },
            }
        ]
        messages = [
            attrs.evolve(message, content=()) if message.tool_calls else message
            for message in CONVERSATION
        ]
        request = mistral._requests.from_openai(messages=as_chat(messages), tools=tools)
        encoded = len(mistral._chat.encode_chat_completion(request).tokens)
        assert encoded <= total(messages, mistral, [READ]) <= encoded + 3

    def test_two_calls_with_their_results_are_about_what_the_library_encodes(
        self, mistral: MistralTokenizer
    ) -> None:
        calls = [attrs.evolve(CALL, id=f"abcdef12{number}") for number in range(2)]
        asked = Message(role="assistant", tool_calls=tuple(calls))
        answers = [
            Message(role="tool", content=("def parse",), tool_call_id=call.id) for call in calls
        ]
        messages = [CONVERSATION[1], asked, *answers]
        encoded = len(
            mistral._chat.encode_chat_completion(
                mistral._requests.from_openai(messages=as_chat(messages))
            ).tokens
        )
        assert encoded <= total(messages, mistral) <= encoded + 2 * 3

    def test_counts_add_up_at_its_safe_cuts(self, mistral: MistralTokenizer) -> None:
        cut = mistral.safe_cut
        assert cut is not None

        @settings(max_examples=examples(200))
        @given(TEXTS)
        def adds_up(text: str) -> None:
            for place in cut.finditer(text):
                assert mistral.count(text) == mistral.count(text[: place.start()]) + mistral.count(
                    text[place.start() :]
                )

        adds_up()

    def test_a_file_that_is_not_there_is_named(self) -> None:
        pytest.importorskip(
            "mistral_common",
            reason="mistral-common is not installed: it comes with the extra `mistral`",
        )
        with pytest.raises(TokenizerError, match=r"no file nowhere/tekken\.json"):
            MistralTokenizer("nowhere/tekken.json")
