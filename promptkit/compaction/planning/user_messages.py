"""User messages that stay verbatim beside a summary: as messages, or as one text that is marked as history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import attrs

from promptkit.compaction.planning.blocks import (
    ANSWERED,
    OPEN,
    find_open_user_requests,
    is_user_request,
    mark_request,
    unmark_request,
)
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import AtLeast, read_tokens
from promptkit.tokens import Tokenizer
from promptkit.tokens.truncation import cut_text, truncate_text
from promptkit.transcript import ViewItem
from promptkit.transcript.log.view import escape_block_tags

MARKER = "[…]"
"""Replaces the middle of a truncated message."""

HISTORY_SHARE = 8
"""The user's earlier messages beside a summary take at most an eighth of what a conversation may
have. With a thirtieth, requests in a window of 32k showed two thirds of them, and cost 1 % less."""

SHORTENED_TOKENS = 24
"""A message of the user is shortened to so many tokens before those that leave later are."""

OTHERS_DIVISOR = 4
"""Messages that are shortened get at most a quarter of the text."""

_CLAUSE_START = re.compile(r"(?:^|[.!?:;,\u2014*\u2022-] )[ \t]*+")
"""Ends where a clause of a line begins, or an item of a list."""

_GERMAN_ORDERS = (
    "(?:push|committ?|merg|fass|lösch|änder|benutz|nutz|verwend|schreib|mach|lad|installier|rühr|füg|entfern|bearbeit|"
    "start|führ|modifizier|deploy|öffn|schick|send|stell|setz|überschreib|veröffentlich|verschieb|greif|ersetz|"
    "erstell|leg|test|bau|ruf)(?:e|t|en sie)|fass|lösch|schreib|mach|lad|rühr|führ|schick|stell|setz|greif|ruf|nimm|lass|geh|brich"
)
_SPANISH_ORDERS = (
    "hag|toqu|uses|borr|elimin|cambi|modifiqu|sub[ae]|empuj|escrib|instal|ejecut|edit|crees|agregu|añad|quit|muev|"
    "abr|enví|mand|publiqu|despliegu|pong|rompas|actualic|renombr|commit|push|merge"
)
_PORTUGUESE_ORDERS = (
    "faç|toqu|mex|use|apagu|alter|mud|modifiqu|remov|exclu|delet|edit|cri[ea]|execut|instal|envi|publiqu|escrev|"
    "adicion|renomei|sub|rod|commit|merge"
)

_WORDS = {
    "never": r"never(?! ?mind\b)",
    "don'|don\u2019|dont|do not": r"(?:don['\u2019]?t|do not)(?! (?:worry|mind|bother|hesitate)\b)",
    "must not|shall not|should not|may not": "must not|shall not|should not|may not",
    "mustn|shouldn": r"(?:must|should)n['\u2019]?t",
    "you can": r"you (?:can['\u2019]?t|cannot|can not)",
    "without": r"without(?! (?:any )?(?:errors?|problems?|issues?|warnings?|fail\w*|crash\w*|success|trouble)\b)",
    "not allowed|avoid|refrain|no longer": "not allowed|avoid|refrain|no longer",
    "forb|prohib|proib": r"forbid\w*|forbade|prohibit\w*|prohibid\w*|proibid\w*",
    "ask ": "ask (?:me )?(?:before|first)",
    "nie|kein": "nie|niemals|keinesfalls|auf keinen fall",
    " nicht": r"bitte nicht|(?:darf|soll)\w* nicht",
    "ohne": "ohne(?! (?:fehler|problem))",
    "verbo|verbie|vieta": r"verbot\w*|verbiet\w*|vietat\w*",
    "jama|jamás|nunca": "jamais|jamás|nunca",
    "surtout pas|de ne pas|interdi": r"surtout pas|de ne pas|interdi\w*",
    "sans": "sans(?! (?:erreur|problème))",
    "não deve": r"não deve\w*",
    "никогда|нельзя|запрещ": r"никогда|нельзя|запрещ\w*",
    "не ": r"не (?:надо|делай|трогай|меняй|удаляй)\w*",
}
_ORDERS = {
    "nicht|kein": rf"(?:bitte )?(?:{_GERMAN_ORDERS}) (?:[^.!?\n]{{0,80}} )?(?:nicht|kein\w*)\b",
    "ne |n'|n\u2019": r"(?-i:[nN])(?<!\w\w)(?:e |['\u2019])[^.!?\n]{0,40} (?:pas|jamais|rien|plus|aucun\w*)\b",
    "no ": rf"(?:por favor,? )?no (?:(?:me|lo|la|los|las|le|se) )?(?:{_SPANISH_ORDERS})\w*\b(?! (?:of|were|are|found)\b)"
    r"|no (?!(?:\w+ )?(?:such|problems?|idea|worries|rush|luck|thanks|one|way|matter|need|doubt|errors?|failures?|issues?"
    r"|changes?|differences?|results?|output|I|you|it|we|they|that|this|longer|more)\b)"
    r"(?![^\n]{0,60}\b(?:are|is|was|were|has|have|had|found|failed|passed|ran|works?|exists?|needed|changed|made|left|yet)\b)"
    r"[^\W\d][\w '-]{4,50}(?=[.!;]?\s*$)",
    "non ": r"non (?:toccate|usate|modificate|cancellate|fate|\w+[aei]r(?:e|l[oaie]))\b",
    "не ": r"(?:пожалуйста,? )?не (?!очень|весь|есть)\w+(?:[аяеую]й|[аяеую]йте|ь|ьте|ите)\b",
}
"""Known by their place, at the start of a clause."""
_FORMS = {
    "não ": rf"\bnão (?:(?:me|o|a|os|as|se) )?(?:{_PORTUGUESE_ORDERS})\w*\b",
    "不|禁|勿|别": r"不要|不得|不可|不准|不许|禁止|勿|(?<![特分区类级辨识鉴差个性告离])别(?![的人名处])",
    "な|마|금지": r"しないで|ないでください|(?<!あ)[うくすつぬぶむるぐ]な(?=よ?(?:[\u3002\uff01!\s]|$))|하지 ?마|금지",
}
"""Known by the form of the verb."""


class _Prohibition(NamedTuple):
    """A way in which a user forbids something."""

    clue: str
    """Text in small letters that each text with this prohibition has."""
    pattern: str
    opens_clause: bool
    """The pattern matches at the start of a clause."""


_PROHIBITIONS = tuple(
    _Prohibition(clue, pattern, opens_clause)
    for clues, pattern, opens_clause in [
        *((clues, rf"(?<!--)\b(?:{words})\b", False) for clues, words in _WORDS.items()),
        *((clues, order, True) for clues, order in _ORDERS.items()),
        *((clues, form, False) for clues, form in _FORMS.items()),
    ]
    for clue in clues.split("|")
)
"""Each is searched only in a text that has its clue, as few do: all of them at once take eight times
as long."""
_ASCII_PROHIBITIONS = tuple(each for each in _PROHIBITIONS if each.clue.isascii())

_STATEMENT = re.compile(
    r"\?[\"')\]]*$|\bmay or may not\b|\bno longer\b|\bif (?:I|we|you|they|it) (?:don['\u2019]?t|do not)\b"
    r"|\b(?:I|we|they|you)(?: \w+)? (?:don['\u2019]?t|do not|can['\u2019]?t|cannot)(?: \w+)? (?:have|remember|recall|know|think|see|understand|mind|believe|need|reproduce)\b",
    re.IGNORECASE,
)
"""Matches a sentence that has such words, and is a question or says how something is."""

_ASSENT = re.compile(
    r", ?(?:ok|okay|right|alright|please|would you|will you|understood|got it|yes|oder|ja|d['\u2019]accord|vale|sí|tá|né|va bene|хорошо|да)\?$",
    re.IGNORECASE,
)
"""Asks for assent at the end of an order, which is no question."""

_SENTENCE_END = re.compile(
    r"\s(?<=[.!?\u3002\uff01\uff1f]\s)(?<!\be\.g\.\s)(?<!\bi\.e\.\s)(?<!\bz\.B\.\s)(?<!\bz\. B\.\s)(?<!\bz\.\s)(?<!\bd\.h\.\s)\s*",
    re.IGNORECASE,
)
"""White space between two sentences. It begins with the white space, not with what is before it: so it
is searched for in a quarter of the time."""
_WIDE_END = re.compile(r"[\u3002\uff01\uff1f]")
"""Ends a sentence without white space after it."""

_COMMENTS = ("#", "//", "/*", "<!--", ">>>", "$ ")
"""Begin lines of code that no fence marks."""

ATTACHMENT_START, ATTACHMENT_END = '<attachment path="', "</attachment>"
"""Begin and end the block of a message of the user that shows an attached file."""

_FENCE = re.compile(r"[ \t>]*+(`{3,}+|~{3,}+)[^`]*$")

KNOWN_TEXTS = 2_048
"""Messages, and sentences, of which is remembered what they forbid: a summary shows the user's messages again
that the one before it did."""

MAX_CONSTRAINT_CHARACTERS = 300
"""Characters of a sentence that counts as a constraint."""

_PERSON = re.compile(
    r"\b(?:users?|person|humans?|customer|client|nutzer\w*|benutzer\w*|anwender\w*|utilisat\w+|usuari\w+|utente|пользовател\w*)\b"
    r"|\b(?:request|instruction|wish|order) (?:was|is|reads)\b|用户|ユーザー|사용자",
    re.IGNORECASE,
)
_QUOTATION = re.compile(
    r"[\"\u201c\u201e\u00ab]([^\"\u201c-\u201e\u00ab\u00bb\n]{8,})[\"\u201c\u201d\u00bb]"
    # over two lines
    r"|(?:(?<!\w)\"(?=\w)|[\u201c\u201e\u00ab])"
    r"([^\"\u201c-\u201e\u00ab\u00bb\n]{1,300}\n[^\"\u201c-\u201e\u00ab\u00bb\n]{1,300})[\"\u201c\u201d\u00bb](?!\w)"
    r"|[\u300c\u300e]([^\u300c-\u300f\n]{6,})[\u300d\u300f]"
    r"|(?<![\w(=,\[])['\u2018]((?:[^'\u2018\u2019\n]|(?<=\w)['\u2019](?=\w)){8,300})['\u2019](?!\w)"
    # a line of a chat
    rf"|^> ?\**(?:{_PERSON.pattern})\**:\** ([^\"'\u2018\u201c\u201e\u00ab\u300c\u300e\n][^\n]{{7,}})$",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM = re.compile(r"[ \t]*(?:[-*\u2022]|\d{1,9}[.)]) ")
_HEADING = re.compile(r"#{1,6} |\*\*|.{1,80}:\**$")
_THING = re.compile(
    r"\b(?:(?:errors?|exceptions?|warnings?|failures?|logs?|traceback)(?: (?:message|text|line|output)s?)?|output|file|"
    r"function|class|test|button|title|label|fehler\w*|ausgabe|erreur|ошибк\w*)[\s:,(*]{0,9}$|(?:错误|エラー|오류)\W{0,9}$",
    re.IGNORECASE,
)
"""Matches words before a quotation that is the text of a thing: nothing says that a person wrote it."""
_ELLIPSIS = re.compile(r"\[?(?:\u2026|\.\.\.)\]?")
_WORD = re.compile(r"\w+")

REACH = 80
"""Characters before a quotation, in its line, in which the person is named that it is attributed
to."""

NOT_SAID = " [not the user's words]"
"""Follows a quotation of the user that no message of the user contains."""

HISTORY_TAG = "user-messages"
HISTORY_TITLE = "What the user said before, word for word, oldest first. This is history: do not do again what was answered."


@attrs.frozen(kw_only=True)
class VerbatimUserMessages:
    """Which user messages stay verbatim beside a summary, each marked as answered or open."""

    max_tokens: int = attrs.field(default=20_000, converter=read_tokens, validator=AtLeast(0))
    """Limit for all of them together. The oldest one that stays is cut in its middle to fit.
    (20,000 as in Codex.)"""
    max_message_tokens: int | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(read_tokens),
        validator=attrs.validators.optional(AtLeast(0)),
    )
    """Limit for each message. The middle of a longer one is cut out. None: no limit."""

    def select(
        self, items: Sequence[ViewItem], tokenizer: Tokenizer, *, kept: Sequence[ViewItem] = ()
    ) -> tuple[tuple[ViewItem, ...], int]:
        """Return the user messages among `items` that stay, in their order, and the number of those that do not.

        Earlier summaries are not user messages. A final reply among the items that are `kept`
        answers these messages, too.
        """
        opened = frozenset(find_open_user_requests([*items, *kept]))
        is_open = {at: at in opened for at, item in enumerate(items) if is_user_request(item)}
        shown = keep_newest(
            items,
            is_open,
            self.max_tokens,
            Sizer(tokenizer),
            max_message_tokens=self.max_message_tokens,
        )
        return tuple(shown[at] for at in sorted(shown)), len(is_open) - len(shown)


def keep_newest(
    items: Sequence[ViewItem],
    is_open: Mapping[int, bool],
    tokens: int,
    sizer: Sizer,
    *,
    max_message_tokens: int | None = None,
) -> dict[int, ViewItem]:
    """Return the newest of the user's messages at some indexes that fit into `tokens`, by index, each with its mark.

    The oldest of them is truncated to fit. `is_open` says of each index, the oldest first, whether
    its message is not answered.
    """
    shown: dict[int, ViewItem] = {}
    left = tokens
    for at in reversed(is_open):
        item = attrs.evolve(items[at], message=mark_request(items[at].message, is_open=is_open[at]))
        size = sizer.count_message(item.message)
        if max_message_tokens is not None and size > max_message_tokens:
            cut = _shorten_message(item, max_message_tokens, sizer)
            if cut is None:
                continue
            item, size = cut, sizer.count_message(cut.message)
        if size > left:
            edge = _shorten_message(item, left, sizer)
            if edge is not None:
                shown[at] = edge
            break
        shown[at] = item
        left -= size
    return shown


def _shorten_message(item: ViewItem, tokens: int, sizer: Sizer) -> ViewItem | None:
    """Cut out the middle of the text of a marked message to fit into `tokens`, and drop other parts.

    None if not even the marker fits.
    """
    tokenizer, mark = sizer.tokenizer, item.message.content[0]
    text = unmark_request(item.message).text
    room = tokens - (
        sizer.count_message(attrs.evolve(item.message, content=(mark, text)))
        - tokenizer.count(text)
    )
    kept = (
        truncate_text(text, room, head=0.5, marker=MARKER, tokenizer=tokenizer) if room > 0 else ""
    )
    return (
        attrs.evolve(item, message=attrs.evolve(item.message, content=(mark, kept)))
        if kept
        else None
    )


class _HistoryLine(NamedTuple):
    """A message of the user, as the history shows it."""

    mark: str
    text: str
    frame: int
    """Tokens of the mark, and of the end of the line."""
    tokens: int
    """Tokens of the text."""


@attrs.frozen(kw_only=True)
class UserMessageHistory:
    """The user's earlier messages as one text beside a summary: word for word, and each marked as answered or open.

    They come from the facts of the checkpoint, so that those of earlier checkpoints go on.
    """

    max_tokens: int = attrs.field(default=4_000, converter=read_tokens, validator=AtLeast(0))
    """Limit for the whole text. If not all messages fit, they are shortened, and left out where they
    do not fit even so, in the order of `rank_requests`. None gets more than half."""
    max_message_tokens: int | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(read_tokens),
        validator=attrs.validators.optional(AtLeast(0)),
    )
    """Limit for each message. The middle of a longer one is cut out. None: no limit."""
    share: int = attrs.field(default=HISTORY_SHARE, validator=AtLeast(1))
    """Of what a conversation may have, the text takes at most one part in so many."""

    def format(self, messages: Sequence[str], *, unanswered: int = 0, tokenizer: Tokenizer) -> str:
        """Format messages of the user, oldest first.

        The text is empty if there are none, or no room for any.

        Args:
            messages: The texts of the messages.
            unanswered: The number of the newest ones that no final reply has followed.
            tokenizer: Counts the tokens.
        """
        if not messages:
            return ""
        first_open = len(messages) - unanswered
        marks = [OPEN if at >= first_open else ANSWERED for at in range(len(messages))]
        frames = {mark: tokenizer.count(mark) + 1 for mark in (OPEN, ANSWERED)}
        texts = [self._shorten(escape_block_tags(text), tokenizer) for text in messages]
        lines = [
            _HistoryLine(mark, text, frames[mark], tokenizer.count(text))
            for mark, text in zip(marks, texts, strict=True)
        ]
        text = _format_history([each.mark + each.text for each in lines], omitted=0)
        over = sum(each.tokens for each in lines) - 2 * self.max_tokens
        if over <= 0:  # far too much is not tokenized once more
            over = tokenizer.count(text) - self.max_tokens
        room = self.max_tokens - tokenizer.count(_format_history((), omitted=len(lines)))
        order = rank_requests(messages)
        while over > 0:
            kept = _fit(lines, order, room, tokenizer)
            if not kept:
                return ""
            text = _format_history(kept, omitted=len(lines) - len(kept))
            over = tokenizer.count(text) - self.max_tokens
            room -= over  # tokens that the joins of the lines cost
        return text

    def _shorten(self, text: str, tokenizer: Tokenizer) -> str:
        most = self.max_message_tokens
        if most is None:
            return text
        return truncate_text(text, most, head=0.5, marker=MARKER, tokenizer=tokenizer)


def has_history(text: str) -> bool:
    """Return whether a checkpoint's message ends with the user's earlier messages."""
    return f"<{HISTORY_TAG}>\n{HISTORY_TITLE}" in text and text.endswith(f"</{HISTORY_TAG}>")


def mask_quoted(text: str) -> str:
    """Return a message of the user in which attached files and fenced code are blank, at their length.

    Their words are not the user's. A fence that nothing closes stays.
    """
    if "```" not in text and "~~~" not in text and ATTACHMENT_END not in text:
        return text
    lines = text.split("\n")
    last = max((at for at, line in enumerate(lines) if line == ATTACHMENT_END), default=-1)
    closing, start, cut = "", 0, -1
    blank: list[range] = []
    for at, line in enumerate(lines):
        bare, fence = line.strip(" \t\r>"), _FENCE.match(line)
        if line.startswith(ATTACHMENT_START) and closing != ATTACHMENT_END and at < last:
            closing, start = ATTACHMENT_END, at
        elif closing:
            if line == closing or (bare.startswith(closing) and not bare.strip(closing[0])):
                blank.append(range(start, at + 1))
                closing = ""
        elif fence:
            closing, start = fence[1], at
        elif line == ATTACHMENT_END and cut >= 0:
            # the start of the attachment was in the middle that was left out
            blank.append(range(cut, at + 1))
            cut = -1
        elif MARKER in line:
            cut = at
    for at in chain.from_iterable(blank):
        lines[at] = " " * len(lines[at])
    return "\n".join(lines)


def forbids(text: str) -> bool:
    """Return whether a text has words that forbid something."""
    return _find_prohibitions(text)[0]


def find_constraints(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the sentences in the user's messages that forbid something, each once, oldest first.

    Questions, and sentences that say how something is, do not count, and neither do attached files
    and code.
    """
    return tuple(dict.fromkeys(chain.from_iterable(_find_prohibitions(text)[1] for text in texts)))


@lru_cache(KNOWN_TEXTS)
def _find_prohibitions(text: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether a text has words that forbid something, and its constraints."""
    clued = _find_clued(text, _ASCII_PROHIBITIONS if text.isascii() else _PROHIBITIONS)
    # few that have a clue go on, and only a pattern with the end of a line matches less in the text
    clued = [each for each in clued if "$" in each.pattern or _compile(each.pattern).search(text)]
    if not clued:
        return False, ()
    sentences = (
        sentence.strip()
        for line in mask_quoted(text).split("\n")
        if _find_clued(line, clued) and not _is_code(line.strip())
        for sentence in _SENTENCE_END.split(_WIDE_END.sub(r"\g<0>\n", line))
    )
    constraints = tuple(
        sentence
        for sentence in sentences
        if len(sentence) <= MAX_CONSTRAINT_CHARACTERS
        and _has_prohibition(sentence, clued)
        and not _STATEMENT.search(_ASSENT.sub("", sentence))
    )
    return any(_has_prohibition(line, clued) for line in text.split("\n")), constraints


def _find_clued(text: str, known: Sequence[_Prohibition]) -> Sequence[_Prohibition]:
    """Return the prohibitions whose clues a text has."""
    folded = text.casefold()
    return [each for each in known if each.clue in folded]


def _has_prohibition(line: str, clued: Sequence[_Prohibition]) -> bool:
    """Return whether a line, or a part of one, has one of these prohibitions."""
    found = _find_clued(line, clued)
    opening = any(each.opens_clause for each in found)
    starts = [start.end() for start in _CLAUSE_START.finditer(line)] if opening else ()
    return any(
        any(pattern.match(line, at) for at in starts) if opens_clause else pattern.search(line)
        for pattern, opens_clause in ((_compile(each.pattern), each.opens_clause) for each in found)
    )


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _is_code(line: str) -> bool:
    return line.startswith(_COMMENTS) or line.endswith((" {", "){", ");"))


def mark_invented_quotes(text: str, said: Iterable[str]) -> str:
    """Return a summary in which each quotation of the user that no message of the user contains is marked as such.

    Capitals, punctuation and white space do not matter, and a quotation may leave out words with
    an ellipsis.

    >>> print(mark_invented_quotes('The user said "drop the table".', ["Keep the table."]))
    The user said "drop the table" [not the user's words].
    """

    @cache
    def join_said() -> Sequence[str]:  # thousands of words, which few summaries need
        return [f" {_join_words(each)} " for each in said]

    def is_said(quoted: str) -> bool:
        split: list[str] = _ELLIPSIS.split(quoted)
        pieces = [words for piece in split if (words := _join_words(piece))]
        # scripts without spaces have no words to compare
        wanted = [f" {piece} " if piece.isascii() else piece for piece in pieces]
        return any(all(piece in each for piece in wanted) for each in join_said())

    named = _find_items_of_person(text)

    def mark(match: re.Match[str]) -> str:
        quoted = match[match.lastindex or 0]
        line = text.rfind("\n", 0, match.start()) + 1
        before = text[max(line, match.start() - REACH) : match.start()]
        is_sentence = " " in quoted or "\n" in quoted or not quoted.isascii()
        is_marked = quoted.endswith(NOT_SAID) or text.startswith(NOT_SAID, match.end())
        is_attributed = (
            match[0].startswith(">")
            or (line in named and _ITEM.fullmatch(before))
            or (_PERSON.search(before) and not _THING.search(before))
        )
        if not is_sentence or is_marked or not is_attributed or is_said(quoted):
            return match[0]
        return match[0] + NOT_SAID

    return _QUOTATION.sub(mark, text)


def _find_items_of_person(text: str) -> set[int]:
    """Return where the items of lists begin whose heading names the user."""
    found: set[int] = set()
    at, is_named = 0, False
    for line in text.split("\n"):
        if _ITEM.match(line) and not line.rstrip("*").endswith(":"):
            if is_named:
                found.add(at)
        elif line.strip() and _HEADING.match(line):
            is_named = bool(_PERSON.search(line))
        elif line.strip() and not line[0].isspace():
            is_named = False
        at += len(line) + 1
    return found


def _join_words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def rank_requests(texts: Sequence[str]) -> list[int]:
    """Return the places of the user's messages, oldest first, in the order in which they leave.

    First those in the middle, the oldest first, then the first request, then those that forbid
    something, and the latest never. Their sizes do not matter.
    """

    def rank(at: int) -> tuple[int, int]:
        if at == len(texts) - 1:
            return 3, at
        return 2 if forbids(texts[at]) else int(at == 0), at

    return sorted(range(len(texts)), key=rank)


def _fit(
    lines: Sequence[_HistoryLine], order: Sequence[int], tokens: int, tokenizer: Tokenizer
) -> list[str]:
    """Return the messages that fit, in their order.

    Those that leave first are shortened first, to `SHORTENED_TOKENS` each, as far as a quarter of
    `tokens` suffices for them. Those that would leave before even these are left out. A message of
    more than half of `tokens` is shortened in any case.
    """
    shortest = (min(lines[at].tokens, SHORTENED_TOKENS) + lines[at].frame for at in order)
    before = [0, *accumulate(shortest)]
    kept: dict[int, str] = {}
    left, most, for_others = tokens, tokens // 2, tokens // OTHERS_DIVISOR
    for rank in range(len(order) - 1, -1, -1):
        line = lines[order[rank]]
        reserved = min(before[rank], for_others)
        room = max(left - reserved, min(left, SHORTENED_TOKENS + line.frame))
        room = min(room, most) - line.frame
        shown = line.text
        if room < max(1, line.tokens):
            shown = cut_text(shown, room, head=0.5, marker=MARKER, tokenizer=tokenizer)
        if shown != line.text and shown in {"", MARKER}:
            break
        kept[order[rank]] = line.mark + shown
        left -= line.frame + (line.tokens if shown == line.text else tokenizer.count(shown))
    return [kept[at] for at in sorted(kept)]


def _format_history(lines: Sequence[str], *, omitted: int) -> str:
    what = "message is" if omitted == 1 else "messages are"
    note = [f"[{omitted:,} earlier {what} left out]"] if omitted else []
    return "\n".join([f"<{HISTORY_TAG}>", HISTORY_TITLE, *note, *lines, f"</{HISTORY_TAG}>"])
