"""Who imports whom: the layers of the rooms, no circle, no module too small to stand alone, and what `import promptkit` costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict, deque
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import attrs
import pytest

from tests.architecture.source import (
    Import,
    imports,
    is_package,
    lines_of,
    modules,
    names_in_stub,
    namespaces,
)
from tests.paths import ROOT

TOOLS = Path(sys.executable).parent


@pytest.mark.static
def test_every_room_imports_only_the_rooms_below_it() -> None:
    paths = os.pathsep.join([str(ROOT / "components"), str(ROOT)])
    done = subprocess.run(
        [str(TOOLS / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_no_modules_import_each_other_in_a_circle() -> None:
    # Errors carry messages, entries and traces, and every room raises errors: `errors` imports their
    # types for type checkers alone, which the contract of the rooms makes sure of.
    circle = shortest_circle([each for each in imports() if each.importer != "promptkit.errors"])
    assert not circle, (
        "modules import each other in a circle (imports for types count, too):\n  "
        + "\n  ".join(map(str, circle))
    )


class TestShortestCircle:
    def test_is_empty_where_there_is_none(self) -> None:
        assert shortest_circle([edge("a", "b"), edge("a", "c"), edge("b", "c")]) == []

    def test_is_found_and_the_shortest_one(self) -> None:
        found = shortest_circle(
            [edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "d"), edge("d", "c")]
        )
        assert [(each.importer, each.imported) for each in found] in (
            [("c", "d"), ("d", "c")],
            [("d", "c"), ("c", "d")],
        )


def edge(importer: str, imported: str) -> Import:
    return Import(importer=importer, imported=imported, name="x", line=1)


def shortest_circle(edges: tuple[Import, ...] | list[Import]) -> list[Import]:
    """The imports of the shortest circle, in order; an empty list where there is none."""
    outgoing: dict[str, list[Import]] = defaultdict(list)
    for each in edges:
        outgoing[each.importer].append(each)
    circles = [circle for module in outgoing if (circle := _shortest_way(outgoing, module, module))]
    return min(circles, key=len) if circles else []


def _shortest_way(outgoing: dict[str, list[Import]], start: str, end: str) -> list[Import]:
    arrived: dict[str, Import] = {}
    waiting = deque([start])
    while waiting:
        for each in outgoing.get(waiting.popleft(), ()):
            if each.imported not in arrived:
                arrived[each.imported] = each
                waiting.append(each.imported)
        if end in arrived:
            way = [arrived[end]]
            while way[0].importer != start:
                way.insert(0, arrived[way[0].importer])
            return way
    return []


SMALL = 80
"""Lines below which a module with one importer belongs into that importer."""
SMALL_WITH_ONE_IMPORTER: dict[str, str] = {}
"""Modules (or patterns of modules) that may be small and have one importer, each with the
reason."""


def test_a_small_module_with_one_importer_belongs_into_it() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for each in imports():
        importers[each.imported].add(each.importer)
    public = {
        module
        for namespace in ("promptkit", *namespaces())
        for module in names_in_stub(namespace).values()
    }
    public |= {each.imported for each in imports() if each.importer == "promptkit_components"}
    found = {
        module: next(iter(users))
        for module, users in importers.items()
        if len(users) == 1
        and lines_of(modules()[module]) < SMALL
        and not is_package(module)
        and module not in public
    }
    allowed = {
        module: [pattern for pattern in SMALL_WITH_ONE_IMPORTER if fnmatch(module, pattern)]
        for module in found
    }
    surplus = [
        f"{module} ({lines_of(modules()[module])} lines): {found[module]}"
        for module in sorted(found)
        if not allowed[module]
    ]
    assert not surplus, (
        "each of these small modules belongs into its one importer, or into the table of this test:\n  "
        + "\n  ".join(surplus)
    )
    stale = SMALL_WITH_ONE_IMPORTER.keys() - {
        pattern for patterns in allowed.values() for pattern in patterns
    }
    assert not stale, f"no such module any more: {sorted(stale)}"


def test_the_components_import_only_the_facade_and_the_documented_namespaces() -> None:
    deeper = [
        str(each)
        for each in imports()
        if each.importer.startswith("promptkit_components")
        and not each.imported.startswith("promptkit_components")
        and each.imported not in ("promptkit", *namespaces())
    ]
    assert deeper == []


MEASURE = """
import json, sys, time
start = time.process_time()
import {package}
seconds = time.process_time() - start
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""


@attrs.frozen
class Loaded:
    """What an import took in a fresh process."""

    seconds: float
    """Processor seconds."""
    modules: frozenset[str]


def load(package: str) -> Loaded:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(package=package)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    return Loaded(seconds=result["seconds"], modules=frozenset(result["modules"]))


@cache
def loaded() -> frozenset[str]:
    return load("promptkit").modules


@pytest.mark.parametrize(
    "package",
    [
        "openai",
        "anthropic",
        "sqlalchemy",
        "obstore",
        "rich",
        "jinja2",
        "click",
        "tiktoken",
        "pytest",
        "syrupy",
        "hypothesis",
        "asyncio",
        "urllib.request",
        "promptkit_components",
    ],
)
def test_importing_promptkit_loads_nothing_heavy(package: str) -> None:
    assert package not in loaded()


LOADED: tuple[str, ...] = ("promptkit",)
"""The modules of promptkit that `import promptkit` loads. Everything else is loaded when a name is
first used."""


def test_importing_promptkit_loads_these_modules_of_it() -> None:
    assert sorted(
        module for module in loaded() if module.partition(".")[0] == "promptkit"
    ) == sorted(LOADED)


@pytest.mark.long
def test_importing_promptkit_takes_at_most_twice_what_attrs_takes() -> None:
    # Both are measured in this run and in turns, so that a slow or busy machine slows both down.
    pairs = [(load("promptkit").seconds, load("attrs").seconds) for _ in range(7)]
    own, attrs_alone = (min(seconds) for seconds in zip(*pairs, strict=True))
    print(
        f"import promptkit: {own * 1000:.0f} ms, import attrs: {attrs_alone * 1000:.0f} ms, the best of {len(pairs)}"
    )
    assert own <= 2 * attrs_alone
