"""Write what a framework makes of the functions, as JSON: run it with the Python of an environment that has the framework.

`python record_frameworks.py pydantic-ai`, or `python record_frameworks.py openai-agents`.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from functions import FUNCTIONS  # type: ignore[import-not-found]  # beside this file, without the package around it


def of_pydantic_ai() -> dict[str, Any]:
    from pydantic_ai import Tool

    def describe(tool: Any) -> Any:
        return {
            "description": tool.tool_def.description,
            "parameters": tool.tool_def.parameters_json_schema,
        }

    return {name: describe(Tool(function)) for name, function in FUNCTIONS.items()}


def of_openai_agents() -> dict[str, Any]:
    from agents import function_tool

    def describe(function: Any) -> Any:
        try:
            tool = function_tool(function)
        except Exception as error:  # noqa: BLE001  # whatever the framework says
            return {"error": f"{type(error).__name__}: {error}"}
        return {"description": tool.description, "parameters": tool.params_json_schema}

    return {name: describe(function) for name, function in FUNCTIONS.items()}


if __name__ == "__main__":
    framework = sys.argv[1]
    made = {"pydantic-ai": of_pydantic_ai, "openai-agents": of_openai_agents}[framework]()
    package = {"pydantic-ai": "pydantic-ai-slim"}.get(framework, framework)
    print(
        json.dumps(
            {"framework": framework, "version": importlib.metadata.version(package), "tools": made},
            indent=1,
            ensure_ascii=False,
        )
    )
