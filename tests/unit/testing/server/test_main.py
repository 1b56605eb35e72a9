"""The server as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import openai
import pytest

from promptkit.testing.server.__main__ import main
from tests.examples import keep_first

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "promptkit.testing.server"]


@pytest.mark.long
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", keep_first(1, signal.SIGINT, signal.SIGTERM))
def test_prints_its_url_and_runs_until_it_is_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["From the script."]), encoding="utf-8")
    command = [*COMMAND, "--window", "100", "--script", str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
                assert [model.id for model in client.models.list()] == ["gpt-4.1"]
                done = client.chat.completions.create(
                    model="mine", messages=[{"role": "user", "content": "Hello."}]
                )
                assert done.choices[0].message.content == "From the script."
                with pytest.raises(openai.BadRequestError, match="maximum context length is 100"):
                    client.chat.completions.create(
                        model="mine", messages=[{"role": "user", "content": "word " * 200}]
                    )
        finally:
            process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--host", "0.0.0.0"], "other machines can reach the host"),  # noqa: S104  # refused
        (["--script", "nowhere.json"], "nowhere.json"),
        (["--port", "70000"], "65535"),
        (["--port", "many"], "not a valid integer"),
        (["--window", "0"], "not in the range x>=1"),
        (["--window", "8k"], "not a valid integer"),
        (["--nothing"], "No such option"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_with_exit_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert problem in err
