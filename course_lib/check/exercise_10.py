"""Exercise 10: judge two optimizers by their runs, find what is unfair in a comparison, and choose in five cases."""

from course_lib.check._comparison_better import better as better
from course_lib.check._comparison_choices import five_scenarios as five_scenarios
from course_lib.check._comparison_flaws import flaws as flaws
