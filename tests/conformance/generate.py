"""Random jobs in the harness's schema: small prompts that reach into every corner of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.conformance.outcome import Job

__all__ = ["FAMILIES", "generate"]

Spec: TypeAlias = Any  # JSON: a node of a job

TOKENIZERS: tuple[Any, ...] = ("words", "words", {"kind": "words", "perMessage": 3}, {"kind": "words", "perMessage": 1, "toolCalls": True}, "chars")


class Grower:
    """Grows one job's tree. `family` says which elements may occur beside the plain ones."""

    def __init__(self, random: Random, family: str) -> None:
        self.random = random
        self.family = family
        self.count = 0
        self.priorities = random.choice([(None,), (1, 2, 3), (None, 0, 1, 2, 5, 10), (-3, -1, 0, 1, None), (1,), tuple(range(20))])

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def word(self) -> str:
        """One to three words that occur nowhere else."""
        self.count += 1
        return " ".join(f"w{self.count}" for _ in range(self.random.choice((1, 1, 2, 3))))

    def words(self) -> str:
        """Words, sometimes with white space around them or line breaks in them."""
        text = self.word()
        if self.chance(0.15):
            text = self.random.choice([" {}", "{} ", "{}\n", "\n{}", " {} ", "{}\n\n"]).format(text)
        return text

    def props(self) -> dict[str, Any]:  # Any: JSON
        """The props that any element may have."""
        props: dict[str, Any] = {}  # Any: JSON
        priority = self.random.choice(self.priorities)
        if priority is not None:
            props["priority"] = priority
        if self.family in ("flex", "grow", "break"):
            if self.chance(0.35):
                props["flexGrow"] = self.random.choice((1, 1, 2, 3))
                if self.chance(0.4):
                    props["flexReserve"] = self.random.choice((2, 5, 10, "/2", "/3", "/4"))
            if self.chance(0.15):
                props["flexBasis"] = self.random.choice((2, 3, 0.5))
        return props

    def container(self, kinds: tuple[str, ...], fill: Callable[[int], list[Spec]], depth: int) -> Spec:
        """A container of the given kinds around what `fill` makes."""
        kind = self.random.choice(kinds)
        node = {"type": kind, **self.props(), "children": fill(depth - 1)}
        if kind in ("wrap", "logicalwrapper", "chunk", "keepwith") and self.chance(0.25):
            node["passPriority"] = True
        if kind == "keepwith":
            node["id"] = self.random.choice((1, 2, "a"))
        elif kind == "prioritizedlist":
            node["descending"] = self.chance(0.5)
            node["children"] = [child for child in node["children"] if not isinstance(child, list) and child != {"type": "br"}]
        elif kind == "tokenlimit":
            node["max"] = self.random.randint(1, 9)
        elif kind == "ifempty":
            node["alt"] = fill(0)
            if self.chance(0.5):
                node["children"] = self.random.choice([[], [{"type": "empty"}], [None], [{"type": "wrap", "children": []}]])
        return node

    def prompt(self) -> Spec:
        """A whole prompt."""
        return self.top(self.random.choice((0, 1, 1, 2, 3)), self.random.randint(1, 5))

    def top(self, depth: int, most: int = 3) -> list[Spec]:
        """What stands outside messages."""
        nodes: list[Spec] = []
        for _ in range(self.random.randint(1, most)):
            if depth > 0 and self.chance(0.4):
                kinds = ("wrap", "logicalwrapper", "chunk", "keepwith", "keepwith", "prioritizedlist", "ifempty", "legacy", "wrap")
                if self.family == "limits":
                    kinds = (*kinds, "tokenlimit", "tokenlimit", "tokenlimit")
                nodes.append(self.container(kinds, self.top, depth))
            elif depth > 0 and self.chance(0.1):
                nodes.append(self.top(depth - 1))
            else:
                nodes.append(self.message())
        if self.chance(0.1):
            nodes.insert(self.random.randrange(len(nodes) + 1), self.random.choice((None, {"type": "empty"}, {"type": "chunk"}, False)))
        return nodes

    def message(self) -> Spec:
        """One message."""
        if self.family == "flex" and self.chance(0.4):
            self.count += 1
            return {"type": "echo", "name": f"e{self.count}", "message": True, "use": self.random.randint(0, 3), **self.props()}
        role = self.random.choice(("user", "user", "assistant", "system"))
        if self.family == "tools" and self.chance(0.25):
            self.count += 1
            return {"type": "tool", "toolCallId": f"t{self.count}", **self.props(), "children": [self.word()]}
        node = {"type": role, **self.props(), "children": self.inside(self.random.choice((0, 1, 2, 2, 3)))}
        if self.chance(0.1):
            node["name"] = "ada"
        if role == "assistant" and self.family == "tools" and self.chance(0.7):
            node["toolCalls"] = [self.call() for _ in range(self.random.randint(1, 2))]
            if self.chance(0.4):
                node["children"] = []
        if self.family == "boundaries" and self.chance(0.5):
            place = self.random.randint(0, len(node["children"]))
            node["children"].insert(place, {"type": "cachebreakpoint", **({"cacheType": "ephemeral"} if self.chance(0.5) else {})})
        return node

    def call(self) -> dict[str, Any]:  # Any: JSON
        self.count += 1
        keep = {"keepWith": self.random.choice((1, 2, "a"))} if self.chance(0.7) else {}
        return {"id": f"c{self.count}", "name": "f", "arguments": f'{{"x": {self.count}}}', **keep}

    def inside(self, depth: int) -> list[Spec]:
        """What stands in a message."""
        nodes = [self.piece(depth) for _ in range(self.random.choice((1, 1, 2, 3, 4)))]
        return [node for node in nodes if node != ""]

    def piece(self, depth: int) -> Spec:
        if depth > 0 and self.chance(0.35):
            kinds = ("wrap", "wrap", "logicalwrapper", "chunk", "keepwith", "prioritizedlist", "ifempty", "legacy")
            if self.family == "json":
                kinds = (*kinds, "toolresult", "elementjson", "toolresult")
            return self.container(kinds, self.inside, depth)
        if self.chance(0.3) and (special := self.special(depth)) is not None:
            return special
        if self.chance(0.45):
            return self.words()
        return {"type": "textchunk", **self.props(), "children": self.chunk_children()}

    def chunk_children(self) -> list[Spec]:
        children: list[Spec] = [self.words()]
        if self.chance(0.2):
            children += [{"type": "br"}, self.word()]
        if self.chance(0.1):
            children.append({"type": "reference", "name": self.random.choice(("r1", "r2", "r3"))})
        return children

    def special(self, depth: int) -> Spec:
        """A piece that only some families have, or a rare one; None for a plain piece after all."""
        self.count += 1
        here = f"x{self.count}"
        match self.family:
            case "flex":
                kind = self.random.choice(("echo", "fill"))
                if kind == "fill":
                    most = self.random.choice((2, 5, 40))
                    return {"type": "fill", "word": here, "max": most, "plus": self.random.choice((1, 1, 3)), **self.props()}
                return {"type": "echo", "name": here, "use": self.random.randint(0, 2), **self.props()}
            case "grow":
                most = {"max": self.random.randint(1, 12)} if self.chance(0.6) else {}
                return {"type": "expandable", "name": here, "word": here, "min": 1, "over": self.random.choice((0, 0, -1, 1)), **most, **self.props()}
            case "break":
                text = " ".join(f"{here}{letter}" for letter in "abcdefghij"[: self.random.randint(1, 10)])
                how = self.random.choice(({"breakOn": " "}, {"breakOnWhitespace": True}, {"breakOnRegex": "[cf]"}))
                return {"type": "textchunk", **how, **self.props(), "children": [text]}
            case "parts":
                return self.random.choice((
                    {"type": "image", "src": f"https://x/{here}.png", **self.props()},
                    {"type": "document", "data": "JVBE", "mediaType": "application/pdf", **self.props()},
                    {"type": "opaque", "value": {"kind": here, "tokens": 2}, "tokenUsage": 2, **self.priority()},
                ))
            case "text":
                return self.random.choice((" ", "\n", {"type": "br"}, {"type": "br"}, 7, None, [self.words(), self.words()], {"type": "wrap"}))
            case "attachments":
                return self.random.choice((
                    {"type": "meta", "name": here},
                    {"type": "meta", "name": here, "local": True},
                    {"type": "reference", "name": self.random.choice(("r1", "r2", here))},
                ))
            case _:
                return None

    def priority(self) -> dict[str, Any]:  # Any: JSON
        priority = self.random.choice(self.priorities)
        return {} if priority is None else {"priority": priority}


FAMILIES = ("plain", "text", "flex", "grow", "break", "limits", "boundaries", "tools", "json", "parts", "attachments")
SIZED = ("flex", "grow", "break")  # where an infinite budget would fill the memory


def generate(random: Random, name: str) -> Job:
    """One job. The same random state makes the same job."""
    family = random.choice(FAMILIES)
    grower = Grower(random, family)
    spec = grower.prompt()
    tokenizer = random.choice(TOKENIZERS if family not in SIZED else TOKENIZERS[:4])
    budget: int | str = random.randint(0, 40) if family in SIZED else "prunedown"
    if family == "limits":
        budget = random.randint(9, 30)
    return {"name": f"{name} ({family})", "tokenizer": tokenizer, "budget": budget, "spec": spec}
