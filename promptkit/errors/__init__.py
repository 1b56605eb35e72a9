"""What can go wrong, and where.

* PromptKitError
  x TreeError                  the tree is ill-formed; `path` says where
    - BadChildError            something that is no child was given as one
    - ChildrenTwiceError       `element[...]` on an element that has children already
    - NotAComponentError       a subclass of PromptElement lacks `@component`
    - BadPropError             a prop has a value that it cannot have (a negative budget, NaN, an unknown unit)
    - MisplacedElementError    text outside a message, a message inside a message, a cache boundary that is no direct child of one
    - UnansweredCallError      a tool call that no tool message answers
    - OrphanResultError        a tool message that answers no call, or answers one twice
  x BudgetExceededError        what is required does not fit; carries messages, metadata and the receipt
  x RunningLoopError           a component awaits inside `render()` while an event loop is running
  x TemplateError              a template does not load, compile or render; `file` and `line` say where
  x JsonTreeError              a JSON tree that this version does not understand
  x TokenizerError
    - UnknownModelError        no window or encoding is known for a model name
    - UnknownEncodingError     no vocabulary is at hand for an encoding
    - TextTooLongError         one text is longer than the tokenizer's limit
    - UncountablePartError     no formula and no figure for the tokens of a part
  x EmitError                  a message has no form in the provider's format
  x ModelError                 a model was asked in vain; `status` and `code` are the provider's
    - ContextOverflowError     the request does not fit into the model's window
    - RateLimitedError         the provider wants fewer requests; `retry_after` says when
    - ModelUnavailableError    no answer, or a broken one: it may pass
    - ModelRequestError        the provider refuses the request, and would refuse it again
    - EmptyReplyError          the model answered with nothing
  x TranscriptError            a transcript cannot be read, or an entry cannot stand where it was put
    - TranscriptConflictError  another writer appended meanwhile; `entries` are what it wrote
    - TranscriptFormatError    a file that is no transcript, or of a version that is not known
    - TranscriptWriteError     a batch could not be written, and nothing of it is there; `file` says where
  x CompactionError            a conversation cannot be made smaller as it was asked for
    - ThresholdError           a threshold that is neither a share of the window nor a number of tokens
    - SettingError             a setting from a file or a variable that cannot be taken as it was written
    - ToolsFillBudgetError     the tool definitions alone take all that a request may have
    - CutPointError            a conversation cannot be cut at the entry that was named
    - CompactionRunningError   a compaction was asked for while another one of the same conversation is running
    - SummaryError             no summary was to be had; `reason` says in a word why
    - WindowFullError          a conversation does not fit its window, and nothing more can be done
  x NothingToAnswerError       a model was to be asked, and nothing was said to it
  x TooManyRoundsError         a model went on calling tools for as many requests as a turn may have
  x TurnRunningError           a conversation was to go on from elsewhere while the model works on a turn
"""

from promptkit.errors.conversations import (
    CompactionError,
    CompactionRunningError,
    CutPointError,
    NothingToAnswerError,
    SettingError,
    SummaryError,
    ThresholdError,
    ToolsFillBudgetError,
    TooManyRoundsError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
    TurnRunningError,
    WindowFullError,
)
from promptkit.errors.models import (
    ContextOverflowError,
    EmptyReplyError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from promptkit.errors.prompts import (
    BadChildError,
    BadPropError,
    BudgetExceededError,
    ChildrenTwiceError,
    EmitError,
    JsonTreeError,
    MisplacedElementError,
    NotAComponentError,
    OrphanResultError,
    PromptKitError,
    RunningLoopError,
    TemplateError,
    TextTooLongError,
    TokenizerError,
    TreeError,
    UnansweredCallError,
    UncountablePartError,
    UnknownEncodingError,
    UnknownModelError,
)

__all__ = [
    "BadChildError",
    "BadPropError",
    "BudgetExceededError",
    "ChildrenTwiceError",
    "CompactionError",
    "CompactionRunningError",
    "ContextOverflowError",
    "CutPointError",
    "EmitError",
    "EmptyReplyError",
    "JsonTreeError",
    "MisplacedElementError",
    "ModelError",
    "ModelRequestError",
    "ModelUnavailableError",
    "NotAComponentError",
    "NothingToAnswerError",
    "OrphanResultError",
    "PromptKitError",
    "RateLimitedError",
    "RunningLoopError",
    "SettingError",
    "SummaryError",
    "TemplateError",
    "TextTooLongError",
    "ThresholdError",
    "TokenizerError",
    "TooManyRoundsError",
    "ToolsFillBudgetError",
    "TranscriptConflictError",
    "TranscriptError",
    "TranscriptFormatError",
    "TranscriptWriteError",
    "TreeError",
    "TurnRunningError",
    "UnansweredCallError",
    "UncountablePartError",
    "UnknownEncodingError",
    "UnknownModelError",
    "WindowFullError",
]
