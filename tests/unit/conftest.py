"""Settings of all unit tests."""

from hypothesis import settings

# A loaded machine is no failure: nothing here asserts how long something takes.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
