"""The capstone: choose an optimizer for a budget, prove by measuring that it fits, and train within it."""

from course_lib.check._budget_choose import choose as choose
from course_lib.check._budget_fit import fit as fit
from course_lib.check._budget_prove import prove as prove
