"""Tokenizers of models whose vocabulary is public, and their chat templates: Hugging Face's `tokenizers`, and `mistral-common`.

Text is counted exactly. What a message costs around its text is measured: sample conversations are
written with the model's own chat template, with and without the message. Content that merges with
the template's text may cost a token less than that, so `Count.exact` is False.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from promptkit.errors import TokenizerError
from promptkit.messages import (
    DocumentPart,
    ImagePart,
    Json,
    OpaquePart,
    Role,
    ToolCall,
    ToolDefinition,
)
from promptkit.tokens.encodings import replace_surrogates
from promptkit.tokens.openai_tokenizer import CACHE_BYTES, CUT_BEFORE_SPACE, SAFE_CUT, CountCache
from promptkit.tokens.tokenizer import (
    IMAGE_TOKENS,
    Count,
    Tokenizer,
    count_opaque,
    truncate_by_counting,
)
from promptkit.tokens.tool_schemas import read_object

if TYPE_CHECKING:
    import re
    from types import ModuleType

    from jinja2 import Template


_TOKENIZERS_HINT = "run `pip install 'tokenizers>=0.21'`, or `pip install '.[huggingface]'` in a checkout of promptkit"
_MISTRAL_HINT = "run `pip install 'mistral-common>=1.8'`, or `pip install '.[mistral]'` in a checkout of promptkit"

_TEXT = "x"  # the content of sample messages
# tokens of a message without a chat template, as OpenAI counts them, and of the start of the reply
_FRAME = 4
_SYSTEM: Mapping[str, Json] = {"role": "system", "content": _TEXT}
_USER: Mapping[str, Json] = {"role": "user", "content": _TEXT}
_ASSISTANT: Mapping[str, Json] = {"role": "assistant", "content": _TEXT}


class _TemplateTokenizer(Tokenizer):
    """Counts text with a vocabulary, and framing by writing sample conversations with a chat template."""

    def __init__(self) -> None:
        self._cache = CountCache(CACHE_BYTES)
        self._measured: dict[str, int] = {}

    @abstractmethod
    def _count(self, text: str) -> int:
        """Count the tokens of a text, without looking into the cache."""

    @abstractmethod
    def _measure(
        self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Mapping[str, Json]] = ()
    ) -> int:
        """Count the tokens of a conversation that ends with a user message or a tool result, and of the start of the reply."""

    @abstractmethod
    def _measure_assistant(self) -> int:
        """Count what an assistant message has apart from its content."""

    @abstractmethod
    def _measure_calls(self, calls: Sequence[Mapping[str, Json]], content: str) -> int:
        """Count what tool calls and the frame of their message have, apart from its content."""

    @abstractmethod
    def _measure_result(self) -> int:
        """Count what a tool result has apart from its content."""

    def count(self, text: str) -> int:
        """Count the tokens of a text.

        Text that looks like a special token counts as text. Counts are cached.
        """
        tokens = self._cache.counts.get(text)
        if tokens is None:
            tokens = self._count(text)
            self._cache.put(text, tokens)
        return tokens

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Return a head or tail of at most `tokens`.

        Only about three times its length is counted.
        """
        return truncate_by_counting(text, tokens, self._count, keep=keep)

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """Measure the tokens of a message apart from its content.

        Chat templates do not write names, and few write ids of tool calls.
        """
        if tool_calls:
            calls, content = list(map(_write_call, tool_calls)), "" if text is False else _TEXT
            return Count(self._measure_calls(calls, content), exact=False)
        tokens = self._measured.get(role)
        if tokens is None:
            tokens = self._measured[role] = max(0, self._measure_role(role))
        return Count(tokens, exact=False)

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count a part that is not text: by its `tokens`, an image as 1,600 tokens, or an opaque part by the text in it."""
        match part:
            case ImagePart():
                return Count(IMAGE_TOKENS, exact=False)
            case OpaquePart():
                return Count(count_opaque(part, self.count).tokens, exact=False)
            case DocumentPart():
                return Count(part.tokens or 0, exact=False)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Measure the tokens of a request apart from its messages: what the template writes around them, and tool definitions."""
        definitions = [_write_definition(tool) for tool in tools]
        frames = self.count_framing("user").tokens + self.count(_TEXT)
        messages = [_USER]
        # A template may write a system message of its own where there is none, or tools into that
        # message.
        if system is not False and self._has_system:
            frames += self.count_framing("system").tokens + self.count(_TEXT)
            messages = [_SYSTEM, _USER]
        return Count(max(0, self._measure(messages, definitions) - frames), exact=False)

    @cached_property
    def _has_system(self) -> bool:
        """True if the template accepts system messages.

        Otherwise they are counted as user messages.
        """
        with suppress(TokenizerError):
            return self._measure([_SYSTEM, _USER]) > 0
        return False

    def _measure_role(self, role: Role) -> int:
        text = self.count(_TEXT)
        match role:
            case "assistant":
                return self._measure_assistant()
            case "tool":
                return self._measure_result()
            case "system" if self._has_system:
                return self._measure([_SYSTEM, _USER]) - self._measure([_USER]) - text
            case _:
                return (
                    self._measure([_USER, _ASSISTANT, _USER])
                    - self._measure([_USER])
                    - self._measure_assistant()
                    - 2 * text
                )


class HuggingFaceTokenizer(_TemplateTokenizer):
    """Counts with a `tokenizer.json` of Hugging Face, and with the model's chat template.

    Needs the package `tokenizers`.

    Nothing is downloaded: take `tokenizer.json` and `tokenizer_config.json` from the model's
    repository once.

    Args:
        tokenizer: The folder of the model, its `tokenizer.json`, or a `tokenizers.Tokenizer`.
        chat_template: The chat template, in Jinja. By default that of the folder, in
            `chat_template.jinja` or `tokenizer_config.json`. Without any, a message counts 4 tokens
            beside its texts.
        tokens: What the template calls `bos_token`, `eos_token` and so on. By default those of
            `tokenizer_config.json`.
        name: The name that receipts and errors show. By default that of the folder.

    Raises:
        TokenizerError: `tokenizers` is not installed, or there is no such file.

    >>> HuggingFaceTokenizer("models/Llama-3.3-70B-Instruct").count("Fix the parser.")
    """

    def __init__(
        self,
        tokenizer: object,
        *,
        chat_template: str | None = None,
        tokens: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        library = _import_package("tokenizers", _TOKENIZERS_HINT)
        folder, definition = _read_tokenizer(tokenizer)
        template, named = _read_config(folder)
        # Any: the packages need not be installed, so their types are unknown. Copies, since options
        # are kept in the object.
        self._text: Any = library.Tokenizer.from_str(definition)
        self._text.encode_special_tokens = True
        self._chat: Any = library.Tokenizer.from_str(definition)  # Any: as above
        for each in (self._text, self._chat):
            each.no_truncation()
            each.no_padding()
        self._name = name or (folder.name if folder else "tokenizers")
        template = chat_template or template
        # Any: of jinja2, imported late
        self._template: Any = _compile_template(template) if template else None
        self._variables = {**named, **(tokens or {})}
        self._safe_cut = CUT_BEFORE_SPACE if _cuts_before_spaces(json.loads(definition)) else None

    @property
    def name(self) -> str:
        """Return the name of the folder, or the one that was given."""
        return self._name

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Match before a single space between two words, for the byte-level vocabularies that are split as GPT's are; else None."""
        return self._safe_cut

    def _count(self, text: str) -> int:
        return len(
            self._text.encode_batch_fast([replace_surrogates(text)], add_special_tokens=False)[0]
        )

    def _measure_assistant(self) -> int:
        return self._measure_more([_USER], _ASSISTANT) - self.count(_TEXT)

    def _measure_calls(self, calls: Sequence[Mapping[str, Json]], content: str) -> int:
        # Most templates take arguments as an object, some as text, and some take no calls.
        for written in (
            (calls, [_write_arguments(call) for call in calls]) if self._template else ()
        ):
            message: dict[str, Json] = {
                "role": "assistant",
                "content": content,
                "tool_calls": list(written),
            }
            with suppress(TokenizerError):
                return max(0, self._measure_more([_USER], message) - self.count(content))
        return _FRAME * (1 + len(calls)) + sum(
            self.count(json.dumps(call["function"])) for call in calls
        )

    def _measure_result(self) -> int:
        call = ToolCall(id="call00000", name=_TEXT)
        asked: list[Mapping[str, Json]] = [
            _USER,
            {"role": "assistant", "content": "", "tool_calls": [_write_call(call)]},
        ]
        result: Mapping[str, Json] = {
            "role": "tool",
            "name": _TEXT,
            "tool_call_id": "call00000",
            "content": _TEXT,
        }
        try:
            return self._measure_more(asked, result) - self.count(_TEXT)
        except TokenizerError:  # the template has no tools
            return self.count_framing("user").tokens

    def _measure_more(
        self, messages: Sequence[Mapping[str, Json]], message: Mapping[str, Json]
    ) -> int:
        """Count what one more message adds to a conversation."""
        return self._measure([*messages, message], reply=False) - self._measure(
            messages, reply=False
        )

    def _measure(
        self,
        messages: Sequence[Mapping[str, Json]],
        tools: Sequence[Mapping[str, Json]] = (),
        *,
        reply: bool = True,
    ) -> int:
        if self._template is None:
            texts = [str(message["content"]) for message in messages] + [
                json.dumps(tool) for tool in tools
            ]
            return (
                sum(map(self.count, texts)) + _FRAME * (len(messages) + len(tools)) + _FRAME * reply
            )
        import jinja2

        try:
            written = self._template.render(
                messages=messages,
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=reply,
                **self._variables,
            )
        except (jinja2.TemplateError, TypeError, KeyError) as error:
            raise TokenizerError(
                f"The chat template of {self.name} does not take {json.dumps(messages):.200}: {error}"
            ) from error
        return len(self._chat.encode(written, add_special_tokens=False))


class MistralTokenizer(_TemplateTokenizer):
    """Counts as Mistral's models do.

    Needs the package `mistral-common`, which has the vocabularies up to 2024 in it.

    Args:
        tokenizer: A `MistralTokenizer` of `mistral_common`, or the model's `tekken.json` or
            `tokenizer.model`. By default Tekken, as of Mistral Nemo; later models have a
            `tekken.json` in their repository.

    Raises:
        TokenizerError: `mistral-common` is not installed, or there is no such file.

    >>> MistralTokenizer("models/Mistral-Small-3.2/tekken.json").count("Fix the parser.")
    """

    def __init__(self, tokenizer: object = None) -> None:
        super().__init__()
        library = _import_package("mistral_common.tokens.tokenizers.mistral", _MISTRAL_HINT)
        if tokenizer is None:
            tokenizer = library.MistralTokenizer.v3(is_tekken=True)
        elif isinstance(tokenizer, str | Path):
            if not Path(tokenizer).is_file():
                raise TokenizerError(
                    f"There is no file {tokenizer}: give the model's tekken.json or tokenizer.model."
                )
            tokenizer = library.MistralTokenizer.from_file(str(tokenizer))
        chat: Any = tokenizer  # Any: as above
        self._chat = chat
        self._vocabulary = chat.instruct_tokenizer.tokenizer
        self._requests = _import_package(
            "mistral_common.protocol.instruct.request", _MISTRAL_HINT
        ).ChatCompletionRequest
        self._refusals = _import_package(
            "mistral_common.exceptions", _MISTRAL_HINT
        ).MistralCommonException

    @property
    def name(self) -> str:
        """Return the version of the vocabulary, such as `mistral v3 Tekkenizer`."""
        return f"mistral {self._vocabulary.version.value} {type(self._vocabulary).__name__}"

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Match where o200k_base's counts add up, too, for Tekken, which splits text as o200k_base does; None for SentencePiece."""
        return SAFE_CUT if type(self._vocabulary).__name__ == "Tekkenizer" else None

    def _count(self, text: str) -> int:
        return len(self._vocabulary.encode(replace_surrogates(text), bos=False, eos=False))

    def _measure(
        self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Mapping[str, Json]] = ()
    ) -> int:
        request = self._requests.from_openai(
            messages=[dict(message) for message in messages], tools=list(tools) or None
        )
        try:
            return len(self._chat.encode_chat_completion(request).tokens)
        except self._refusals as error:
            raise TokenizerError(
                f"{self.name} does not take {json.dumps(messages):.200}: {error}"
            ) from error

    def _measure_assistant(self) -> int:
        return 1  # the end of the message, in every version

    def _measure_calls(self, calls: Sequence[Mapping[str, Json]], content: str) -> int:
        # mistral-common takes only ids of nine letters, no conversation that ends with calls, and
        # before v7 no text beside them.
        named: list[Json] = [
            {**call, "id": f"call{number:05}"} for number, call in enumerate(calls)
        ]
        results = [
            {"role": "tool", "tool_call_id": f"call{number:05}", "content": _TEXT}
            for number in range(len(calls))
        ]
        message: dict[str, Json] = {"role": "assistant", "content": "", "tool_calls": named}
        started = self._measured.setdefault("", self._measure([_USER]))
        answered = self._measure_result() + self.count(_TEXT)
        return max(0, self._measure([_USER, message, *results]) - started - answered * len(calls))

    def _measure_result(self) -> int:
        # both are framed by two tokens; what is left counts with the call
        return self.count_framing("user").tokens


def _write_call(call: ToolCall) -> dict[str, Json]:
    """Write a tool call as chat templates take it, with arguments as an object."""
    try:
        arguments: Json = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = {"arguments": call.arguments}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _write_arguments(call: Mapping[str, Json]) -> dict[str, Json]:
    """Return a tool call with its arguments as text."""
    function = read_object(call["function"])
    return {**call, "function": {**function, "arguments": json.dumps(function.get("arguments"))}}


def _write_definition(tool: ToolDefinition) -> dict[str, Json]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": dict(tool.parameters or {"type": "object", "properties": {}}),
        },
    }


def _import_package(module: str, hint: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise TokenizerError(
            f"The package {module.partition('.')[0]} is not installed: {hint}."
        ) from error


def _read_tokenizer(tokenizer: object) -> tuple[Path | None, str]:
    """Return the folder of a tokenizer, if it has one, and its definition as JSON."""
    if not isinstance(tokenizer, str | Path):
        return None, str(methodcaller("to_str")(tokenizer))
    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise TokenizerError(
            f"There is no file {file}: give the model's tokenizer.json, or the folder with it. Nothing is downloaded by name."
        )
    return file.parent, file.read_text(encoding="utf-8")


def _read_config(folder: Path | None) -> tuple[str | None, dict[str, str]]:
    """Read the chat template and the names of special tokens from `tokenizer_config.json` and `chat_template.jinja`."""
    if folder is None:
        return None, {}
    config, jinja = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    # Any stands for JSON
    data: dict[str, Any] = (
        json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    )
    template = jinja.read_text(encoding="utf-8") if jinja.is_file() else data.get("chat_template")
    if not isinstance(template, str | None):  # several, each with a name
        template = next(
            (str(each["template"]) for each in template if each["name"] == "default"), None
        )
    # A token is written as its text, or with its options.
    named = {
        key: getattr(value, "get", {"content": value}.get)("content")
        for key, value in data.items()
        if key.endswith("_token")
    }
    return template, {key: text for key, text in named.items() if isinstance(text, str)}


def _compile_template(template: str) -> Template:
    """Compile a chat template in a sandbox, with what transformers' own templates may use."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(problem: str) -> None:
        raise TemplateError(problem)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    # A tag of transformers that marks what the assistant writes, and writes nothing itself.
    plain = (
        template.replace("endgeneration", "endif")
        .replace("{% generation", "{% if true")
        .replace("{%- generation", "{%- if true")
    )
    return environment.from_string(
        plain,
        globals={
            "raise_exception": refuse,
            "strftime_now": _format_now,
        },
    )


def _format_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _cuts_before_spaces(definition: Mapping[str, Any]) -> bool:  # Any: JSON
    """Return whether a vocabulary is split before each single space between words: byte-level BPE with a pattern like GPT's."""
    if definition["model"].get("type") != "BPE" or definition.get("normalizer"):
        return False
    splitter: dict[str, Any] = definition.get("pre_tokenizer") or {}  # Any: JSON
    steps: list[dict[str, Any]] = splitter.get("pretokenizers", [splitter])  # as above
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    if not byte_level or any(step.get("add_prefix_space") for step in byte_level):
        return False
    return any(step.get("use_regex", True) for step in byte_level) or any(
        r"\\s+(?!\\S)" in str(step["pattern"]) for step in steps if step.get("type") == "Split"
    )
