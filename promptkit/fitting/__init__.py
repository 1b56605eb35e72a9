"""Make recorded messages fit: long messages are shortened, then the oldest rounds are removed.

* In a prompt: `RecordedMessages`, and `History` in the facade, with a marker in place of the pruned
  messages
* Without a prompt: `fit` in the facade
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
