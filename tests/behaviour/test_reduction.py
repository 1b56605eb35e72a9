"""The laws of reductions, for every request and every conversation.

Examples of each rule: tests/unit/compaction/pruning/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.planning.tool_calls import FILE_RULES
from promptkit.compaction.policy.usage import UsageMeter
from promptkit.compaction.pruning.processors import (
    Processor,
    RequestLimits,
    cap_tool_results,
    clear_results,
    remove_images,
    truncate_history,
)
from promptkit.compaction.pruning.tool_outputs import OutputRules, ReduceToolResults, prune_outputs
from promptkit.fitting import describe_omitted
from promptkit.fitting.choose import fit_history
from promptkit.messages import ImagePart, Message, ToolCall
from promptkit.pairing import pair_tool_calls
from tests.behaviour.conversation_strategies import TOKENIZER, talks
from tests.conversations import ConversationBuilder, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

IMAGE = ImagePart(url="https://example.com/x.png")
IDS = st.sampled_from(["a", "b", "c"])
MARKER = TOKENIZER.count(describe_omitted(1)) + 1


def messages() -> SearchStrategy[list[Message]]:
    """Any messages: also results of no call, calls without results, ids that are used again."""
    content = st.lists(
        st.one_of(st.integers(1, 90).map(lambda size: "w " * size), st.just(IMAGE)),
        min_size=1,
        max_size=3,
    ).map(tuple)
    calls = st.lists(
        st.builds(ToolCall, id=IDS, name=st.sampled_from(["read", "skill"])), max_size=3
    ).map(tuple)
    one = st.one_of(
        st.builds(Message, role=st.sampled_from(["system", "user"]), content=content),
        st.builds(Message, role=st.just("assistant"), content=content, tool_calls=calls),
        st.builds(Message, role=st.just("tool"), content=content, tool_call_id=IDS),
    )
    return st.lists(one, max_size=12)


def tokens(given_: Sequence[Message]) -> int:
    return sum(map(UsageMeter(TOKENIZER).sizer.count_message, given_))


PROCESSORS: dict[str, Processor] = {
    "truncate": truncate_history(),
    "cap": cap_tool_results(30),
    "images": remove_images(),
    "clear": clear_results(1, step=2),
}


@pytest.mark.parametrize("name", PROCESSORS)
@given(given_=messages(), pruned=st.booleans())
def test_a_processor_gives_its_own_result_back_as_it_is(
    name: str, given_: list[Message], pruned: bool
) -> None:
    limits = RequestLimits(limit=200, fixed_tokens=20, tokenizer=TOKENIZER, pruned=pruned)
    once = tuple(PROCESSORS[name](pair_tool_calls(given_).messages, limits))
    assert tuple(PROCESSORS[name](once, limits)) == once


def limits_of(limit: int, beside: int = 0) -> RequestLimits:
    return RequestLimits(limit=limit, fixed_tokens=beside, tokenizer=TOKENIZER, pruned=True)


@pytest.mark.parametrize("name", ["cap", "images", "clear"])
@given(given_=messages())
def test_what_the_system_and_the_user_said_last_stays_and_so_do_the_ids_and_nothing_grows(
    name: str, given_: list[Message]
) -> None:
    done = PROCESSORS[name](given_, limits_of(200))
    assert [message for message in done if message.role == "system"] == [
        each for each in given_ if each.role == "system"
    ]
    last = [message for message in given_ if message.role == "user"][-1:]
    assert [message for message in done if message.role == "user"][-1:] == last
    for message, before in zip(done, given_, strict=True):
        assert (message.role, message.tool_calls, message.tool_call_id) == (
            before.role,
            before.tool_calls,
            before.tool_call_id,
        )
        assert message == before or tokens([message]) < tokens([before])


@given(
    given_=messages(),
    limit=st.integers(0, 400),
    beside=st.integers(0, 50),
    step=st.sampled_from([0, 0.25, 0.5]),
)
def test_a_truncated_request_fits_or_stays_as_it_is(
    given_: list[Message], limit: int, beside: int, step: float
) -> None:
    paired = pair_tool_calls(given_).messages
    done = truncate_history(step)(paired, limits_of(limit, beside))
    assert done is paired or tokens(done) + beside <= limit
    last = [message for message in paired if message.role == "user"][-1:]
    kept = [message for message in paired if message.role == "system"] + last
    assert all(any(message is each for each in done) for message in kept)
    least = fit_history(
        paired,
        0,
        tokenizer=TOKENIZER,
        shorten="request",
        whole=[at for at, each in enumerate(paired) if each in last],
    )
    if done is paired and tokens(paired) + beside > limit:
        assert least.tokens + MARKER + beside > limit


@pytest.mark.spec("E10")
@given(given_=messages(), limit=st.integers(0, 400))
def test_every_result_that_is_sent_stands_behind_its_call(
    given_: list[Message], limit: int
) -> None:
    assert not pair_tool_calls(
        truncate_history()(pair_tool_calls(given_).messages, limits_of(limit))
    ).repairs


@given(given_=messages(), limit=st.integers(0, 400))
def test_a_truncated_request_says_how_many_messages_it_leaves_out(
    given_: list[Message], limit: int
) -> None:
    paired = pair_tool_calls(given_).messages
    done = truncate_history()(paired, limits_of(limit))
    marker = [message for message in done if message.text.endswith(" omitted]")]
    dropped = len(paired) - (len(done) - len(marker))
    assert [message.text for message in marker] == ([describe_omitted(dropped)] if dropped else [])


@given(
    talk=talks(size=20),
    protect=st.integers(0, 40),
    age=st.none() | st.integers(0, 4),
    superseded=st.booleans(),
)
def test_pruning_twice_is_pruning_once_and_saves_what_it_says(
    talk: ConversationBuilder, protect: int, age: int | None, superseded: bool
) -> None:
    reduce = ReduceToolResults(protect_tokens=protect, max_age=age, superseded=superseded)
    # The outputs of these conversations are small: they are made large enough to be worth it.
    for entry in list(talk.path):
        if (
            entry.message
            and entry.message.role == "tool"
            and entry.id in {item.entry_id for item in talk.view.items}
        ):
            talk.edit(entry.id, "large " * 80)
    before = tokens(talk.view.messages)
    newest = newest_outputs(talk)
    made = prune_outputs(talk.path, talk.view, reduce, tokenizer=TOKENIZER)
    repairs = talk.view.repairs
    ids = [(message.tool_call_id, message.tool_calls) for message in talk.view.messages]
    if made.edits:
        talk.append(*made.edits)
    assert before - tokens(talk.view.messages) == made.saved_tokens
    assert newest == newest_outputs(talk)
    assert (
        talk.view.repairs,
        [(message.tool_call_id, message.tool_calls) for message in talk.view.messages],
    ) == (repairs, ids)
    assert prune_outputs(talk.path, talk.view, reduce, tokenizer=TOKENIZER).edits == ()


def newest_outputs(talk: ConversationBuilder) -> list[Message]:
    """The outputs of the newest round that has any."""
    messages = talk.view.messages
    at = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "tool"), -1)
    start = next((start for start in range(at, -1, -1) if messages[start].role != "tool"), 0)
    return [*messages[start : at + 1]]


CALLS = st.tuples(
    st.sampled_from(["read", "view", "bash", "skill"]),
    st.sampled_from(
        [
            '{"path": "a"}',
            '{"path": "a", "offset": 3}',
            '{"path": "b"}',
            '{"files": ["a", "b"]}',
            "{}",
            "{broken",
        ]
    ),
    st.integers(1, 160),
)


@given(
    calls=st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=8), knows_files=st.booleans()
)
def test_of_results_of_the_same_call_the_newest_stays_and_none_is_lost_that_no_other_shows(
    calls: list[list[tuple[str, str, int]]], knows_files: bool
) -> None:
    talk = ConversationBuilder()
    by_entry: dict[str, tuple[str, str, int]] = {}
    for number, together in enumerate(calls):
        made = tuple(
            ToolCall(id=f"c{number}_{at}", name=tool, arguments=given_)
            for at, (tool, given_, _) in enumerate(together)
        )
        talk.say(Message(role="assistant", tool_calls=made))
        for call, what in zip(made, together, strict=True):
            talk.result(call.id, words(what[2]))
            by_entry[talk.path[-1].id] = what
    done = prune_outputs(
        talk.path,
        talk.view,
        ReduceToolResults(protect_tokens=10**6),
        tokenizer=TOKENIZER,
        rules=OutputRules(file_rules=FILE_RULES if knows_files else ()),
    )
    replaced = {edit.target for edit in done.edits}
    assert done.old == ()
    newest = {what[:2]: entry_id for entry_id, what in by_entry.items()}
    if not knows_files:  # then only the same call supersedes
        assert replaced.isdisjoint(newest.values())
    order = list(by_entry)
    for entry_id in replaced:
        tool, given_, size = by_entry[entry_id]
        newer = [
            by_entry[other] for other in order[order.index(entry_id) + 1 :] if other not in replaced
        ]
        path = given_[10:11] if '"path"' in given_ and tool in {"read", "view"} else None
        whole = f'{{"path": "{path}"}}'
        assert any(
            (
                other[:2] == (tool, given_)
                or (path and knows_files and other[0] in {"read", "view"} and other[1] == whole)
            )
            and 2 * other[2] >= size
            for other in newer
        )
