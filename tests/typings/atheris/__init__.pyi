# What the fuzzer uses of atheris, which has wheels for some Pythons only.

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

def Setup(args: list[str], test_one_input: Callable[[bytes], None]) -> list[str]: ...  # noqa: N802  # its name there
def Fuzz() -> None: ...  # noqa: N802  # its name there
def instrument_imports(
    include: Collection[str] = ..., exclude: Collection[str] = ...
) -> AbstractContextManager[None]: ...
