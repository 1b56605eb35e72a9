"""What was said once in a long conversation is found by the words of a question about it."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.recall.tool import recall
from promptkit.messages import Message, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

# The kind of the question, who says the sentence, the sentence, the question, the answer.
FACTS = [
    ("same", "tool", "the retry budget of the billing worker is 17 attempts", "What is the retry budget of the billing worker?", "17 attempts"),
    ("same", "tool", "ERROR E4412: checksum mismatch in shard seven", "Which error code came with the checksum mismatch in the shard?", "E4412"),
    ("same", "tool", "staging database host: db-stg-04.internal.example", "What is the host of the staging database?", "db-stg-04"),
    ("same", "tool", "def rebalance(weights): # tolerance 0.0035", "What tolerance does rebalance use?", "0.0035"),
    ("same", "tool", "MAX_UPLOAD_BYTES = 52428801", "What is the value of MAX_UPLOAD_BYTES?", "52428801"),
    ("same", "user", "Please never touch the folder legacy/payroll.", "Which folder must never be touched?", "legacy/payroll"),
    ("same", "user", "Our deploy window is Tuesday 03:15 UTC.", "When is our deploy window?", "03:15"),
    ("same", "assistant", "I chose the Levenshtein automaton because tries used 9 GB.", "How much memory did the tries use?", "9 GB"),
    ("form", "tool", "indexes were rebuilt in 341 seconds", "How long did rebuilding the index take?", "341"),
    ("form", "tool", "the scheduler dropped 2,204 jobs", "Who drops a job?", "2,204"),
    ("form", "tool", "userAuthenticationTimeoutMs: 7350", "What is the timeout for user authentication?", "7350"),
    ("form", "tool", "parsing failed for 12 invoices with umlauts", "How many failures to parse an invoice?", "12 invoices"),
    ("form", "user", "The reviewer will be Anastasia Petrenko.", "Who reviews this?", "Petrenko"),
    ("form", "user", "We are migrating off Oracle onto CockroachDB.", "Where is the migration to?", "CockroachDB"),
    ("form", "assistant", "The leak was caused by an unclosed cursor in export_rows.", "What made it leaking?", "export_rows"),
    ("form", "user", "I prefer snake_case for all names.", "Which naming style does the user like?", "snake_case"),
    ("language", "user", "Der Kunde heißt Müller & Söhne und sitzt in Regensburg.", "Wie heißen die Kunden?", "Müller"),
    ("language", "user", "数据库的端口是 55432。", "数据库的端口是什么", "55432"),
    ("language", "tool", "порог срабатывания датчика равен 61", "Какие пороги датчиков?", "61"),
]  # fmt: skip

FILLER = (
    "name cache cached caches time times live item items style review reviews reviewed test tests tested worker queue deploy folder "
    "error code value file read write call tool model window summary message request token index list failing failed result user "
    "session answer shown kept part line number the of a and in to is for with by on it at as or"
)

STOP = "what which who when how much many does did the is are was where our of for with must be it in to"


def say(seed: object, words: int) -> str:
    rng = random.Random(str(seed))
    filler = FILLER.split()
    return " ".join(rng.choice(filler) for _ in range(words))


@pytest.fixture(scope="module")
def ask() -> Callable[..., str]:
    transcript = Transcript()
    for at, (_, who, fact, _, _) in enumerate(FACTS):
        lines = [say((at, "line", number), 10) for number in range(90)]
        lines.insert(random.Random(at).randrange(90), fact if who == "tool" else "")
        call = ToolCall(id=f"c{at}", name="read_file", arguments={"path": f"src/part{at}.py"})
        transcript.append_messages(
            Message(
                role="user", content=f"{fact if who == 'user' else ''} {say((at, 'user'), 40)}"
            ),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", tool_call_id=call.id, content="\n".join(lines)),
            Message(
                role="assistant",
                content=f"{fact if who == 'assistant' else ''} {say((at, 'answer'), 60)}",
            ),
        )
        for number in range(2):
            transcript.append_messages(
                Message(role="user", content=say((at, "more", number), 60)),
                Message(role="assistant", content=say((at, "then", number), 60)),
            )
    return partial(recall, transcript.path(), tokenizer=WordTokenizer())


@pytest.mark.parametrize(
    ("question", "answer"), [(question, answer) for *_, question, answer in FACTS]
)
def test_a_fact_is_found_by_the_words_of_a_question(
    ask: Callable[..., str], question: str, answer: str
) -> None:
    asked = re.findall(r"[\w./-]+", question)
    query = " ".join(word for word in asked if word.lower() not in STOP.split())
    pages = [ask({"query": query, "page": page}, max_tokens=600) for page in (1, 2)]
    assert any(answer in page for page in pages)
