"""Replay recorded conversations as if a policy had managed their context window, and compare what that costs and what it forgets.

* Replay files: `replay`, `replay_file`, `ReplayOptions`, `ReplayRules`
* Results: `FileResult`, `FailedFile`, `PolicyResult`, `ReplayTotals`, `RetentionCounts`,
  `TimelineRequest`, and as JSON `results_to_json`
* Recordings: `Recording`, `read_recordings`, `recording_from_messages`, and to play one of them
  `Simulation`, `SimulationResult`
* Prompt caches: `cache_rule_for`
* Policies: `POLICY_GROUPS`, `parse_policy_names`, `find_policy`
* Policies of your own: `ReplayPolicy`, `PolicyRun`, `ReplayTerms`, `SummaryCall`
* Draw: `draw_timeline`, with the extra `plot`
* Errors: `UnknownPolicyError`
"""

import lazy_loader

# The names and their modules are in the stub beside this file, each once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
