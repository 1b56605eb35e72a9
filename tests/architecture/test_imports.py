"""Who imports whom, and what `import promptkit` costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent

MEASURE = """
import json, sys, time
start = time.process_time()
import promptkit
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def imported() -> tuple[float, set[str]]:
    """Processor seconds that `import promptkit` took in a fresh process, and the modules that it loaded."""
    done = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    return result["seconds"], set(result["modules"])


def test_every_room_imports_only_the_rooms_below_it() -> None:
    paths = os.pathsep.join([str(ROOT / "components"), str(ROOT)])
    done = subprocess.run(
        [str(TOOLS / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "package",
    [
        "openai",
        "anthropic",
        "rich",
        "jinja2",
        "click",
        "tiktoken",
        "pytest",
        "syrupy",
        "hypothesis",
        "asyncio",
        "urllib.request",
        "promptkit_components",
    ],
)
def test_importing_promptkit_loads_nothing_heavy(package: str) -> None:
    _, modules = imported()
    assert package not in modules


def test_importing_promptkit_is_quick() -> None:
    best = min(imported()[0] for _ in range(5))
    print(f"import promptkit: {best * 1000:.0f} ms, best of 5")
    # 60 ms is the promise on an idle machine; a slow or busy one must not fail the suite, and a heavy import costs far more than this.
    assert best < 0.3
