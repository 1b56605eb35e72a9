from collections.abc import Mapping
from typing import Any

model_cost: Mapping[str, Mapping[str, Any]]
