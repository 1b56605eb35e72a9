"""What a session is given by callers whom no type checker looks after: refused at once, and not when it is half written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.agent.content import content_of
from promptkit.agent.tools import Tool
from promptkit.errors import BadPropError, NothingToAnswerError
from promptkit.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Part

__all__ = ["require", "said"]


def said(content: object) -> tuple[Part, ...]:
    """What a person says, as content. Raises TypeError for what is none, NothingToAnswerError for what says nothing."""
    parts = content_of(content)
    if parts is None:
        problem = f"a session is told text, or a list of texts and parts such as ImagePart(url=…), not {content!r:.80}."
        raise TypeError(problem)
    if not any(part.strip() if isinstance(part, str) else True for part in parts):
        raise NothingToAnswerError
    return parts


def require(*, model: object, transcript: object, prompt: object, tools: Sequence[object], max_rounds: int) -> None:
    """Raises TypeError for what a session cannot be made of, with what it takes; BadPropError for turns without a request."""
    if not hasattr(model, "complete"):
        problem = f"model must be a model such as OpenAIModel('gpt-5'), not {model!r:.80}."
        raise TypeError(problem)
    if not isinstance(transcript, Transcript | None):
        problem = f"transcript must be a Transcript such as Transcript(JsonlStore('talk.jsonl')), not {transcript!r:.80}."
        raise TypeError(problem)
    if prompt is not None and not callable(prompt):
        problem = f"prompt must be a function of the view that makes the prompt, such as lambda view: …, not {type(prompt).__name__}."
        raise TypeError(problem)
    for tool in tools:
        if not isinstance(tool, Tool):
            problem = f"tools are made as Tool(definition=ToolDefinition(name=…), run=…), not {tool!r:.80}."
            raise TypeError(problem)
    if max_rounds < 1:
        problem = f"max_rounds must be at least 1, not {max_rounds}."
        raise BadPropError(problem)
