"""What recorded conversations of agents would have cost.

* `promptkit.lab.recordings` reads the conversations that other agents recorded
* `promptkit.lab.replay` replays them with the compaction of each preset
* `promptkit.lab.corpus` renders or replays many files in parallel
"""
