# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.

from __future__ import annotations

import pytest

from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.tokens import models
from promptkit.tokens.images import PatchImages, TileImages
from promptkit.tokens.models import model_info, register_model, tokenizer_for


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
    def test_window_and_input_are_told_apart(self, name: str, window: int, max_input: int | None, max_output_tokens: int) -> None:
        info = model_info(name)
        assert (info.window, info.max_input, info.max_output_tokens) == (window, max_input, max_output_tokens)


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
            UnknownModelError, match=r"No model 'gtp-4o' is known: did you mean 'gpt-4o'.*register_model\('gtp-4o', window=…\)"
        ):
            model_info("gtp-4o")


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
        assert tokenizer_for("gpt-4o")._counter is tokenizer_for("gpt-5")._counter

    @pytest.mark.parametrize(
        ("name", "exact"), [(None, True), ("gpt-4o", True), ("gpt-5", False), ("claude-opus-4-6", False), ("mine", False)]
    )
    def test_framing_that_was_never_checked_is_an_estimate(self, name: str | None, exact: bool) -> None:
        assert tokenizer_for(name).count_framing("user") == (4, exact)


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

    def test_a_size_must_be_positive(self) -> None:
        with pytest.raises(InvalidArgumentError, match=r"register_model\('a'\): window must be positive, not -1"):
            register_model("a", window=-1)
