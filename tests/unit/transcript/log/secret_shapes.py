"""Secrets of many shapes, and texts that only look like one.

Every value is made up. The values are put together from pieces, so that no scanner takes this file
for a leak.
"""

from __future__ import annotations

import random
import string

__all__ = ["DECOYS", "RARE", "SHAPES"]

_RNG = random.Random(7)
HEX = "".join(_RNG.choices("0123456789abcdef", k=64))
MIXED = "".join(_RNG.choices(string.ascii_letters + string.digits, k=96))

SHAPES: dict[str, tuple[str, str]] = {  # name: (text with {}, secret)
    "openai": ("key {}", "sk-proj-" + MIXED[:40]),
    "anthropic": ("{}", "sk-ant-api03-" + MIXED[:60]),
    "groq": ("{}", "gsk_" + MIXED[:52]),
    "stripe webhook": ("{}", "whsec_" + MIXED[:32]),
    "google": ("{}", "AIza" + MIXED[:35]),
    "google oauth": ("token {}", "ya29." + MIXED[:60]),
    "google client": ("{}", "GOCSPX-" + MIXED[:28]),
    "sendgrid": ("{}", "SG." + MIXED[:22] + "." + MIXED[:43]),
    "twilio key": ("{}", "SK" + HEX[:32]),
    "twilio token": ("TWILIO_AUTH_TOKEN={}", HEX[:32]),
    "mailgun": ("{}", "key-" + HEX[:32]),
    "mailchimp": ("{}", HEX[:32] + "-us12"),
    "aws": ("{}", "AKIA" + "ABCDEFGH23456789"),
    "aws secret": ("aws_secret_access_key = {}", MIXED[:40]),
    "github": ("{}", "ghp_" + MIXED[:36]),
    "github fine": ("{}", "github_pat_" + MIXED[:60]),
    "gitlab": ("{}", "glpat-" + MIXED[:20]),
    "gitlab runner": ("{}", "glrt-" + MIXED[:20]),
    "slack": ("{}", "xoxb-123456789012-" + MIXED[:24]),
    "slack webhook": ("https://hooks.slack.com/services/{}", "T00000000/B00000000/" + MIXED[:24]),
    "discord webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", MIXED[:68]),
    "discord bot": ("{}", "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:38]),
    "telegram": ("https://api.telegram.org/bot{}/getMe", "123456789:AA" + MIXED[:33]),
    "npm": ("//registry.example/:_authToken={}", "npm_" + MIXED[:36]),
    "docker": ("{}", "dckr_pat_" + MIXED[:27]),
    "hugging face": ("{}", "hf_" + MIXED[:34]),
    "databricks": ("{}", "dapi" + HEX[:32]),
    "vault": ("{}", "hvs." + MIXED[:90]),
    "vault before": ("VAULT: {}", "s." + MIXED[:24]),
    "digitalocean": ("{}", "dop_v1_" + HEX),
    "shopify": ("{}", "shpat_" + HEX[:32]),
    "age": ("{}", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core",
        MIXED[:86] + "==",
    ),
    "azure bus": ("Endpoint=sb://a/;SharedAccessKeyName=Root;SharedAccessKey={}", MIXED[:43] + "="),
    "azure signature": (
        "https://a.blob.core.windows.net/c?sv=2022&sig={}&se=1",
        MIXED[:43] + "%3D",
    ),
    "azure client": ("{}", "abc8Q~" + MIXED[:34]),
    "teams webhook": (
        "https://x.webhook.office.com/webhookb2/{}",
        HEX[:36] + "@" + HEX[:36] + "/IncomingWebhook/" + HEX[:32],
    ),
    "new relic": ("{}", "NRAK-" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0"),
    "linear": ("{}", "lin_api_" + MIXED[:40]),
    "notion": ("{}", "ntn_" + MIXED[:46]),
    "figma": ("{}", "figd_" + MIXED[:40]),
    "grafana": ("{}", "glsa_" + MIXED[:32] + "_" + HEX[:8]),
    "atlassian": ("{}", "ATATT3" + MIXED[:90]),
    "terraform": ("{}", MIXED[:14] + ".atlasv1." + MIXED[:67]),
    "jwt": ("{}", "eyJ" + MIXED[:20] + "." + MIXED[:40] + "." + MIXED[:43]),
    "bearer": ("Authorization: Bearer {}", MIXED[:32]),
    "basic": ("Authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    "api key header": ("X-Api-Key: {}", MIXED[:32]),
    "cookie": ("Cookie: {}", "session=" + MIXED[:32] + "; theme=dark"),
    "set cookie": ('"Set-Cookie": "{}"', "sid=" + MIXED[:32] + "; Path=/"),
    "curl user": ("curl -s -u admin:{} https://example.com/x", "hunter2"),
    "curl long": ("curl --user 'admin:{}' https://example.com", "s3cret!"),
    "curl with two": (
        "curl --proxy-user me:{0} -u 'admin:{0}' -v https://example.com/x",
        "hunter!2",
    ),
    "curl in quotes": ('curl -X POST -d "a=1" --user "admin:{}" https://example.com', "hunt&er;2"),
    "option": ("tool login --password {} --force", "hunter2!"),
    "sshpass": ("sshpass -p '{}' ssh root@example.com", "hunter2"),
    "mysql": ("mysql -h db -u root -p{} shop", "hunter2"),
    "url": ("postgres://app:{}@db:5432/x", "hunter2"),
    "password in quotes": ("password = '{}'", "correct-horse"),
    "password in json": ('{{"password": "{}"}}', "swordfish"),
    "password in escaped json": ('"{{\\"password\\": \\"{}\\"}}"', "swordfish"),
    "password in env": ("export PGPASSWORD={}", "hunter2"),
    "password in yaml": ("db:\n  password: {}\n", "Tr0ub4dor&3"),
    "password in a connection string": ("Server=db;User Id=sa;Password={};Encrypt=true", "hunter2"),
    "netrc": ("machine example.com login me password {}", "hunter2"),
    "hash": ("root:{}:19000:0:99999:7:::", "$6$" + MIXED[:16] + "$" + MIXED[:86]),
}
"""By name: a text with a place for the secret, and the secret."""

RARE: dict[str, tuple[str, str]] = {
    "dynatrace": ("{}", f"dt0c01.{MIXED[:24].upper()}.{MIXED[:64].upper()}"),
    "easypost": ("{}", f"EZAK{MIXED[:54]}"),
    "frame.io": ("{}", f"fio-u-{MIXED[:64]}"),
    "flutterwave": ("{}", f"FLWSECK_TEST-{HEX[:32]}-X"),
    "duffel": ("{}", f"duffel_test_{MIXED[:43]}"),
    "readme": ("{}", f"rdme_{MIXED[:70].lower()}"),
    "prefect": ("{}", f"pnu_{MIXED[:36].lower()}"),
    "sendinblue": ("{}", f"xkeysib-{HEX}-{MIXED[:16].lower()}"),
    "shippo": ("{}", f"shippo_live_{HEX[:40]}"),
    "clojars": ("{}", f"CLOJARS_{MIXED[:60].lower()}"),
}
"""Of services for which `redact_secrets` has no pattern."""

DECOYS: tuple[str, ...] = (
    "password = getpass.getpass()",
    "password: str",
    'password: str = ""',
    "def login(user: str, password: str | None = None) -> None:",
    "password=password, user=user",
    "self.password = user2.password",
    "password = os.environ['DB_PASSWORD2']",
    'password = f"{prefix}1"',
    "password: ${DB_PASSWORD1}",
    'PASSWORD="$PASSWORD1"',
    '"password": "string"',
    '{"password": {"type": "string", "minLength": 8}}',
    "password: required",
    "--password <password>",
    "--password PASSWORD",
    "Enter your password: ",
    "The password is wrong, try pass 2 of 3.",
    "PASS: 12 tests, pass: yes",
    "pwd=/home/user1/project2",
    "bypass=value12",
    "docker run -u 1000:1000 --rm image",
    "git push -u origin:feature1",
    "curl -u $USER:$PASSWORD https://example.com",
    "Cookie: none",
    "cookie = SimpleCookie()",
    "cookies: list[str] = []",
    "session.cookie = make_cookie(a=1)",
    "https://hooks.slack.com/services/",
    "https://discord.com/channels/123456789012345678/123456789012345678",
    "commit " + HEX[:40],
    "sha256:" + HEX,
    "AC" + HEX[:32],
    "key-value pairs; key-0123",
    "SG.1.2 and s.split() and objects.filter(x)",
    "123456789:00 is no time",
    "$6$ and $1$ are kinds of hashes; it costs $5$ more",
    "tokens: 4096, max_tokens=12, token_count = 7",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "eyJ is how a token begins",
    "M" + "odule.something.else_entirely_different_here",
)
