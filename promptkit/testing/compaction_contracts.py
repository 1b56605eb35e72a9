"""Check what every policy and every summarizer promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import get_args

import attrs

from promptkit import ContextBudget, Message, ToolCall, Transcript
from promptkit.compaction import (
    ApplySummary,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    KeepLastRound,
    LastRequest,
    NoAction,
    Policy,
    PolicyState,
    Promote,
    RenderPruned,
    Summarizer,
    Summary,
    SummaryTask,
    Wait,
)
from promptkit.compaction.planning.selection import select
from promptkit.compaction.policy.rules import TOO_LARGE
from promptkit.compaction.policy.state import Attempts, BackgroundState, Phase
from promptkit.errors import SummaryError
from promptkit.messages import is_instance
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.transcript import Checkpoint, build_view

MAX_DECISIONS = 10
"""Decisions after which a policy must have ended a request that stays too large."""

BUDGET = ContextBudget(window=10_000, reserved_output_tokens=0)
ATTEMPTS = (Attempts(), Attempts().after_attempt("failed"), Attempts(consecutive_unsuccessful=9))


def check_policy(policy: Policy) -> None:
    """Check that a policy decides in every state, and that its decisions can be carried out.

    It is asked in some thousand states. Each decision has a reason, and is the same for the same
    state. The user's own request for a compaction is done. Without automatic compaction nothing else
    is. Only a request that is too large waits, is pruned or fails, only a background summary that
    exists is waited for or applied, and a request that no summary makes smaller has an end.

    Args:
        policy: The policy. One that draws random numbers is given a fixed generator.

    Raises:
        AssertionError: The policy breaks a promise. The message has the decision and the state.

    >>> check_policy(first_match([compact_on_demand, on_overflow(), compact_at(0.85)]))
    """
    for state in _list_states():
        decision = policy.decide(state)
        _check(decision, policy.decide(state) == decision, "differs for the same state", state)
        _check(decision, isinstance(decision, get_args(Decision)), "is no decision", state)
        _check(decision, decision.reason.why.strip(), "has no reason", state)
        _check(decision, _is_possible(decision, state), "cannot be carried out", state)
        if state.phase == "manual":
            _check(decision, isinstance(decision, Compact), "is not what the user asks for", state)
        elif not state.enabled:
            _check(
                decision,
                isinstance(decision, NoAction | DiscardSummary | RenderPruned | Fail),
                "was made although compaction is off",
                state,
            )
        if state.phase in TOO_LARGE:
            _check(decision, _ends(policy, state), "is repeated without an end", state)


def _check(found: object, holds: object, problem: str, state: object) -> None:
    if not holds:
        raise AssertionError(f"{found!r} {problem}: {state!r}.")


def _list_states() -> Iterator[PolicyState]:
    flags = (False, True)
    phases: tuple[Phase, ...] = get_args(Phase)
    backgrounds: tuple[BackgroundState, ...] = get_args(BackgroundState)
    for phase, tokens, background, attempts, enabled, warm, done in product(
        phases, (None, 100, 8_000, 9_600, 12_000), backgrounds, ATTEMPTS, flags, flags, flags
    ):
        yield PolicyState(
            phase=phase,
            budget=BUDGET,
            tokens=tokens,
            background=background,
            attempts=attempts,
            enabled=enabled,
            warm=warm,
            mid_turn=warm,
            messages=40,
            compacted=done,
            waited=done,
            extracted=done,
        )


def _is_possible(decision: Decision, state: PolicyState) -> bool:
    match decision:
        case Wait():
            return state.background == "running" and state.phase in (*TOO_LARGE, "before_render")
        case ApplySummary():
            return state.background == "ready"
        case DiscardSummary():
            return state.background != "idle"
        case Promote():
            return state.larger_model is not None
        case RenderPruned() | Fail():
            return state.phase in TOO_LARGE
        case _:
            return True


def _ends(policy: Policy, state: PolicyState) -> bool:
    """Return whether a policy comes to an end with a request that nothing makes smaller."""
    for _ in range(MAX_DECISIONS):
        match policy.decide(state):
            case Wait():
                state = attrs.evolve(state, waited=True, background="ready")
            case ApplySummary() | DiscardSummary():
                state = attrs.evolve(state, background="idle", compacted=True)
            case Compact(extract=extract):
                state = attrs.evolve(
                    state,
                    compacted=True,
                    attempts=state.attempts.after_attempt("not reduced"),
                    extracted=extract or state.extracted,
                    background="idle",
                )
            case _:
                return True
    return False


def check_summarizer(
    make: Callable[[], Summarizer], *, tokenizer: Tokenizer | None = None, max_tokens: int = 2_000
) -> None:
    """Check that a summarizer returns a summary that a checkpoint can have, or raises a SummaryError.

    It gets a conversation with tool calls, the same after an earlier summary, with instructions of
    the user, and one with long messages.

    Args:
        make: Returns a new summarizer for each task, such as one with a `ScriptedModel`.
        tokenizer: Counts the summaries. Default: that of OpenAI's models.
        max_tokens: The most tokens of a summary.

    Raises:
        AssertionError: The summarizer breaks a promise. The message has the summary and the task.

    >>> check_summarizer(ExtractiveSummarizer)
    """
    import asyncio  # not for those who only test a policy

    counter, errors = tokenizer or tokenizer_for(None), list[str]()
    tasks = list(_list_tasks(counter, max_tokens))
    for task in tasks:
        before = repr(attrs.asdict(task))
        try:
            summary = asyncio.run(make().summarize(task))
        except SummaryError as error:
            _check(error, str(error), "has no text", task)
            errors.append(str(error))
            continue
        _check(task, repr(attrs.asdict(task)) == before, "was changed by the summarizer", summary)
        _check(summary, is_instance(summary, Summary), "is no Summary", task)
        _check(summary, summary.text.strip() and summary.mode, "has no text, or no mode", task)
        tokens = counter.count(summary.text)
        _check(summary, tokens <= task.max_tokens, f"has {tokens:,} tokens", task)
        _check(summary, summary.usage is None or summary.model, "has a usage and no model", task)
        json.dumps([summary.facts.to_json(), dict(summary.data)])  # a transcript keeps them
    _check(errors, len(errors) < len(tasks), "are all that it has made of", tasks)


def _list_tasks(tokenizer: Tokenizer, max_tokens: int) -> Iterator[SummaryTask]:
    for previous, instructions, size in (
        (None, None, 1),
        ("The parser was read.", None, 1),
        (None, "Keep the names of files.", 1),
        (None, None, 400),
    ):
        transcript = Transcript()
        if previous is not None:
            transcript.append(Checkpoint(summary=previous))
        for number in range(4):
            call = ToolCall(id=f"c{number}", name="read_file", arguments='{"path": "parser.py"}')
            transcript.append_messages(
                Message(role="user", content=(f"Review part {number}. " * size,)),
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", tool_call_id=call.id, content=("def parse(): ...\n" * size,)),
                Message(role="assistant", content=(f"Part {number} is sound.",)),
            )
        view = build_view(transcript.path())
        yield SummaryTask(
            plan=select(
                view, leaf=transcript.leaf or "", tokenizer=tokenizer, keep=KeepLastRound()
            ),
            max_tokens=max_tokens,
            instructions=instructions,
            last_request=LastRequest(messages=tuple(item.message for item in view.items)),
        )
