"""What is known of models by name: their window, their encoding, how they count images."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import attrs

from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.tokens.counter import TextCounter
from promptkit.tokens.images import ImageRule, image_rule
from promptkit.tokens.openai_tokenizer import OpenAITokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_ENCODING",
    "ModelInfo",
    "NamedModel",
    "encoding_for",
    "model_info",
    "model_name",
    "register_model",
    "tokenizer_for",
]

DEFAULT_ENCODING = "o200k_base"

Row: TypeAlias = "tuple[int | None, int | None, int | None]"  # window, max input, max output
_NO_ROW: Row = (None, None, None)


class NamedModel(Protocol):
    """A model object: anything with a `name`, such as `OpenAIModel("gpt-5")`."""

    @property
    def name(self) -> str:
        """The model's name, such as `gpt-5`."""
        ...


@attrs.frozen(kw_only=True)
class ModelInfo:
    """What is known of one model. All sizes are tokens; None where unknown.

    `window` holds input and output together. `max_input` is what the input alone may have, where that is less. `exact` says that
    the model's text is counted exactly, `framing` that what stands around the text is as well.
    """

    name: str
    window: int | None = None
    max_input: int | None = None
    max_output_tokens: int | None = None
    encoding: str = DEFAULT_ENCODING
    images: ImageRule
    exact: bool = True
    framing: bool = True


_registered: dict[str, ModelInfo] = {}

_PROVIDER = re.compile(r"(?:(?:openrouter|openai|azure|azure_ai|anthropic|gemini|google|vertex_ai|models)/|ft:)+")
# The name of a model of OpenAI's, in the table or not.
_OPENAI = re.compile(r"gpt-|chatgpt-|chat-latest|o\d|codex-|computer-use|daybreak-|davinci-|babbage-|text-embedding-")
# tiktoken 0.14 knows none of gpt-6, gpt-4.5, chat-latest and o5, and takes ft:gpt-4.1 for gpt-4: these rules are promptkit's own.
_CL100K = re.compile(r"gpt-(?:3\.5|35)|gpt-4(?:$|[-:@])|text-embedding-|davinci-002|babbage-002")
_FRAMED = re.compile(
    r"gpt-(?:3\.5|35|4)|chatgpt-4o"
)  # checked against bills, or sisters of what was; gpt-5 was once billed 1 less (pydantic/pydantic-ai#3447)
_END = frozenset("-:@")  # behind the name of a model, before a date or an organisation


def model_info(name: str) -> ModelInfo:
    """What is known of a model: as registered, as in the table, or as for the longest name in the table that it starts with.

    Prefixes of providers (`openai/`, `azure/`, `ft:`) do not matter. A name of OpenAI's that is in no table gets what all its
    models have in common, and no window. Raises UnknownModelError for any other name.
    """
    found = _find(name)
    if found is not None:
        return found
    plain = _plain(name)
    if _OPENAI.match(plain):
        return _openai(plain, _NO_ROW)
    from difflib import get_close_matches

    near = get_close_matches(plain, [*_registered, *_table()], 3)
    message = (
        f"No model {name!r} is known{': did you mean ' + ' or '.join(map(repr, near)) + '?' if near else '.'} "
        f"Give the render a `budget`, or say what it is with register_model({name!r}, window=…)."
    )
    raise UnknownModelError(message)


def register_model(  # noqa: PLR0913  # what can be known of a model
    name: str,
    *,
    window: int | None = None,
    max_input: int | None = None,
    max_output_tokens: int | None = None,
    encoding: str | None = None,
    images: ImageRule | None = None,
) -> ModelInfo:
    """Say what a model is, for this process: what is given wins over the table, the rest stays as the table has it.

    Sizes are tokens. With an `encoding` its text counts as exact. Raises InvalidArgumentError for a size that is not positive.
    """
    for prop, value in (("window", window), ("max_input", max_input), ("max_output_tokens", max_output_tokens)):
        if value is not None and not value > 0:
            message = f"register_model({name!r}): {prop} must be positive, not {value}."
            raise InvalidArgumentError(message)
    known = _find(name) or _estimate(_plain(name))
    info = _registered[_plain(name)] = ModelInfo(
        name=name,
        window=window or known.window,
        max_input=max_input or known.max_input,
        max_output_tokens=max_output_tokens or known.max_output_tokens,
        encoding=encoding or known.encoding,
        images=images or known.images,
        exact=known.exact or encoding is not None,
        framing=known.framing,
    )
    return info


def model_name(model: str | NamedModel) -> str:
    """Return the name of a model that is given by its name or as an object. Raises TypeError for anything else."""
    name: object = model if isinstance(model, str) else getattr(model, "name", None)
    if not isinstance(name, str):
        message = f"model must be a model's name such as 'gpt-5', or an object with a `name`, not {model!r:.80}."
        raise TypeError(message)
    return name


def tokenizer_for(model: str | NamedModel | None) -> OpenAITokenizer:
    """The tokenizer of a model; one and the same for all models that count alike.

    None is o200k_base with OpenAI's chat framing. For models that are not OpenAI's, and for unknown names, its counts are an
    estimate, and flagged so. Raises TokenizerError when it first counts and no vocabulary is at hand.
    """
    if model is None:
        return _tokenizer(DEFAULT_ENCODING, image_rule(""), exact=True)
    name = model_name(model)
    info = _find(name) or _estimate(_plain(name))
    return _tokenizer(info.encoding, info.images, exact=info.exact and info.framing)


def encoding_for(name: str) -> str:
    """The encoding of a model of OpenAI's, by its name without prefixes."""
    if name.startswith("gpt-oss"):
        return "o200k_harmony"
    return "cl100k_base" if _CL100K.match(name) else DEFAULT_ENCODING


def _find(name: str) -> ModelInfo | None:
    plain = _plain(name)
    if plain in _registered:
        return _registered[plain]
    table = _table()
    # From the whole name to its shortest start, so that the longest name wins.
    ends = [len(plain), *(place for place in range(len(plain) - 1, 0, -1) if plain[place] in _END)]
    for end in ends:
        start = plain[:end]
        if start in _registered:
            return _registered[start]
        if start in table:
            return _openai(start, table[start]) if _OPENAI.match(start) else _other(start, table[start])
    return None


def _estimate(plain: str) -> ModelInfo:
    return _openai(plain, _NO_ROW) if _OPENAI.match(plain) else _other(plain, _NO_ROW)


def _openai(name: str, row: Row) -> ModelInfo:
    return ModelInfo(
        name=name,
        window=row[0],
        max_input=row[1],
        max_output_tokens=row[2],
        encoding=encoding_for(name),
        images=image_rule(name),
        exact=row is not _NO_ROW,
        framing=_FRAMED.match(name) is not None,
    )


def _other(name: str, row: Row) -> ModelInfo:
    window, max_input, max_output_tokens = row
    return ModelInfo(
        name=name, window=window, max_input=max_input, max_output_tokens=max_output_tokens, images=image_rule(name), exact=False, framing=False
    )


def _plain(name: str) -> str:
    """A name without its provider, and a fine-tuned one without its organisation (`ft:gpt-4o:acme::id`)."""
    match = _PROVIDER.match(name)
    plain = name[match.end() :] if match else name
    if match and match.group().endswith("ft:"):
        plain = plain.partition(":")[0]
    return plain.replace("gpt-35-", "gpt-3.5-")  # Azure


@cache
def _table() -> Mapping[str, Row]:
    import json
    from importlib.resources import files

    data = json.loads(files("promptkit.tokens").joinpath("models.json").read_text(encoding="utf-8"))
    return cast("Mapping[str, Row]", {name: tuple(row) for name, row in data["models"].items()})  # this package's own file


@cache
def _counter(encoding: str) -> TextCounter:
    return TextCounter(encoding)


@cache
def _tokenizer(encoding: str, images: ImageRule, *, exact: bool) -> OpenAITokenizer:
    return OpenAITokenizer(encoding, images=images, exact=exact, counter=_counter(encoding))
