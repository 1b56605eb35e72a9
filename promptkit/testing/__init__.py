"""What a project needs to test its prompts. Nothing is imported before it is used: the words of a test need no pytest.

The strategies stand in `promptkit.testing.strategies.strategies`, which needs hypothesis; the pytest plugin is found by pytest itself.
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
