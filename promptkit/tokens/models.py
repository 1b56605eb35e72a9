"""Models by name: their context window, their encoding, and how they count images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Protocol, TypeAlias

import attrs

from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.reprs import describe_fields
from promptkit.sizes import read_tokens
from promptkit.tokens.estimates import CalibratedTokenizer
from promptkit.tokens.images import ImageRule, find_image_rule
from promptkit.tokens.openai_tokenizer import CACHE_BYTES, CountCache, OpenAITokenizer
from promptkit.tokens.tokenizer import Tokenizer

DEFAULT_ENCODING = "o200k_base"

Row: TypeAlias = "tuple[int | None, int | None, int | None]"  # window, max input, max output
_NO_ROW: Row = (None, None, None)


CACHE_MINIMUM = 1_024
"""Tokens of the shortest prefix that a provider's prompt cache holds, where no source says otherwise."""


class NamedModel(Protocol):
    """A model object: anything with a `name`, such as `OpenAIModel("gpt-5")`."""

    @property
    def name(self) -> str:
        """The model's name, such as `gpt-5`."""
        ...


@attrs.frozen(kw_only=True)
class ModelInfo:
    """What promptkit knows about one model. All sizes are tokens, None where unknown."""

    name: str
    window: int | None = None
    """The context window: input and output together."""
    max_input: int | None = None
    """The most that the input alone may have, where that is less than the window."""
    max_output_tokens: int | None = None
    """The most that the model can write."""
    encoding: str = DEFAULT_ENCODING
    """The name of the encoding that counts its text."""
    images: ImageRule
    """The rule that counts images."""
    exact: bool = True
    """Whether text is counted exactly."""
    framing: bool = True
    """Whether the framing of messages is counted exactly as well."""
    margin: float = 1.0
    """The most tokens of the model for each token of `encoding`, where that is another model's: see
    `MARGINS`."""
    mean: float = 1.0
    """These tokens on average, as bills have them."""
    sees_images: bool = True
    """Whether the model is sent images and documents. False: a note in place of each."""
    cache_minimum: int = CACHE_MINIMUM
    """Tokens of the shortest prefix that the prompt cache of its provider holds."""

    __repr__ = describe_fields


MARGINS: tuple[tuple[re.Pattern[str], float, float], ...] = (
    # Claude 3 to 4.6, and all later ones: the tokenizer changed with Opus 4.7.
    (
        re.compile(
            r"claude-(?:instant|v?[123](?!\d)|(?:opus|sonnet|haiku)-4(?:$|[-.][0-6](?!\d)|[-@]20\d{6}|[-@:]latest))"
        ),
        1.45,
        1.21,
    ),
    (re.compile(r"claude"), 1.85, 1.57),
    (re.compile(r"gemini|gemma"), 1.15, 1.0),
    # Mistral's models up to 2024 have SentencePiece vocabularies of 32,768 tokens, all later ones
    # and Nemo have Tekken.
    (
        re.compile(
            r"mixtral|mistral-(?:7b|tiny)|codestral-(?:2[234]|22b|mamba)|mathstral|mistral-(?:small|medium|large)-2[34]"
        ),
        1.55,
        1.31,
    ),
    (re.compile(r"mistral|ministral|pixtral|codestral|devstral|magistral|voxtral"), 1.25, 1.1),
    (re.compile(r"code-?llama|llama-?2|vicuna|tinyllama"), 1.55, 1.32),
    (re.compile(r"llama"), 1.05, 0.99),
    (re.compile(r"deepseek"), 1.15, 1.04),
)
"""The margins of families whose text o200k_base counts, and the means: the first pattern that is found
in a model's name decides.

A mean is the family's tokens for a token of o200k_base, over pieces of 8,000 characters of recorded
agent conversations. A margin is the 95th percentile of these, rounded up to a multiple of 0.05; that
of a family with bills of its provider is above the highest of them. Budgets use the margin, so that a
request fits; bills use the mean. `python -m benchmarks.margins` measures them; docs/tokenizers.md has
the figures and their sources.
"""

CACHE_MINIMUMS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-(?:opus-4[-.][56]|haiku-4[-.]5)(?!\d)"), 4_096),
    (re.compile(r"claude-(?:opus-4[-.]7(?!\d)|3(?:[-.]5)?-haiku|haiku-3|mythos-preview)"), 2_048),
    (re.compile(r"claude-(?:opus|fable|mythos)-5(?!\d|[-.]\d(?!\d))"), 512),
)
"""The shortest cached prefixes of models that differ: the first pattern that is found in a model's name
decides. They are Anthropic's ("Prompt caching"); for what users see below them:
https://github.com/anthropics/anthropic-sdk-python, issues 1085 and 1194."""

_registered: dict[str, ModelInfo] = {}

_PROVIDER = re.compile(
    r"(?:(?:openrouter|openai|azure|azure_ai|anthropic|gemini|google|vertex_ai|models)/|ft:)+"
)
# The names of OpenAI's models, whether in the table or not.
_OPENAI = re.compile(
    r"gpt-|chatgpt-|chat-latest|o\d|codex-|computer-use|daybreak-|davinci-|babbage-|text-embedding-"
)
# tiktoken 0.14 does not know gpt-6, gpt-4.5, chat-latest and o5, and takes ft:gpt-4.1 for gpt-4, so
# these rules are promptkit's own.
_CL100K = re.compile(r"gpt-(?:3\.5|35)|gpt-4(?:$|[-:@])|text-embedding-|davinci-002|babbage-002")
_FRAMED = re.compile(
    r"gpt-(?:3\.5|35|4)|chatgpt-4o"
    # checked against bills, or of the same family; gpt-5 was once billed 1 less
    # (pydantic/pydantic-ai#3447)
)
_BLIND = re.compile(
    r"gpt-(?:3\.5|35)|gpt-4(?:-32k|-\d{4}(?:-preview)?)?$|gpt-4-32k|gpt-oss|o1-(?:mini|preview)|o3-mini|davinci-|babbage-|deepseek-(?:chat|reasoner|coder)"
)
"""The names of models that refuse images."""
_END = frozenset("-:@")  # between a model's name and a date or an organisation


def model_info(name: str) -> ModelInfo:
    """Return what is known about a model, from its registration, the table, or the longest name in the table that it starts with.

    Prefixes of providers (`openai/`, `azure/`, `ft:`) are ignored. An OpenAI name that is in no
    table gets what all OpenAI models have in common, and no window. Raises UnknownModelError for
    any other name.

    >>> model_info("openai/gpt-4o-2024-08-06").window
    128000
    """
    found = find_model(name)
    if found is not None:
        return found
    from difflib import get_close_matches

    near = get_close_matches(_strip_provider(name), list_models(), 3)
    meant = f": did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise UnknownModelError(name, f"No model {name!r} is known{meant}")


def find_model(name: str) -> ModelInfo | None:
    """Return what is known about a model, as `model_info` does, or None.

    It takes less time than the error, which names similar models.
    """
    base = _strip_provider(name)
    return _find(name) or (_describe(base) if _OPENAI.match(base) else None)


def describe_model(name: str) -> ModelInfo:
    """Return what is known about a model, as `model_info` does; of an unknown one what its name tells, and no sizes."""
    return _find(name) or _describe(_strip_provider(name))


def list_models() -> list[str]:
    """List the names of the models that are registered or in the table."""
    return [*_registered, *_table()]


def register_model(  # noqa: PLR0913  # the facts of a model, each with a default
    name: str,
    *,
    window: int | str | None = None,
    max_input: int | str | None = None,
    max_output_tokens: int | str | None = None,
    encoding: str | None = None,
    margin: float | None = None,
    images: ImageRule | None = None,
    sees_images: bool | None = None,
) -> ModelInfo:
    """Register a model for this process, or change what is known about one.

    Values that are not given come from the table.

    Args:
        name: The model's name.
        window: The context window in tokens, such as 32_000 or `"32k"`: input and output together.
        max_input: The most tokens that the input alone may have.
        max_output_tokens: The most tokens that the model can write.
        encoding: The name of its encoding. With one, counts of text are exact, unless there is a
            `margin`.
        margin: The model's tokens for each token of the encoding. Above 1.0, its tokenizer is a
            `CalibratedTokenizer`.
        images: The rule that counts images.
        sees_images: False: the model refuses images and documents, and is sent a note in place of
            each.

    Raises:
        InvalidArgumentError: A size or the margin is not positive.

    >>> register_model("my-model", window=32_000, encoding="o200k_base").window
    32000
    """
    window, max_input, max_output_tokens = (
        None if size is None else read_tokens(size)
        for size in (window, max_input, max_output_tokens)
    )
    for prop, value in (
        ("window", window),
        ("max_input", max_input),
        ("max_output_tokens", max_output_tokens),
        ("margin", margin),
    ):
        if value is not None and not value > 0:
            raise InvalidArgumentError(
                f"register_model({name!r}): {prop} must be positive, not {value}."
            )
    known = describe_model(name)
    _registered[_strip_provider(name)] = info = ModelInfo(
        name=name,
        window=window or known.window,
        max_input=max_input or known.max_input,
        max_output_tokens=max_output_tokens or known.max_output_tokens,
        encoding=encoding or known.encoding,
        images=images or known.images,
        exact=known.exact or encoding is not None,
        framing=known.framing,
        margin=margin or (1.0 if encoding else known.margin),
        mean=margin or (1.0 if encoding else known.mean),
        sees_images=known.sees_images if sees_images is None else sees_images,
        cache_minimum=known.cache_minimum,
    )
    return info


def model_name(model: str | NamedModel) -> str:
    """Return the name of a model that is given by its name or as an object.

    Raises TypeError for anything else.
    """
    name: object = model if isinstance(model, str) else getattr(model, "name", None)
    if not isinstance(name, str):
        raise TypeError(
            f"model must be a model's name such as 'gpt-5', or a model object such as OpenAIModel('gpt-5', client=…), not {model!r:.80}."
        )
    return name


def tokenizer_for(model: str | NamedModel | None, *, mean: bool = False) -> Tokenizer:
    """Return the tokenizer of a model: the same object for all models that count alike.

    None means o200k_base with OpenAI's chat framing. For models of other providers, and for unknown
    names, the counts are estimates (`Count.exact` is False): those of o200k_base, raised by the
    margin of the family where one was measured, as for Claude, Gemini, Mistral, Llama and DeepSeek.
    Where a vocabulary is public, `HuggingFaceTokenizer` or `MistralTokenizer` counts exactly. The
    tokenizer raises TokenizerError at its first count if its vocabulary is not available.

    With `mean`, the margin is the family's mean, for what a provider bills: a count that is too high
    as often as too low, where a budget needs one that is seldom too low.
    """
    if model is None:
        return _tokenizer(DEFAULT_ENCODING, find_image_rule(""), exact=True)
    info = describe_model(model_name(model))
    margin = info.mean if mean else info.margin
    if margin != 1:
        return _calibrated(info.encoding, info.images, margin)
    return _tokenizer(info.encoding, info.images, exact=info.exact and info.framing)


def _find(name: str) -> ModelInfo | None:
    base = _strip_provider(name)
    # From the whole name to its shortest prefix, so that the longest name wins.
    for end in (len(base), *(at for at in range(len(base) - 1, 0, -1) if base[at] in _END)):
        start = base[:end]
        if start in _registered:
            return _registered[start]
        if start in _table():
            return _describe(start, _table()[start])
    return None


def _describe(name: str, row: Row = _NO_ROW) -> ModelInfo:
    """Return what the table and the name tell of a model."""
    is_openai = _OPENAI.match(name) is not None
    margin, mean = next(
        (row[1:] for row in MARGINS if not is_openai and row[0].search(name.lower())), (1.0, 1.0)
    )
    return ModelInfo(
        name=name,
        window=row[0],
        max_input=row[1],
        max_output_tokens=row[2],
        encoding="o200k_harmony"
        if name.startswith("gpt-oss")
        else "cl100k_base"
        if _CL100K.match(name)
        else DEFAULT_ENCODING,
        images=find_image_rule(name),
        exact=is_openai and row is not _NO_ROW,
        framing=is_openai and _FRAMED.match(name) is not None,
        margin=margin,
        mean=mean,
        sees_images=_BLIND.match(name) is None,
        cache_minimum=next(
            (tokens for family, tokens in CACHE_MINIMUMS if family.search(name.lower())),
            CACHE_MINIMUM,
        ),
    )


def _strip_provider(name: str) -> str:
    """Return a name without its provider, and that of a fine-tuned model without its organisation (`ft:gpt-4o:acme::id`)."""
    match = _PROVIDER.match(name)
    base = name[match.end() :] if match else name
    if match and match.group().endswith("ft:"):
        base = base.partition(":")[0]
    return base.replace("gpt-35-", "gpt-3.5-")  # Azure


@cache
def _table() -> Mapping[str, Row]:
    import json
    from importlib.resources import files

    return {
        name: (row[0], row[1], row[2])
        for name, row in json.loads(
            files("promptkit.tokens").joinpath("models.json").read_text(encoding="utf-8")
        )["models"].items()
    }


@cache
def _counts(_encoding: str) -> CountCache:
    return CountCache(CACHE_BYTES)


@cache
def _tokenizer(encoding: str, images: ImageRule, *, exact: bool) -> OpenAITokenizer:
    return OpenAITokenizer(encoding, images=images, exact=exact, cache=_counts(encoding))


@cache
def _calibrated(encoding: str, images: ImageRule, margin: float) -> CalibratedTokenizer:
    return CalibratedTokenizer(_tokenizer(encoding, images, exact=False), margin)
