"""How hard the properties of this folder try: HYPOTHESIS_PROFILE=thorough in the environment for a long night."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "quick", deadline=None, report_multiple_bugs=False, derandomize=True, max_examples=100, suppress_health_check=SLOW
)
settings.register_profile("thorough", deadline=None, report_multiple_bugs=False, max_examples=5_000, suppress_health_check=SLOW)
# Not by the plugin's option: it is read before this file is, and would be overruled.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
