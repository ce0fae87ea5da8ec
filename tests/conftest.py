"""What every test shares: how hypothesis searches."""

import os

from hypothesis import settings

# No deadline: the machine may be busy, and timings are never asserted. Under CI the search is the same on every run.
settings.register_profile("gaussport", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gaussport")
