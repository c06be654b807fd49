"""Settings of Hypothesis: no deadline, for a busy machine is no failure, and the same cases in each run."""

from hypothesis import settings

settings.register_profile("regatta", deadline=None, derandomize=True)
settings.load_profile("regatta")
