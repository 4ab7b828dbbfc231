"""Terms: told from the same words in code, links and formulas, and found where they are used too early."""

import pytest
from sample_course import write_sources

import build
import course as course_list
import glossary
import prose
from course import CourseError

USES = [
    ("The second moment.", True),
    ("Second\nmoments grow.", True),
    ("the *second moment*-based step", True),
    ("A second-moment matrix", True),
    ("| a | b |\n|---|---|\n| second moment | 1 |", True),
    ("[second moment](glossary.ipynb#second-moment) and [the second moments](x.md)", False),
    ("`second moment`", False),
    ("```\nsecond moment\n```", False),
    ("$second moment$ and\n\n$$\nsecond moment\n$$", False),
    ("millisecond moment, second momentum", False),
    ("the second `x` moment", False),
    ("the second\n\nMoment of truth", False),
    ("<!-- second moment -->", False),
]


@pytest.mark.parametrize(("markdown", "used"), USES)
def test_a_use_of_a_term_is_told_from_what_is_none(markdown, used):
    assert prose.uses("second moment", markdown) is used


def test_terms_used_too_early_or_defined_twice(tmp_path):
    first = "# %% [markdown]\n# The root of all, and one [root](glossary.ipynb#root).\n"
    second = "# %% [markdown]\n# > **root** — what is squared.\n# > **Root** — again.\n"
    write_sources(tmp_path, first, second)
    course = course_list.load(tmp_path)
    terms = glossary.terms(course)
    assert [term.name for term in terms] == ["root", "Root"]
    (early,) = glossary.check(course, [course.lesson("00")], terms)
    assert early.startswith("00_first: 'root' is introduced in 01_second only.")
    assert "[root](glossary.ipynb#root)" in early
    assert glossary.check(course, [course.lesson("01")], terms) == [
        "01_second: 'Root' is defined in 01_second already; link to it"
    ]
    with pytest.raises(CourseError, match="'root' is introduced in 01_second only"):
        build.build(tmp_path, ["00"], run=False)
