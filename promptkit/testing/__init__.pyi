from .assertions import (
    assert_cache_stable as assert_cache_stable,
    assert_dropped as assert_dropped,
    assert_fits as assert_fits,
    assert_kept as assert_kept,
    assert_stable_prefix as assert_stable_prefix,
    assert_summary_keeps as assert_summary_keeps,
)
from .contracts import (
    StoreContract as StoreContract,
    check_encoding_engine as check_encoding_engine,
    check_policy as check_policy,
    check_summarizer as check_summarizer,
)
from .network_guard import (
    NotLoopbackError as NotLoopbackError,
    Refusal as Refusal,
    loopback_only as loopback_only,
)
from .recorded_model import NotRecordedError as NotRecordedError, RecordedModel as RecordedModel
from .scripted_model import (
    NoStepLeftError as NoStepLeftError,
    Request as Request,
    ScriptedModel as ScriptedModel,
    StepsLeftError as StepsLeftError,
    summary_answer as summary_answer,
)
from .snapshots.snapshot import (
    MessagesSnapshot as MessagesSnapshot,
    PromptSnapshot as PromptSnapshot,
    ReceiptSnapshot as ReceiptSnapshot,
    WireSnapshot as WireSnapshot,
)
from .word_tokenizer import WordTokenizer as WordTokenizer

__all__: list[str]
