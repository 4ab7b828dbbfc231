"""What holds for all tests: the small tier and no window for figures, here and in every process a test starts."""

import os

os.environ["COURSE_TIER"] = "small"
os.environ["MPLBACKEND"] = "Agg"
