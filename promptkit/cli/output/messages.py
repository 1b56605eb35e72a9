"""Print renders: plain lines that fit 80 columns and need no colour, or JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from promptkit import Message, OpaquePart, Rendered
from promptkit.cli.output.terminal import (
    count_nouns,
    describe_part,
    draw_bar,
    print_legend,
    show_text,
)
from promptkit.rendering import Removal
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import tokenizer_for

BAR = 40
"""Columns of a bar."""

LIST_LINES = 6
"""Lines of a list that are printed before the rest is folded. As many are printed at the end of a
list of messages."""

MAX_STEPS = 3
"""Steps of an element's path that are printed. Of a longer one, only the last two are."""

REASONS = {
    "budget": "removed to fit the budget",
    "limit": "removed to fit a TokenLimit inside the prompt",
    "kept-with": "removed with an element of its KeepWith group, whose number stands behind it",
    "tool-pair": "removed with the tool call or tool result that it belongs to, whose number stands behind it",
    "share": "removed because it is text around elements whose shares of the budget hold none of their content",
}
"""Reason of a removal → what it means."""

STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}


def print_renders(
    title: str,
    conversation: Sequence[Message],
    renders: Sequence[Rendered],
    *,
    everything: bool,
) -> None:
    """Print each render: its budget as a bar, the messages kept, and the removals.

    Args:
        title: The heading.
        conversation: All messages, before rendering.
        renders: The renders, one for each budget.
        everything: Print all lines. By default long lists are folded.
    """
    console = Console(highlight=False)
    fold = None if everything else LIST_LINES
    console.print(Text(title, style="bold"))
    console.print(
        f"{len(conversation):,} messages, rendered at {count_nouns(len(renders), 'budget')}"
    )
    for rendered in renders:
        console.print()
        console.print(_bar(rendered, console))
        console.print()
        _print_kept(console, rendered.messages, fold)
        _print_removed(console, rendered.removals, fold)
    reasons = {removal.reason for rendered in renders for removal in rendered.removals[:fold]}
    if legend := [(reason, meaning) for reason, meaning in REASONS.items() if reason in reasons]:
        console.print()
        print_legend(legend, width=console.width, indent=2)


def print_messages(rendered: Rendered) -> None:
    """Print the messages in full, each under its role, and their tokens."""
    console = Console(highlight=False)
    for message in rendered.messages:
        heading = " ".join(
            word for word in (message.role, message.name, message.tool_call_id) if word
        )
        console.print(Text(f"── {show_text(heading)} ".ljust(BAR, "─"), style=STYLES[message.role]))
        for line in (*_text(message).splitlines(), *_calls(message)):
            console.print(Text(line), soft_wrap=True)
        console.print()
    removed = len(rendered.removals)
    console.print(
        f"{rendered.tokens:,} of {rendered.budget:,} tokens, {count_nouns(len(rendered.messages), 'message')}"
        f", {f'{removed:,} removed' if removed else 'nothing removed'}"
    )


def _bar(rendered: Rendered, console: Console) -> Text:
    share = rendered.tokens / rendered.budget if rendered.budget else 1
    start, end = f"{rendered.budget:>9,} tokens  ", f"  {rendered.tokens:,} used"
    width = max(1, min(BAR, console.width - len(start) - len(end)))
    return Text.assemble((start, "bold"), draw_bar(console, share, width, "green"), end)


def _print_kept(console: Console, messages: Sequence[Message], fold: int | None) -> None:
    count = Sizer(tokenizer_for(None)).count_message
    console.print("  Kept (role, tokens, first line):")
    rows = [
        (f"  {each.role:<9} {count(each):>7,}  ", _first_line(each), STYLES[each.role])
        for each in messages
    ]
    # A single message is not folded: the line that says so would be as long.
    if fold and len(messages) > 2 * fold + 1:
        tokens = sum(map(count, messages[fold:-fold]))
        more = f"{len(messages) - 2 * fold:,} more messages"
        rows[fold:-fold] = [(f"  {'…':<9} {tokens:>7,}  ", more, "bright_black")]
    for start, text, style in rows:
        _print_row(console, start, text, style)


def _print_removed(console: Console, removals: Sequence[Removal], fold: int | None) -> None:
    if not removals:
        console.print("\n  Nothing removed.")
        return
    console.print(
        f"\n  Removed {count_nouns(len(removals), 'element')}, {sum(each.tokens for each in removals):,} tokens, in this order (tokens, reason, element):"
    )
    shown = removals if fold is None or len(removals) <= fold + 1 else removals[:fold]
    orders = {removal.path: removal.order for removal in removals}
    reasons = [
        each.reason if partner is None else f"{each.reason} {partner}."
        for each, partner in zip(
            shown,
            [orders.get(each.partner) if each.partner else None for each in shown],
            strict=True,
        )
    ]
    width = min(max(map(len, reasons)), BAR, console.width // 3)
    for removal, reason in zip(shown, reasons, strict=True):
        _print_row(
            console,
            f"  {removal.order:>8}. {removal.tokens:>7,}  ",
            f"{reason:<{width}}  {_short_path(removal.label)}",
            "bright_black",
        )
    if rest := removals[len(shown) :]:
        console.print(
            f"  {'…':>9} {sum(removal.tokens for removal in rest):>7,}  {len(rest):,} more"
        )


def _print_row(console: Console, start: str, text: str, style: str) -> None:
    line = Text.assemble((start, style), show_text(text))
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, soft_wrap=True)


def _short_path(label: str) -> str:
    steps = label.split(" > ")
    return " > ".join(["…", *steps[-2:]] if len(steps) > MAX_STEPS else steps)


def _first_line(message: Message) -> str:
    lines = [" ".join(line.split()) for line in _text(message).splitlines() if line.strip()]
    return " ".join((*lines[:1], *_calls(message))) or "(empty)"


def _text(message: Message) -> str:
    return show_text(
        "".join(
            f"[{json.dumps(part.value)[:60]}]"
            if isinstance(part, OpaquePart)
            else describe_part(part)
            for part in message.content
        )
    )


def _calls(message: Message) -> list[str]:
    return [show_text(f"→ {call.name} {call.arguments}") for call in message.tool_calls]


def rendered_to_json(rendered: Rendered) -> dict[str, object]:
    """Return tokens, budget, exactness, messages in OpenAI's chat format, and the removals in order, as a JSON object.

    The priority of an element without one is null, which is the highest.
    """
    return {
        "tokens": rendered.tokens,
        "budget": rendered.budget,
        "exact": rendered.exact,
        "messages": rendered.to_chat(),
        "removals": [
            {
                "order": removal.order,
                "path": removal.path,
                "label": removal.label,
                # JSON cannot express -inf.
                "priority": None
                if removal.priority is None
                else max(removal.priority, -sys.float_info.max),
                "tokens": removal.tokens,
                "reason": removal.reason,
                "partner": removal.partner,
            }
            for removal in rendered.removals
        ],
    }
