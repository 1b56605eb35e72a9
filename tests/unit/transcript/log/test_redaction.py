"""Secrets taken out of texts, messages and JSON values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
)
from promptkit.transcript.log.redaction import redact_json, redact_message, redact_secrets
from tests.examples import keep_first

if TYPE_CHECKING:
    from promptkit.messages import Json

BODY = "\n".join(
    ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 5 + ["AbCd0123=="]
)
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----"
GITHUB = "ghp_" + "a1B2" * 9
OPENAI = "sk-proj-" + "a1B2" * 9
SIZE = 1_000_000


def word(text: str) -> str:
    """A redactor that knows one secret by its value."""
    return text.replace('p"w', "***")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key {OPENAI}.", "key [redacted: api key]."),
        ("sk_live_" + "a1B2" * 5, "[redacted: api key]"),
        ("AIza" + "a1B2c" * 7, "[redacted: api key]"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted: access key]"),
        (f"x={GITHUB};", "x=[redacted: access token];"),
        ("github_pat_" + "a1_" * 20, "[redacted: access token]"),
        ("glpat-" + "a1B2" * 5, "[redacted: access token]"),
        ("xoxb-123456789012-abcdef", "[redacted: access token]"),
        ("npm_" + "a1B2" * 9, "[redacted: access token]"),
        ("hf_" + "a1B2" * 9, "[redacted: access token]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSM", "[redacted: token]"),
        (
            "Authorization: Bearer abc.DEF-123456789",
            "Authorization: Bearer [redacted: bearer token]",
        ),
        (
            '{"authorization": "Basic dXNlcjpwYXNz"}',
            '{"authorization": "Basic [redacted: credentials]"}',
        ),
        ("postgres://app:hunter2@db:5432/x", "postgres://app:[redacted: password]@db:5432/x"),
        ("DB_PASSWORD=correct-horse-7", "DB_PASSWORD=[redacted: value]"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
            "aws_secret_access_key = [redacted: value]",
        ),
        (r'"{\"api_key\": \"abcd1234efgh\"}"', r'"{\"api_key\": \"[redacted: value]\"}"'),
        (f"a\n{KEY}\nb", "a\n[redacted: private key]\nb"),
        (json.dumps({"file": KEY}), '{"file": "[redacted: private key]"}'),
        (
            KEY.replace("RSA ", "").replace("-----\n", "-----\nVersion: 1, x\n\n", 1),
            "[redacted: private key]",
        ),
        # as tools that read files number the lines
        (
            "\n".join(f"{number:6}→{line}" for number, line in enumerate(KEY.splitlines(), 1))
            + "\n     9→x",
            "     1→[redacted: private key]\n     9→x",
        ),
        (
            "\n".join(f"{number:6}\t{line}" for number, line in enumerate(KEY.splitlines(), 1))
            + "\n     9\tx",
            "     1\t[redacted: private key]\n     9\tx",
        ),
        (
            "\n".join(f"{number}: {line}" for number, line in enumerate(KEY.splitlines()[:5], 1))
            + "\n6: [cut]",
            "1: [redacted: private key]\n6: [cut]",
        ),
        # the end was cut away
        (KEY.partition("-----END")[0] + "[cut] b", "[redacted: private key]\n[cut] b"),
        # the beginning was
        ("a [cut]\n" + KEY.partition("KEY-----\n")[2], "a [cut]\n[redacted: private key]"),
    ],
)
def test_secrets_of_common_shapes_are_taken_out(text: str, shown: str) -> None:
    assert redact_secrets(text) == shown
    assert redact_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_tokens=4096, token = tokenizer.count(text)",
        "password = getpass.getpass()",
        'api_key=os.environ["OPENAI_API_KEY"]',
        "a task-oriented bearer of news; sk-learn-is-a-library-of-some-kind",
        "The bearer token and the secret: keep them.",
        "https://example.com:8080/a@b and git@github.com:a/b.git",
        "0123456789abcdef" * 4,
        "iVBORw0KGgo" * 20,
        "-----BEGIN CERTIFICATE-----\n" + BODY + "\n-----END CERTIFICATE-----",
        "call_abcdef0123456789abcdef",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_secrets(text) == text


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    keep_first(
        4,
        *("://a:", "sk-", "-----BEGIN PRIVATE KEY-----", "token="),
        *(
            "eyJ",
            "eyJaaaaaaaaaa.",
            "Bearer ",
            "a",
            " ",
            "\\n",
            "A" * 64 + "\n",
            "passwd:" + "a" * 70,
        ),
        "-----BEGIN PRIVATE KEY-----\nProc-Type: a",
        "://a1",
        "password=a",
        "1:a",
        "-----BEGIN PRIVATE KEY-----\n1→",
        "1→" + "A" * 64 + "\n",
    ),
)
def test_a_million_characters_made_to_be_slow_are_not(unit: str) -> None:
    text = (unit * (SIZE // len(unit) + 1))[:SIZE]

    assert redact_secrets(text)


class TestMessages:
    def test_without_secrets_it_is_the_same_object(self) -> None:
        message = Message(
            role="assistant",
            content=(
                "a",
                ImagePart(url="u"),
                DocumentPart(data=GITHUB, media_type="m"),
                CacheBreakpointPart(),
                OpaquePart(value={"a": [1, None]}),
            ),
            tool_calls=(ToolCall(id="c", name="f", arguments='{ "a":1 }'),),
        )

        assert redact_message(message, redact_secrets) is message

    def test_texts_addresses_and_names_are_looked_at(self) -> None:
        message = Message(
            role="user",
            content=(
                GITHUB,
                ImagePart(url=f"https://x/?k={GITHUB}"),
                DocumentPart(data="d", media_type="m", name=f"{GITHUB}.pdf"),
            ),
        )

        text, image, document = redact_message(message, redact_secrets).content

        assert text == "[redacted: access token]"
        assert image == ImagePart(url="https://x/?k=[redacted: access token]")
        assert document == DocumentPart(
            data="d", media_type="m", name="[redacted: access token].pdf"
        )

    def test_the_bytes_of_pictures_are_not(self) -> None:
        message = Message(role="user", content=(ImagePart(url=f"data:image/png;base64,{GITHUB}"),))

        assert redact_message(message, redact_secrets) is message

    def test_a_secret_in_two_texts_that_are_read_as_one_is_found(self) -> None:
        message = Message(
            role="user", content=("a ", GITHUB[:20], GITHUB[20:], ImagePart(url="u"), "b")
        )

        assert redact_message(message, redact_secrets).content == (
            "a [redacted: access token]",
            ImagePart(url="u"),
            "b",
        )

    def test_a_providers_own_part_goes_whole_since_it_may_be_signed(self) -> None:
        thought = OpaquePart(
            value={"type": "thinking", "thinking": f"I use {GITHUB}.", "signature": "s"}
        )

        assert redact_message(
            Message(role="assistant", content=(thought, "ok")), redact_secrets
        ).content == ("ok",)

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            # as JSON writes it, the redactor would not know it
            (r'{"a": "p\"w", "n": 1}', '{"a": "***", "n": 1}'),
            (r'{"p\"w": {"p\"w": ["p\"w"]}}', '{"***": {"***": ["***"]}}'),
            ('{"a": p"w', '{"a": ***'),  # no JSON, and none afterwards
            ("[" * 100_000 + 'p"w', "[" * 100_000 + "***"),
            ('{ "a":"é" }', '{ "a":"é" }'),
        ],
    )
    def test_arguments_are_looked_at_as_values(self, arguments: str, shown: str) -> None:
        call = ToolCall(id="c", name="f", arguments=arguments)

        assert redact_message(Message(role="assistant", tool_calls=(call,)), word).tool_calls == (
            ToolCall(id="c", name="f", arguments=shown),
        )

    def test_the_name_beside_a_value_tells_what_it_is(self) -> None:
        call = ToolCall(id="c", name="f", arguments='{"password": "correct-horse-7"}')
        (shown,) = redact_message(
            Message(role="assistant", tool_calls=(call,)), redact_secrets
        ).tool_calls

        assert json.loads(shown.arguments) == {"password": "[redacted: value]"}

    def test_arguments_stay_json_whatever_a_redactor_does(self) -> None:
        call = ToolCall(id="c", name="f", arguments='{"a": 12345}')
        (shown,) = redact_message(
            Message(role="assistant", tool_calls=(call,)),
            lambda text: text.replace("12345}", "***"),
        ).tool_calls

        assert json.loads(shown.arguments) == {"redacted": '{"a": ***'}


def test_a_value_is_looked_at_however_deep() -> None:
    value: Json = 'p"w'
    for _ in range(50_000):
        value = [value]

    clean = redact_json(value, word)
    for _ in range(50_000):
        assert isinstance(clean, list)
        (clean,) = clean

    assert clean == "***"
    assert redact_json({"a": [1, None, True, 1.5, 'p"w']}, word) == {
        "a": [1, None, True, 1.5, "***"]
    }
