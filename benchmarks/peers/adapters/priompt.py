"""priompt from PyPI: scopes with relative priorities, as in its README.

A call and its result stand in one scope.

No postponed annotations here: priompt reads those of its components when they are called.
"""

from importlib import import_module
from typing import Any

__all__ = ["claim", "encode", "fit", "wire"]

priompt: Any = import_module("priompt")  # Any: only in the peer's own environment
encode = import_module("tiktoken").get_encoding("o200k_base").encode_ordinary


@priompt.component  # type: ignore[untyped-decorator]  # as above
def prompt(items: list[dict[str, Any]]) -> list[Any]:  # Any: its trees are dicts
    return _scopes(items)


def _scopes(items: list[dict[str, Any]]) -> list[Any]:  # Any: its trees are dicts
    scopes: list[Any] = []  # Any: as above
    for age, item in enumerate(items):
        if item["role"] == "tool":
            continue
        pair = [_message(item)]
        if "tool_calls" in item:
            pair.append(
                priompt.ToolResultMessage(
                    items[age + 1]["content"],
                    name=item["tool_calls"][0]["function"]["name"],
                    to=items[age + 1]["tool_call_id"],
                )
            )
        scopes.append(priompt.Scope(*pair, prel=age - len(items)))
    return scopes


@priompt.component  # type: ignore[untyped-decorator]  # as above
# Any stands for its trees are dicts
def readme_prompt(items: list[dict[str, Any]], budget: int) -> list[Any]:
    system, *turns, log, request = items
    lines = [
        priompt.Scope(line + "\n", prel=age - len(items))
        for age, line in enumerate(log["content"].split("\n"))
    ]
    return [
        priompt.SystemMessage(system["content"]),
        *_scopes(turns),
        priompt.UserMessage(priompt.Isolate(*lines, token_limit=budget // 4)),
        priompt.UserMessage(request["content"]),
    ]


@priompt.component  # type: ignore[untyped-decorator]  # as above
def message_of_lines(items: list[dict[str, Any]]) -> Any:  # noqa: ANN401  # Any: its trees are dicts
    lines = [
        priompt.Scope(item["content"] + "\n", prel=age - len(items))
        for age, item in enumerate(items)
    ]
    return priompt.UserMessage(*lines)


def _message(item: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: its trees are dicts
    if "tool_calls" in item:
        calls = [
            {"id": call["id"], "index": 0, "tool": {"function": call["function"]}}
            for call in item["tool_calls"]
        ]
        return priompt.AssistantMessage(*filter(None, [item["content"]]), tool_calls=calls)
    message = priompt.UserMessage if item["role"] == "user" else priompt.AssistantMessage
    return message(item["content"])


def fit(work: dict[str, Any]) -> Any:  # noqa: ANN401  # Any: its results are dicts
    match work["shape"]:
        case "chunks":
            tree = message_of_lines(items=work["items"])
        case "history":
            tree = readme_prompt(items=work["items"], budget=work["budget"])
        case _:
            tree = prompt(items=work["items"])
    return priompt.render(
        tree, {"token_limit": work["budget"], "tokenizer": priompt.O200KTokenizer}
    )


def wire(result: dict[str, Any]) -> list[dict[str, Any]]:  # Any: JSON
    prompted: Any = result["prompt"]  # Any: one message alone, or several
    return [_wired(message) for message in prompted.get("messages", [prompted])]


def _wired(message: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    content = message.get("content") or ""
    # Any stands for JSON
    wired: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else "".join(content),
    }
    if message.get("tool_calls"):
        calls = message["tool_calls"]
        wired["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": call["tool"]["function"]}
            for call in calls
        ]
    if message["role"] == "tool":
        wired["tool_call_id"] = message["to"]
    return wired


def claim(result: dict[str, Any]) -> int:  # Any: JSON
    return int(result["token_count"])
