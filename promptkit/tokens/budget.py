"""STAND-IN, to be overwritten by the tokens room."""

import attrs


@attrs.frozen
class ContextBudget:
    tokens: int

    def explain(self):
        return f"budget {self.tokens}"


def context_budget(*, model=None, budget=None, reply_tokens=None, tools=(), tokenizer=None):
    return ContextBudget(budget if budget is not None else 128_000)
