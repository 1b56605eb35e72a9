from .budget import (
    ContextBudget as ContextBudget,
    RenderBudget as RenderBudget,
    parse_tokens as parse_tokens,
    resolve_budget as resolve_budget,
)
from .encodings import (
    EncodingEngine as EncodingEngine,
    register_encoding_engine as register_encoding_engine,
)
from .estimates import (
    CalibratedTokenizer as CalibratedTokenizer,
    HeuristicTokenizer as HeuristicTokenizer,
)
from .images import ImageRule as ImageRule, PatchImages as PatchImages, TileImages as TileImages
from .models import (
    ModelInfo as ModelInfo,
    NamedModel as NamedModel,
    model_info as model_info,
    register_model as register_model,
    tokenizer_for as tokenizer_for,
)
from .open_models import (
    HuggingFaceTokenizer as HuggingFaceTokenizer,
    MistralTokenizer as MistralTokenizer,
)
from .openai_tokenizer import OpenAITokenizer as OpenAITokenizer
from .prices import (
    BilledTokens as BilledTokens,
    Price as Price,
    PriceError as PriceError,
    Prices as Prices,
    read_prices as read_prices,
)
from .request import count_request as count_request
from .tokenizer import Count as Count, Tokenizer as Tokenizer

__all__: list[str]
