# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import pytest

from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.tokens import CalibratedTokenizer, OpenAITokenizer, count_request, models
from promptkit.tokens.images import PatchImages, TileImages
from promptkit.tokens.models import (
    ModelInfo,
    describe_model,
    model_info,
    register_model,
    tokenizer_for,
)

if TYPE_CHECKING:
    from promptkit.messages import Json


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_registered", {})


class TestWindows:
    @pytest.mark.parametrize(
        ("name", "window", "max_input", "max_output_tokens"),
        [
            ("gpt-4o", 128_000, None, 16_384),
            ("gpt-4", 8_192, None, 4_096),
            ("gpt-4.1", 1_047_576, None, 32_768),
            ("o3", 200_000, None, 100_000),
            ("gpt-5", 400_000, 272_000, 128_000),
            ("gpt-5.1-codex", 400_000, 272_000, 128_000),
            ("gpt-5.4", 1_050_000, 922_000, 128_000),
            ("gpt-6-astra", 1_050_000, 922_000, 128_000),
            ("gpt-4.5-preview", 128_000, None, 16_384),
            ("claude-sonnet-4-5", 200_000, None, 64_000),
            ("gemini-2.5-pro", 1_114_112, 1_048_576, 65_536),
        ],
    )
    def test_window_and_input_are_told_apart(
        self, name: str, window: int, max_input: int | None, max_output_tokens: int
    ) -> None:
        info = model_info(name)
        assert (info.window, info.max_input, info.max_output_tokens) == (
            window,
            max_input,
            max_output_tokens,
        )


class TestNames:
    @pytest.mark.parametrize(
        ("name", "plain"),
        [
            ("openai/gpt-4o", "gpt-4o"),
            ("azure/gpt-35-turbo", "gpt-3.5-turbo"),
            ("openrouter/anthropic/claude-opus-4-6", "claude-opus-4-6"),
            ("ft:gpt-4.1-mini:acme::abc", "gpt-4.1-mini"),
            ("ft:gpt-4o-2024-08-06:acme:suffix:id", "gpt-4o-2024-08-06"),
            ("gpt-5-mini-2031-01-01", "gpt-5-mini"),
            ("gpt-4-something", "gpt-4"),
        ],
    )
    def test_the_longest_name_in_the_table_decides(self, name: str, plain: str) -> None:
        assert model_info(name).name == plain

    @pytest.mark.parametrize("name", ["gpt-5.99", "o5", "gpt-7-turbo", "chatgpt-next"])
    def test_an_unknown_model_of_openais_has_no_window_and_is_estimated(self, name: str) -> None:
        info = model_info(name)
        assert (info.window, info.encoding, info.exact) == (None, "o200k_base", False)

    def test_a_misspelt_name_is_answered_with_near_ones(self) -> None:
        with pytest.raises(
            UnknownModelError,
            match=r"No model 'gtp-4o' is known: did you mean 'gpt-4o'.*register_model\('gtp-4o', window=…\)",
        ):
            model_info("gtp-4o")

    def test_three_near_names_are_suggested_at_most(self) -> None:
        for at in range(5):
            register_model(f"acme-large-{at}", window=1)
        with pytest.raises(UnknownModelError, match=r"did you mean ('\S+' or ){2}'\S+'\?"):
            model_info("acme_large_1")

    @pytest.mark.parametrize("name", ["q", "q-", "q-large", "q:8b", "q@2031"])
    def test_a_name_ends_where_its_date_or_size_begins_also_a_name_of_one_letter(
        self, name: str
    ) -> None:
        register_model("q", window=32_000)
        assert model_info(name).window == 32_000

    def test_sizes_of_one_model_are_told_apart(self) -> None:
        register_model("acme:8b", window=8_000)
        register_model("acme:70b", window=70_000)
        assert [model_info(f"acme:{size}").window for size in ("8b", "70b")] == [8_000, 70_000]


class TestEncodings:
    @pytest.mark.parametrize(
        ("name", "encoding"),
        [
            ("gpt-4", "cl100k_base"),
            ("gpt-4-0613", "cl100k_base"),
            ("gpt-4-turbo", "cl100k_base"),
            ("gpt-3.5-turbo", "cl100k_base"),
            ("ft:gpt-3.5-turbo:acme::x", "cl100k_base"),
            ("text-embedding-3-small", "cl100k_base"),
            ("ft:gpt-4.1-mini:acme::x", "o200k_base"),
            ("gpt-4.5-preview", "o200k_base"),
            ("gpt-4o", "o200k_base"),
            ("gpt-6-sol", "o200k_base"),
            ("chat-latest", "o200k_base"),
            ("gpt-oss-120b", "o200k_harmony"),
        ],
    )
    def test_each_family_has_its_own(self, name: str, encoding: str) -> None:
        assert model_info(name).encoding == encoding
        assert tokenizer_for(name).name == encoding

    def test_models_that_count_alike_share_a_tokenizer(self) -> None:
        assert tokenizer_for("gpt-4o") is tokenizer_for("gpt-4o-2024-08-06")
        one, other = tokenizer_for("gpt-4o"), tokenizer_for("gpt-5")
        assert isinstance(one, OpenAITokenizer)
        assert isinstance(other, OpenAITokenizer)
        assert one._cache is other._cache

    @pytest.mark.parametrize(
        ("name", "exact"),
        [(None, True), ("gpt-4o", True), ("gpt-5", False), ("grok-4", False), ("mine", False)],
    )
    def test_framing_that_was_never_checked_is_an_estimate(
        self, name: str | None, exact: bool
    ) -> None:
        assert tokenizer_for(name).count_framing("user") == (4, exact)


class TestMargins:
    @pytest.mark.parametrize(
        ("name", "margin"),
        [
            *(
                (name, 1.45)
                for name in (
                    "claude-3-opus-20240229",
                    "claude-3-5-sonnet-latest",
                    "claude-sonnet-4-20250514",
                )
            ),
            *(
                (name, 1.45)
                for name in (
                    "anthropic/claude-sonnet-4-5",
                    "claude-haiku-4-5-20251001",
                    "us.anthropic.claude-opus-4-1-v1:0",
                )
            ),
            *(
                (name, 1.45)
                for name in (
                    "claude-opus-4-6",
                    "openrouter/anthropic/claude-opus-4.6",
                    "claude-sonnet-4@20250514",
                )
            ),
            *(
                (name, 1.85)
                for name in (
                    "claude-opus-4-7",
                    "claude-opus-4.8",
                    "claude-sonnet-5",
                    "claude-fable-5-1",
                    "claude-next",
                )
            ),
            *(
                (name, 1.15)
                for name in ("gemini-2.5-pro", "google/gemini-3.1-pro-preview", "gemma-3-27b-it")
            ),
            *(
                (name, 1.55)
                for name in (
                    "open-mistral-7b",
                    "mixtral-8x7b-instruct",
                    "mistral-large-2411",
                    "Llama-2-7b-chat",
                )
            ),
            *(
                (name, 1.25)
                for name in (
                    "mistral-large-latest",
                    "mistral-small-2506",
                    "open-mistral-nemo",
                    "devstral-medium",
                )
            ),
            *((name, 1.05) for name in ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1:8b")),
            ("deepseek-chat", 1.15),
        ],
    )
    def test_each_family_without_a_vocabulary_of_its_own_here_has_the_measured_one(
        self, name: str, margin: float
    ) -> None:
        tokenizer = tokenizer_for(name)
        assert isinstance(tokenizer, CalibratedTokenizer)
        assert (tokenizer.base.name, tokenizer.margin) == ("o200k_base", margin)
        assert not tokenizer.count_overhead().exact

    @pytest.mark.parametrize(
        ("name", "mean"),
        [
            ("claude-sonnet-4-5", 1.21),
            ("claude-opus-4-7", 1.57),
            ("deepseek-chat", 1.04),
            ("mistral-large-latest", 1.1),
        ],
    )
    def test_a_bill_is_counted_with_the_mean_of_the_family(self, name: str, mean: float) -> None:
        tokenizer = tokenizer_for(name, mean=True)
        assert isinstance(tokenizer, CalibratedTokenizer)
        assert (tokenizer.base.name, tokenizer.margin) == ("o200k_base", mean)

    def test_a_bill_of_a_model_whose_tokens_are_known_is_counted_as_a_budget(self) -> None:
        assert tokenizer_for("gpt-5", mean=True) is tokenizer_for("gpt-5")

    @pytest.mark.parametrize(
        ("name", "tokens"),
        [
            ("claude-opus-4-5-20251101", 4_096),
            ("anthropic/claude-opus-4.6", 4_096),
            ("claude-haiku-4-5", 4_096),
            ("claude-opus-4-7", 2_048),
            ("claude-3-5-haiku-latest", 2_048),
            ("claude-opus-5", 512),
            ("claude-fable-5", 512),
            ("claude-sonnet-4-5", 1_024),
            ("claude-opus-4-8", 1_024),
            ("claude-opus-5-5", 1_024),
            ("gpt-5", 1_024),
            ("mine", 1_024),
        ],
    )
    def test_the_shortest_cached_prefix_is_that_of_the_model(self, name: str, tokens: int) -> None:
        assert describe_model(name).cache_minimum == tokens

    @pytest.mark.parametrize(
        "name",
        [None, "gpt-4o", "gpt-5", "o3", "gpt-oss-20b", "ft:gpt-4o:claude::id", "qwen3-32b", "mine"],
    )
    def test_models_of_openai_and_unmeasured_ones_have_none(self, name: str | None) -> None:
        assert isinstance(tokenizer_for(name), OpenAITokenizer)

    def test_models_with_one_margin_share_a_tokenizer(self) -> None:
        assert tokenizer_for("claude-opus-4-5") is tokenizer_for("claude-sonnet-4-5")

    def test_a_request_is_raised_as_a_whole(self) -> None:
        request: Json = {"messages": [{"role": "user", "content": "Hi"} for _ in range(3)]}
        assert isinstance(request, dict)
        assert count_request(request, model="claude-opus-4-5") == (
            ceil(1.45 * count_request(request, model="gpt-5").tokens),
            False,
        )

    def test_a_registered_margin_wins_and_an_encoding_needs_none(self) -> None:
        register_model("house-1", margin=1.3)
        register_model("deepseek-house", encoding="cl100k_base")
        assert tokenizer_for("house-1").name == "o200k_base*1.3"
        assert tokenizer_for("deepseek-house").name == "cl100k_base"
        with pytest.raises(InvalidArgumentError, match="margin must be positive"):
            register_model("house-2", margin=0)


class TestRegister:
    def test_what_is_given_wins_and_the_rest_stays(self) -> None:
        register_model("gpt-4o", window=64_000)
        info = model_info("openai/gpt-4o")
        assert (info.window, info.max_output_tokens, info.exact) == (64_000, 16_384, True)

    def test_a_new_model_is_known_from_then_on(self) -> None:
        register_model("acme-1", window=32_000, encoding="cl100k_base", images=PatchImages(2.0))
        assert model_info("acme-1-2030").window == 32_000
        assert tokenizer_for("acme-1").name == "cl100k_base"
        assert model_info("acme-1").exact
        assert not register_model("acme-2", window=1).exact
        assert isinstance(model_info("acme-2").images, TileImages)

    def test_an_input_limit_that_is_given_is_known(self) -> None:
        assert register_model("acme-1", window=9_000, max_input=5_000).max_input == 5_000
        assert register_model("acme-1", window=8_000).max_input == 5_000

    def test_the_framing_of_another_provider_is_an_estimate_also_where_the_encoding_is_known(
        self,
    ) -> None:
        info = register_model("acme-1", encoding="o200k_base")
        assert (info.exact, info.framing) == (True, False)
        assert not tokenizer_for("acme-1").count_framing("user").exact

    def test_what_is_said_of_a_model_without_more_is_exact(self) -> None:
        info = ModelInfo(name="acme-1", images=TileImages(85, 170))
        assert (info.exact, info.framing, info.margin) == (True, True, 1.0)

    def test_a_size_must_be_positive(self) -> None:
        with pytest.raises(
            InvalidArgumentError, match=r"register_model\('a'\): window must be positive, not -1"
        ):
            register_model("a", window=-1)

    def test_a_model_sees_images_unless_its_name_or_its_registration_says_otherwise(self) -> None:
        assert describe_model("unknown-model").sees_images
        assert describe_model("gpt-4o").sees_images
        assert not describe_model("gpt-3.5-turbo").sees_images
        assert register_model("acme-1").sees_images
        assert not register_model("acme-1", sees_images=False).sees_images
        assert not register_model("acme-1", window=8_000).sees_images
        assert not describe_model("acme-1").sees_images
