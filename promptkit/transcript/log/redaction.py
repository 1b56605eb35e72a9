"""Removal of secrets from what leaves a conversation: summaries, their facts, exports.

It is off unless a redactor is passed.

Redaction never changes the transcript or the messages that the model is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Literal, TypeAlias

import attrs

from promptkit.messages import DocumentPart, ImagePart, Json, Message, OpaquePart, Part, copy_json

Redactor: TypeAlias = Callable[[str], str]
"""Remove secrets from a text. Must be deterministic and idempotent.

An exception of the redactor ends the compaction or the export that called it, so no text leaves
without having been checked.
"""


def redact_secrets(text: str) -> str:
    """Remove secrets of common shapes from a text.

    Remove secrets whose value you know with a redactor of your own.

    >>> redact_secrets("curl -H 'Authorization: Bearer abcdefghijklmnop1234'")
    "curl -H 'Authorization: Bearer [redacted: bearer token]'"
    """
    for secret in SECRET_PATTERNS:
        text = secret.redact(text)
    return text


def load_scanner(*, confidence: Literal["low", "medium", "high"] = "medium") -> Redactor:
    """Return a redactor that applies `redact_secrets`, and then the rules of the scanner Kingfisher, which know some hundred services.

    Needs the extra `scanner`. Load it once: its rules are compiled for some seconds, and then kept
    in the user's cache directory. Nothing is sent anywhere: the scanner could ask services whether
    a secret is valid, and is not told to.

    >>> session = AgentSession(model="gpt-5", redactor=load_scanner())

    Args:
        confidence: The least confidence of the rules that are used. With `low` more is taken for a
            secret.

    Raises:
        ImportError: The scanner is not installed.
    """
    try:
        from kingfisher_sdk import Rules, Scanner
    except ImportError as error:
        raise ImportError(
            "the rules of a scanner need Kingfisher: pip install 'kingfisher-secret-scanner>=1.5', or the extra promptkit[scanner]."
        ) from error
    scanner = Scanner(Rules(confidence=confidence), base64=False)

    def redact(text: str) -> str:
        text = redact_secrets(text)
        while secrets := {
            found.secret
            for found in scanner.scan(text.encode("utf-8", "replace"))
            if found.visible and found.secret
        }:
            redacted = text
            for secret in sorted(secrets, key=len, reverse=True):
                redacted = redacted.replace(secret, "[redacted: secret]")
            if redacted == text:
                break
            text = redact_secrets(redacted)
        return text

    return redact


def redact_message(message: Message, redactor: Redactor) -> Message:
    """Remove secrets from a message. Returns the same message if it contains none.

    Texts, tool call arguments (which stay valid JSON), URLs of images and names of documents are
    redacted; images and documents themselves are not read. An opaque part that contains a secret is
    dropped as a whole, because it may be signed.
    """
    content = tuple(_redact_parts(message.content, redactor))
    calls = tuple(
        attrs.evolve(call, arguments=_redact_arguments(call.arguments, redactor))
        for call in message.tool_calls
    )
    return (
        message
        if content == message.content and calls == message.tool_calls
        else attrs.evolve(message, content=content, tool_calls=calls)
    )


def redact_json(value: Json, redactor: Redactor) -> Json:
    """Remove secrets from the strings and the keys of a copy of a JSON value."""
    redacted: Json = copy_json(value, redactor, keys=True)
    return redacted


def _redact_parts(content: Iterable[Part], redactor: Redactor) -> Iterator[Part]:
    for is_text, group in groupby(content, lambda part: isinstance(part, str)):
        if is_text:
            yield from _redact_texts([part for part in group if isinstance(part, str)], redactor)
            continue
        for part in group:
            match part:
                case ImagePart(url=url) if not url.startswith("data:"):
                    yield attrs.evolve(part, url=redactor(url))
                case DocumentPart(name=str(name)):
                    yield attrs.evolve(part, name=redactor(name))
                case OpaquePart(value=value) if redact_json(value, redactor) != value:
                    continue
                case _:
                    yield part


def _redact_texts(texts: list[str], redactor: Redactor) -> list[str]:
    """Redact adjacent texts, each alone and all of them joined: a secret may begin in one text and end in the next."""
    redacted = [redactor(text) for text in texts]
    joined = "".join(redacted)
    redacted_joined = redactor(joined) if len(redacted) > 1 else joined
    return redacted if redacted_joined == joined else [redacted_joined]


def _redact_arguments(text: str, redactor: Redactor) -> str:
    """Redact the values of tool call arguments, then the JSON text, where the key next to a value may give it away."""
    try:
        value: Json = json.loads(text)
        redacted_value = redact_json(value, redactor)
        redacted = (
            text if redacted_value == value else json.dumps(redacted_value, ensure_ascii=False)
        )
    except (ValueError, RecursionError):
        return redactor(text)
    redacted_text = redactor(redacted)
    if redacted_text != redacted:
        try:
            json.loads(redacted_text)
        except (ValueError, RecursionError):
            return json.dumps({"redacted": redacted_text}, ensure_ascii=False)
    return redacted_text


@attrs.frozen
class SecretPattern:
    """A kind of secret and the pattern that finds it.

    The pattern must take linear time on every text.

    The group `value` of a match is replaced, or the whole match if the pattern has no such group.
    If the pattern has a group `proof`, a match in which that group is empty is left unchanged.
    """

    name: str
    """The kind of secret, as the replacement names it: `[redacted: api key]`."""
    pattern: re.Pattern[str]
    """The pattern."""
    context: re.Pattern[str] | None = None
    """Where to look, such as in commands that take a password. None: everywhere."""

    def redact(self, text: str) -> str:
        """Replace every secret of this kind."""
        return (
            self.pattern.sub(self._replacement, text)
            if self.context is None
            else self.context.sub(lambda match: self.pattern.sub(self._replacement, match[0]), text)
        )

    def _replacement(self, match: re.Match[str]) -> str:
        groups = match.groupdict("")
        if groups.get("proof") == "":
            return match[0]
        start, end = match.span("value") if "value" in groups else match.span()
        return f"{match.string[match.start() : start]}[redacted: {self.name}]{match.string[end : match.end()]}"


def _any_of(*shapes: str) -> re.Pattern[str]:
    """Return a pattern for tokens of any of these shapes that begin a word, with the rest of the word, which may be another token."""
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(shapes)})[A-Za-z0-9_-]*+")


def _command(names: str) -> re.Pattern[str]:
    """Return a pattern for commands of a shell with these names: up to the end of the line, or the next command on it."""
    return re.compile(
        rf"(?<![a-z])(?:{names})(?=\s)(?:[^\r\n|;&\"']|\"[^\"\r\n]*+\"|'[^'\r\n]*+'|[\"'])*+"
    )


_GAP = r"(?:\s|\\[nr])"  # a line break, plain or escaped in JSON
_PEM = r"-----{} (?:[A-Z0-9]{{1,20}} ){{0,4}}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = _PEM.format("BEGIN"), _PEM.format("END")
_NUMBER = r"(?:[0-9]{1,7}(?:→|\\u2192|\\t|[\t:|│])[ \t]?)?+"  # of a line, as tools that read files write it
_NEXT = rf"{_GAP}*+{_NUMBER}"
_BODY = rf"(?:{_NEXT}[A-Za-z0-9+/=]{{16,}}+)*+(?:{_NEXT}[A-Za-z0-9+/=]{{1,64}}+(?!→|\\u2192|\\t|[\t:|│]))?+"
_HEADERS = rf"(?:{_GAP}{{1,2}}[A-Z][A-Za-z-]{{1,20}}: [A-Za-z0-9,. +/@()-]{{0,200}})*+"
_NAMES = r"secret|passw(?:or)?d|passphrase|token|api[_-]?key|access[_-]?key|private[_-]?key"
_QUOTE = r"[\\\"']{0,4}"
_IS = rf"{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}"
_LABELS = r"passw(?:or)?d|passphrase|(?<![a-z])pwd|(?<![a-z])pass"
_NO_ATTRIBUTE = rf"(?!\w{{1,40}}\.\w{{0,40}}?(?:{_NAMES})\b)"  # as in `user2.password`
_NO_VALUE = r"(?![$<{%*\[(&])(?!(?i:str|string|none|null|true|false|required|optional|password|passwd|secret|hidden)\b)"

SECRET_PATTERNS: tuple[SecretPattern, ...] = (
    # A key is redacted as well if its beginning or its end was cut off.
    SecretPattern("private key", re.compile(rf"{_BEGIN}{_HEADERS}{_BODY}(?:{_NEXT}{_END})?+")),
    SecretPattern(
        "private key",
        re.compile(
            rf"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{{40,}}+{_GAP}++)++(?:[A-Za-z0-9+/=]{{1,64}}+{_GAP}++)?+(?P<proof>{_END})?+"
        ),
    ),
    SecretPattern("private key", _any_of(r"AGE-SECRET-KEY-1[A-Z0-9]{50,}+")),
    SecretPattern(
        "api key",
        _any_of(
            # OpenAI, Anthropic, OpenRouter and others
            r"sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}+",
            r"[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}+",  # Stripe
            r"whsec_[A-Za-z0-9+/]{24,}+",
            r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",  # Google
            r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{32,}+",  # SendGrid
            r"SK[0-9a-f]{32}(?![0-9a-f])",  # Twilio
            r"key-[0-9a-f]{32}(?![0-9a-f])",  # Mailgun
            r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])",  # Mailchimp
            # Groq, xAI, Replicate, Perplexity
            r"gsk_[A-Za-z0-9]{40,}+|xai-[A-Za-z0-9]{60,}+|r8_[A-Za-z0-9]{36,}+|pplx-[A-Za-z0-9]{40,}+",
            # New Relic, Postman, Linear
            r"NRAK-[A-Z0-9]{27}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|lin_api_[A-Za-z0-9]{32,}+",
        ),
    ),
    SecretPattern(
        "access key",
        _any_of(
            r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
            r"LTAI[A-Za-z0-9]{16,20}(?![A-Za-z0-9])",
        ),
    ),
    SecretPattern(
        "access token",
        _any_of(
            r"gh[opsur]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{40,}+",
            r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[A-Za-z0-9_-]{20,}+",  # GitLab
            r"xox[abeoprs]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{10,}+",  # Slack
            r"npm_[A-Za-z0-9]{36,}+|pypi-[A-Za-z0-9_-]{50,}+|rubygems_[0-9a-f]{40,}+|dckr_pat_[A-Za-z0-9_-]{20,}+",
            r"hf_[A-Za-z0-9]{30,}+|api_org_[A-Za-z0-9]{30,}+",  # Hugging Face
            r"dapi[0-9a-f]{32}(?:-[0-9])?(?![0-9a-f])",  # Databricks
            # Vault
            r"hv[sbr]\.[A-Za-z0-9_-]{20,}+|(?<![A-Za-z0-9_.])s\.(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9.(])",
            r"do[opr]_v1_[0-9a-f]{64}",  # DigitalOcean
            r"shp(?:at|ca|pa|ss)_[A-Za-z0-9]{32}",  # Shopify
            # Telegram
            r"(?:bot)?[0-9]{8,10}:(?=[a-z0-9_-]{0,34}[A-Z])(?=[A-Z0-9_-]{0,34}[a-z])[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",
            r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+",  # Discord
            # Google's OAuth
            r"ya29\.[A-Za-z0-9_-]{30,}+|GOCSPX-[A-Za-z0-9_-]{20,}+|1//0[A-Za-z0-9_-]{30,}+",
            # Azure's client secrets
            r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])",
            # Atlassian, Figma, Notion
            r"ATATT3[A-Za-z0-9_=-]{60,}+|ATBB[A-Za-z0-9]{28,}+|figd_[A-Za-z0-9_-]{30,}+|ntn_[A-Za-z0-9]{40,}+",
            # Grafana, Sentry
            r"gls?a_[A-Za-z0-9_]{32,}+|glc_[A-Za-z0-9+/=]{32,}+|sntry[su]_[A-Za-z0-9_=+/-]{40,}+",
            r"sbp_[0-9a-f]{40}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,}+|dp\.(?:pt|st|ct)\.[A-Za-z0-9]{40,}+|pul-[0-9a-f]{40}",
            r"FlyV1 fm[12]_[A-Za-z0-9+/=,_]{40,}+|nfp_[A-Za-z0-9]{36,}+|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+",
            # Square, SonarQube
            r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}+|EAAA[A-Za-z0-9_-]{56,}+|sq[pua]_[0-9a-f]{40}",
        ),
    ),
    SecretPattern(
        "token",
        re.compile(
            r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]{0,}+)?+"
        ),
    ),
    SecretPattern(
        "webhook",
        re.compile(
            r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9/_-]{20,}+)"
        ),
    ),
    SecretPattern(
        "webhook",
        re.compile(
            r"(?:discord|discordapp)\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{10,25}/(?P<value>[A-Za-z0-9_-]{20,}+)"
        ),
    ),
    SecretPattern(
        "webhook", re.compile(r"\.webhook\.office\.com/webhookb2/(?P<value>[A-Za-z0-9@/-]{40,}+)")
    ),
    SecretPattern(
        "account key",
        re.compile(
            r"(?:AccountKey|SharedAccessKey|SharedSecretValue)=(?P<value>[A-Za-z0-9+/=]{20,}+)",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(
        "signature",
        re.compile(
            r"[?&](?:sig|X-Amz-Signature|X-Goog-Signature)=(?P<value>[A-Za-z0-9%+/=_-]{20,}+)",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(
        "bearer token",
        re.compile(r"(?<![a-z])bearer[ \t]{1,4}(?P<value>[a-z0-9._~+/=-]{16,}+)", re.IGNORECASE),
    ),
    SecretPattern(
        "credentials",
        re.compile(
            rf"authorization{_IS}{_QUOTE}(?:basic|token|digest|apikey|key)\s{{1,3}}(?P<value>[^\s\"',;\[\\]{{8,}}+)",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(
        "cookie",
        re.compile(
            rf"(?<![a-z])(?:set-)?cookie{_IS}{_QUOTE}(?P<value>(?=[^\s\"'=;\[\\]{{1,100}}=[^\s\"';]{{4}})[^\r\n\"'\\\[]{{8,}}+)",
            re.IGNORECASE,
        ),
    ),
    SecretPattern("password", re.compile(r"(?<=://)[^\s/:@]{0,100}+:(?P<value>[^\s/@]{1,200}+)@")),
    SecretPattern(  # in place of a user: of 16 characters with a digit, or of 20 in both cases
        "token",
        re.compile(
            r"(?<=://)(?P<value>(?:(?=[A-Za-z_.~%+=-]{0,200}[0-9])|(?=[a-z_.~%+=-]{0,200}[A-Z])(?=[A-Z_.~%+=-]{0,200}[a-z])(?=[A-Za-z]{20}))"
            r"[A-Za-z0-9_.~%+=-]{16,200}+)(?=(?::(?:\[redacted: password\])?)?@)"
        ),
    ),
    SecretPattern(
        "password",
        re.compile(
            rf"(?<=\s)(?:-u|--user|--proxy-user|-a|--auth)(?:\s{{1,3}}|=)[\"']?[^\s:\"'\[]{{1,100}}:{_NO_VALUE}(?P<value>[^\s\"'\[]{{3,}}+)"
        ),
        context=_command("curl|http|https|wget"),
    ),
    SecretPattern(
        "password",
        re.compile(
            rf"--(?:[a-z]{{1,20}}-)?(?:password|passwd|pass|pwd)(?:\s{{1,3}}|=)[\"']?{_NO_VALUE}(?P<value>[^\s\"'\[-][^\s\"']{{3,}}+)"
        ),
    ),
    SecretPattern(
        "password",
        re.compile(
            rf"(?<![a-z])sshpass\s{{1,3}}-p\s{{0,3}}[\"']?{_NO_VALUE}(?P<value>[^\s\"'\[]{{3,}}+)"
        ),
    ),
    SecretPattern(
        "password",
        re.compile(rf"(?<=\s)-p{_NO_VALUE}(?P<value>[^\s\"'\[-][^\s\"']{{3,}}+)"),
        context=_command("mysql(?:dump|admin)?"),
    ),
    SecretPattern(  # a line of .netrc
        "password",
        re.compile(r"login\s{1,9}\S{1,100}\s{1,9}password\s{1,9}(?P<value>[^\s\[]{3,}+)"),
    ),
    SecretPattern(
        "password hash",
        re.compile(
            r"(?<![A-Za-z0-9$])\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2(?:id?|d))\$[A-Za-z0-9./$,=+-]{20,}+"
        ),
    ),
    SecretPattern(
        "value",
        re.compile(
            rf"(?:{_NAMES}){_IS}{_QUOTE}{_NO_ATTRIBUTE}(?P<value>(?=[a-z+/_.~-]{{0,64}}[0-9])[a-z0-9+/_.~=-]{{12,}}+)",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(  # a text in quotes, without spaces
        "password",
        re.compile(
            rf"(?:{_LABELS}){_IS}(?:\\?[\"']){_NO_VALUE}(?P<value>[^\s\"'\\]{{4,200}})(?=\\?[\"'])",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(  # without quotes: letters and a digit, and no expression
        "password",
        re.compile(
            rf"(?:{_LABELS})(?:=|:[ \t]{{1,3}}|[ \t]{{1,3}}=[ \t]{{1,3}}){_NO_VALUE}"
            r"(?![A-Za-z_]\w{0,100}+[.(\[])(?P<value>(?=[^\s0-9]{0,64}[0-9])(?=[^\sa-z]{0,64}[a-z])[^\s\"'`,;(){}\[\]<>/\\][^\s\"'`,;(){}\[\]<>\\]{4,}+)"
            r"(?![(\[])",
            re.IGNORECASE,
        ),
    ),
    SecretPattern(  # without quotes and without a digit: a setting, not the name of a variable in a call
        "password",
        re.compile(
            rf"(?:passw(?:or)?d|passphrase|(?<![a-z])pwd)={_NO_VALUE}(?!\w{{0,60}}(?:{_NAMES}|pwd)\b)"
            r"(?P<value>[a-z][a-z!@#%^*+_~-]{3,100}+)(?=[\s;&\"'`|<\\]|\.?(?:\s|$))",
            re.IGNORECASE,
        ),
    ),
)
"""The patterns of `redact_secrets`: keys and tokens of common services, private keys, cookies, and
passwords in URLs, commands and settings."""
