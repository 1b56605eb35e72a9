"""Renders as people read them: plain lines that fit 80 columns and need no colour.

What a render came to, as JSON for machines.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit import Message, Removal, Rendered, Tokenizer
    from promptkit.messages import Part

__all__ = ["rendered_to_json", "message_tokens", "print_renders", "print_messages", "print_json"]


BAR = 40
"""Characters."""

SHOWN = 6
"""Lines of a list that are shown before it is folded; so many again at the end of the messages."""

STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}


def print_renders(title: str, conversation: Sequence[Message], renders: Sequence[Rendered], tokenizer: Tokenizer, *, everything: bool) -> None:
    """Print each render: its budget as a bar, the messages kept, and the receipt. Long lists are folded unless `everything`."""
    console = Console(highlight=False)
    fold = None if everything else SHOWN
    console.print(Text(title, style="bold"))
    console.print(f"{len(conversation):,} messages, rendered at {len(renders)} {_plural(len(renders), 'budget')}")
    for rendered in renders:
        console.print()
        console.print(_bar(rendered, console))
        console.print()
        _print_kept(console, rendered.messages, tokenizer, fold)
        _print_removed(console, rendered.removals, fold)


def print_messages(rendered: Rendered) -> None:
    """Print the messages in full, each under its role, and what they cost."""
    console = Console(highlight=False)
    for message in rendered.messages:
        heading = " ".join(word for word in (message.role, message.name, message.tool_call_id) if word)
        console.print(Text(f"── {heading} ".ljust(BAR, "─"), style=STYLES[message.role]))
        for line in (*_text(message, console).splitlines(), *_calls(message, console)):
            console.print(Text(line), soft_wrap=True)
        console.print()
    removed = len(rendered.removals)
    console.print(
        f"{rendered.tokens:,} of {rendered.budget:,} tokens, {_counted(len(rendered.messages), 'message')}"
        f", {f'{removed:,} removed' if removed else 'nothing removed'}"
    )


def message_tokens(message: Message, tokenizer: Tokenizer) -> int:
    """The tokens of one message, as a render counts them."""
    return Sizer(tokenizer).count_message(message)


def _bar(rendered: Rendered, console: Console) -> Text:
    full, empty = "█░" if console.encoding.startswith("utf") else "#."
    share = rendered.tokens / rendered.budget if rendered.budget else 1
    filled = min(BAR, round(BAR * share))
    return Text.assemble(
        (f"{rendered.budget:>9,} tokens  ", "bold"),
        (full * filled, "green"),
        (empty * (BAR - filled), "bright_black"),
        f"  {rendered.tokens:,} used",
    )


def _print_kept(console: Console, messages: Sequence[Message], tokenizer: Tokenizer, fold: int | None) -> None:
    # One line more than is folded away costs less than saying that it is.
    hidden = messages[fold : len(messages) - fold] if fold and len(messages) > 2 * fold + 1 else ()
    for index, message in enumerate(messages):
        if index == fold and hidden:
            tokens = sum(message_tokens(each, tokenizer) for each in hidden)
            _print_row(console, f"  {'…':<9} {tokens:>7,}  ", f"{len(hidden):,} more messages", "bright_black")
        elif not hidden or not fold or index < fold or index >= len(messages) - fold:
            tokens = message_tokens(message, tokenizer)
            _print_row(console, f"  {message.role:<9} {tokens:>7,}  ", _first_line(message, console), STYLES[message.role])


def _print_removed(console: Console, removals: Sequence[Removal], fold: int | None) -> None:
    if not removals:
        console.print("\n  Nothing removed.")
        return
    total = sum(removal.tokens for removal in removals)
    console.print(f"\n  Removed, first to last: {_counted(len(removals), 'piece')}, {total:,} tokens")
    shown = removals if fold is None or len(removals) <= fold + 1 else removals[:fold]
    reasons = [f"{each.reason} {_last_step(each.partner)}" if each.partner else each.reason for each in shown]
    width = min(max(map(len, reasons)), BAR)
    for removal, reason in zip(shown, reasons, strict=True):
        _print_row(
            console, f"  {removal.order:>8}. {removal.tokens:>7,}  ", f"{reason:<{width}}  {_short_path(removal.path)}", "bright_black"
        )
    if rest := removals[len(shown) :]:
        console.print(f"  {'…':>9} {sum(removal.tokens for removal in rest):>7,}  {len(rest):,} more")


def _print_row(console: Console, start: str, text: str, style: str) -> None:
    line = Text.assemble((start, style), text)
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, soft_wrap=True)


def _short_path(path: str) -> str:
    steps = path.split(" > ")
    return " > ".join(["…", *steps[-2:]] if len(steps) > 3 else steps)  # noqa: PLR2004  # steps


def _last_step(path: str) -> str:
    return path.rsplit(" > ", 1)[-1]


def _first_line(message: Message, console: Console) -> str:
    lines = [" ".join(line.split()) for line in _text(message, console).splitlines() if line.strip()]
    return " ".join((*lines[:1], *_calls(message, console))) or "(empty)"


def _text(message: Message, console: Console) -> str:
    return _harmless("".join(_part(part) for part in message.content), console)


def _calls(message: Message, console: Console) -> list[str]:
    return [_harmless(f"→ {call.name} {call.arguments}", console) for call in message.tool_calls]


def _part(part: Part) -> str:
    match part:
        case str(text):
            return text
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case OpaquePart(value=value):
            return f"[{json.dumps(value)[:60]}]"
        case _:
            return ""


def _harmless(text: str, console: Console) -> str:
    """Text that cannot move the cursor or recolour a terminal; a file gets it as it is."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda match: f"\\x{ord(match[0]):02x}", text) if console.is_terminal else text


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {_plural(number, noun)}"


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"


def rendered_to_json(rendered: Rendered) -> dict[str, object]:
    """Tokens, budget, exactness, the messages in the form of OpenAI's chat endpoint, and the removals in the order in which they were made.

    A priority is null where the element has none, which is as high as can be.
    """
    return {
        "tokens": rendered.tokens,
        "budget": rendered.budget,
        "exact": rendered.exact,
        "messages": rendered.to_openai(),
        "removals": [
            {
                "order": removal.order,
                "path": removal.path,
                "priority": removal.priority if math.isfinite(removal.priority) else None,
                "tokens": removal.tokens,
                "reason": removal.reason,
                "partner": removal.partner,
            }
            for removal in rendered.removals
        ],
    }


def print_json(value: object) -> None:
    """Print a value as JSON, in ASCII: a prompt may hold what an encoding cannot write."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
