"""Count tokens, exactly where the provider's rules are published, and work out token budgets.

* Budgets: `ContextBudget`, `parse_tokens`, `resolve_budget`
* Tokenizers: `Tokenizer`, `Count`, `OpenAITokenizer`, `tokenizer_for`, `count_request`
* Tokenizers of other models: `CalibratedTokenizer`, `HeuristicTokenizer`, `HuggingFaceTokenizer`,
  `MistralTokenizer`
* Models: `ModelInfo`, `NamedModel`, `model_info`, `register_model`
* Prices: `Price`, `Prices`, `read_prices`, `BilledTokens`, `PriceError`
* Rules for images, for `register_model(images=…)`: `ImageRule`, `PatchImages`, `TileImages`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
