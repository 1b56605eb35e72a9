"""`FitHook` in the proxy of litellm, which needs more packages than litellm itself.

Runs in its environment: see `test_frameworks.py`.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from openai import OpenAI

from promptkit.testing.server import Server, serve
from tests.unit.integrations.in_litellm import talk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(window=2_000, after=lambda _: "Done.") as running:
        yield running


CONFIG = """
model_list:
  - model_name: reviewer
    litellm_params: {{model: openai/gpt-4.1, api_base: "{url}", api_key: none}}
    model_info: {{max_input_tokens: 2000}}
litellm_settings:
  callbacks: hooks.fit_hook
  num_retries: 0
"""


def test_the_proxy_is_reached_by_its_config(server: Server, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
    hook = "from promptkit.integrations.litellm import FitHook\n\nfit_hook = FitHook()\n"
    (tmp_path / "hooks.py").write_text(hook, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [
        str(Path(sys.executable).with_name("litellm")),
        "--config",
        "config.yaml",
        "--host",
        "127.0.0.1",
        "--port",
        port,
    ]
    key = f"sk-{secrets.token_hex(32)}"  # without one the proxy does not start
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        proxy = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env={**os.environ, "LITELLM_MASTER_KEY": key},
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health/readiness", proxy)
        client: Any = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)
        answer = client.chat.completions.create(model="reviewer", messages=talk(8))
        assert answer.choices[0].message.content == "Done."
        streamed = client.chat.completions.create(model="reviewer", messages=talk(8), stream=True)
        assert "Done." in "".join(
            chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices
        )
        assert server.stats.overflows == server.stats.invalid == 0
        assert all(len(exchange.messages) < len(talk(8)) for exchange in server.requests)
    except BaseException:
        print((tmp_path / "log").read_text(encoding="utf-8"))
        raise
    finally:
        proxy.terminate()
        proxy.wait(30)


def wait_for(url: str, proxy: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert proxy.poll() is None
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(url)
