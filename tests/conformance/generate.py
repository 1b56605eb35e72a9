"""Random jobs in the harness's schema: small prompts that reach into every corner of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.conformance.schema import Job, Node, Spec

__all__ = ["FAMILIES", "generate"]

TOKENIZERS: tuple[Any, ...] = (
    "words",
    "words",
    "words",
    "words",
    {"kind": "words", "perMessage": 3},
    {"kind": "words", "perMessage": 1, "toolCalls": True},
    "chars",
)


class Grower:
    """Grows one job's tree. `family` says which elements may occur beside the plain ones."""

    def __init__(self, random: Random, family: str) -> None:
        self.random = random
        self.family = family
        self.count = 0
        self.specials: dict[str, Callable[[str], Spec]] = {
            "flex": self.sized,
            "grow": self.growing,
            "break": self.breaking,
            "parts": self.part,
            "text": self.scrap,
            "attachments": self.attachment,
        }
        self.ragged = random.random() < 0.25  # a quarter of all jobs
        self.priorities = random.choice(
            [
                (None,),
                (1, 2, 3),
                (None, 0, 1, 2, 5, 10),
                (-3, -1, 0, 1, None),
                (1,),
                tuple(range(20)),
            ]
        )

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def word(self) -> str:
        """One to three words that occur nowhere else."""
        self.count += 1
        return " ".join(f"w{self.count}" for _ in range(self.random.choice((1, 1, 2, 3))))

    def words(self) -> str:
        """Words, sometimes with white space around them or line breaks in them."""
        text = self.word()
        if self.ragged and self.chance(0.3):
            text = self.random.choice([" {}", "{} ", "{}\n", "\n{}", " {} ", "{}\n\n"]).format(text)
        return text

    def props(self) -> Node:
        """The props that any element may have."""
        props: Node = {}
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

    def container(
        self, kinds: tuple[str, ...], fill: Callable[[int], list[Spec]], depth: int
    ) -> Spec:
        """A container of the given kinds around what `fill` makes."""
        kind = self.random.choice(kinds)
        node = {"type": kind, **self.props(), "children": fill(depth - 1)}
        if kind in ("wrap", "logicalwrapper", "chunk", "keepwith") and self.chance(0.25):
            node["passPriority"] = True
        if kind == "keepwith":
            node["id"] = self.random.choice((1, 2, "a"))
        elif kind == "prioritizedlist":
            node["descending"] = self.chance(0.5)
            node["children"] = [
                child
                for child in node["children"]
                if not isinstance(child, list) and child != {"type": "br"}
            ]
        elif kind == "tokenlimit":
            node["max"] = self.random.randint(1, 9)
        elif kind == "ifempty":
            node["alt"] = fill(0)
            if self.chance(0.5):
                node["children"] = self.random.choice(
                    [[], [{"type": "empty"}], [None], [{"type": "wrap", "children": []}]]
                )
        return node

    def prompt(self) -> Spec:
        """A whole prompt."""
        return self.top(self.random.choice((0, 1, 1, 2, 3)), self.random.randint(1, 5))

    def top(self, depth: int, most: int = 3) -> list[Spec]:
        """What stands outside messages."""
        nodes: list[Spec] = []
        for _ in range(self.random.randint(1, most)):
            if depth > 0 and self.chance(0.4):
                kinds: tuple[str, ...] = (
                    "wrap",
                    "logicalwrapper",
                    "chunk",
                    "keepwith",
                    "keepwith",
                    "prioritizedlist",
                    "ifempty",
                    "legacy",
                    "wrap",
                )
                if self.family == "limits":
                    kinds = (*kinds, "tokenlimit", "tokenlimit", "tokenlimit")
                nodes.append(self.container(kinds, self.top, depth))
            elif depth > 0 and self.chance(0.1):
                nodes.append(self.top(depth - 1))
            else:
                nodes.append(self.message())
        if self.chance(0.1):
            nodes.insert(
                self.random.randrange(len(nodes) + 1),
                self.random.choice((None, {"type": "empty"}, {"type": "chunk"}, False)),
            )
        return nodes

    def message(self) -> Spec:
        """One message."""
        if self.family == "flex" and self.chance(0.4):
            self.count += 1
            return {
                "type": "echo",
                "name": f"e{self.count}",
                "message": True,
                "use": self.random.randint(0, 3),
                **self.props(),
            }
        role = self.random.choice(("user", "user", "assistant", "system"))
        if self.family == "tools" and self.chance(0.25):
            self.count += 1
            return {
                "type": "tool",
                "toolCallId": f"t{self.count}",
                **self.props(),
                "children": [self.word()],
            }
        children = self.inside(self.random.choice((0, 1, 2, 2, 3)))
        node: Node = {"type": role, **self.props(), "children": children}
        if self.chance(0.1):
            node["name"] = "ada"
        if role == "assistant" and self.family == "tools" and self.chance(0.7):
            node["toolCalls"] = [self.call() for _ in range(self.random.randint(1, 2))]
            if self.chance(0.4):
                node["children"] = []
        if self.family == "boundaries" and self.chance(0.5):
            kind = {"cacheType": "ephemeral"} if self.chance(0.5) else {}
            children.insert(
                self.random.randint(0, len(children)), {"type": "cachebreakpoint", **kind}
            )
        return node

    def call(self) -> Node:
        self.count += 1
        keep = {"keepWith": self.random.choice((1, 2, "a"))} if self.chance(0.7) else {}
        return {"id": f"c{self.count}", "name": "f", "arguments": f'{{"x": {self.count}}}', **keep}

    def inside(self, depth: int) -> list[Spec]:
        """What stands in a message."""
        nodes = [self.piece(depth) for _ in range(self.random.choice((1, 1, 2, 3, 4)))]
        return [node for node in nodes if node != ""]

    def piece(self, depth: int) -> Spec:
        if depth > 0 and self.chance(0.35):
            kinds: tuple[str, ...] = (
                "wrap",
                "wrap",
                "logicalwrapper",
                "chunk",
                "keepwith",
                "prioritizedlist",
                "ifempty",
                "legacy",
            )
            if self.family == "json":
                kinds = (*kinds, "toolresult", "elementjson", "toolresult")
            return self.container(kinds, self.inside, depth)
        if self.chance(0.3) and (special := self.special()) is not None:
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

    def special(self) -> Spec:
        """A piece that only the job's family has; None for a plain piece after all."""
        grow = self.specials.get(self.family)
        if grow is None:
            return None
        self.count += 1
        return grow(f"x{self.count}")

    def sized(self, here: str) -> Spec:
        if self.chance(0.5):
            return {"type": "echo", "name": here, "use": self.random.randint(0, 2), **self.props()}
        return {
            "type": "fill",
            "word": here,
            "max": self.random.choice((2, 5, 40)),
            "plus": self.random.choice((1, 1, 3)),
            **self.props(),
        }

    def growing(self, here: str) -> Spec:
        most = {"max": self.random.randint(1, 12)} if self.chance(0.6) else {}
        over = self.random.choice((0, 0, -1, 1))
        return {
            "type": "expandable",
            "name": here,
            "word": here,
            "min": 1,
            "over": over,
            **most,
            **self.props(),
        }

    def breaking(self, here: str) -> Spec:
        text = " ".join(f"{here}{letter}" for letter in "abcdefghij"[: self.random.randint(1, 10)])
        how: tuple[Node, ...] = (
            {"breakOn": " "},
            {"breakOnWhitespace": True},
            {"breakOnRegex": "[cf]"},
        )
        return {"type": "textchunk", **self.random.choice(how), **self.props(), "children": [text]}

    def part(self, here: str) -> Spec:
        parts = (
            {"type": "image", "src": f"https://x/{here}.png", **self.props()},
            {"type": "document", "data": "JVBE", "mediaType": "application/pdf", **self.props()},
            {
                "type": "opaque",
                "value": {"kind": here, "tokens": 2},
                "tokenUsage": 2,
                **self.priority(),
            },
        )
        return self.random.choice(parts)

    def scrap(self, here: str) -> Spec:
        scraps = (
            " ",
            "\n",
            {"type": "br"},
            {"type": "br"},
            7,
            None,
            [self.words(), self.words()],
            {"type": "wrap"},
        )
        return self.random.choice(scraps)

    def attachment(self, here: str) -> Spec:
        name = self.random.choice(("r1", "r2", here))
        given = (
            {"type": "meta", "name": here},
            {"type": "meta", "name": here, "local": True},
            {"type": "reference", "name": name},
        )
        return self.random.choice(given)

    def priority(self) -> Node:
        priority = self.random.choice(self.priorities)
        return {} if priority is None else {"priority": priority}


FAMILIES = (
    "plain",
    "text",
    "flex",
    "grow",
    "break",
    "limits",
    "boundaries",
    "tools",
    "json",
    "parts",
    "attachments",
)
SIZED = ("flex", "grow", "break")  # where an infinite budget would fill the memory


def generate(random: Random, name: str) -> Job:
    """One job. The same random state makes the same job."""
    family = random.choice(FAMILIES)
    grower = Grower(random, family)
    spec = grower.prompt()
    tokenizer = random.choice(TOKENIZERS if family not in SIZED else TOKENIZERS[:-2])
    budget: int | str = random.randint(0, 40) if family in SIZED else "prunedown"
    if family in ("limits", "boundaries"):
        budget = random.randint(9, 30)  # no limit is larger
    return {"name": f"{name} ({family})", "tokenizer": tokenizer, "budget": budget, "spec": spec}
