"""A course of three lessons, of which the third is not written, for tests of the build."""

LIST = """
title: Sample
short_route: ["00"]
lessons:
  - {id: "00", slug: first, title: First, minutes: 10, needs: [], summary: The first., goals: [say one]}
  - {id: "01", slug: second, title: Second, minutes: 55, needs: ["00"], summary: The second., goals: [say two]}
  - {id: "02", slug: third, title: Third, minutes: 5, needs: ["01"], summary: Not written yet., goals: [say three]}
"""
QUESTIONS = """
- id: 00-sum
  lesson: "00"
  question: How much is 1 + 1?
  options:
    - {text: "1", belief: It is more.}
    - {text: "2", belief: Right.}
    - {text: "3", belief: It is less.}
    - {text: "11", belief: These are no texts.}
  right: B
  next: Count.
"""
EXERCISE = """\
# %% [markdown] task="ema" minutes=3 difficulty="easy" good_for="counting"
# ## Average
#
# Write `ema`.

# %%
def ema(values, beta):
    '''All averages.'''
    ### BEGIN SOLUTION
    m, secret = 0, []
    for value in values:
        m = beta * m + (1 - beta) * value
        secret.append(m)
    return secret
    ### END SOLUTION

# %% [markdown] tags=["why"]
# One number is kept.

# %%
check.ema()

# %%
check.preview(lambda: [float(m) for m in ema([1, 0], 0.5)])

# %% [markdown] task="bias_corrected" minutes=4 difficulty="hard" good_for="Adam"
# ## Correct
#
# Write `bias_corrected`.

# %%
def bias_corrected(m, t, beta):
    ### BEGIN SOLUTION
    return m / (1 - beta**t)
    ### END SOLUTION

# %% [markdown] tags=["why"]
# The weights add up to less than 1.

# %%
check.bias_corrected()
"""


def write_sources(root, *lessons):
    sources = root / "sources"
    (sources / "lessons").mkdir(parents=True)
    (sources / "exercises").mkdir()
    (sources / "course.yaml").write_text(LIST, encoding="utf-8")
    (sources / "questions.yaml").write_text(QUESTIONS, encoding="utf-8")
    (sources / "exercises" / "01_second.py").write_text(EXERCISE, encoding="utf-8")
    for name, text in zip(("00_first.py", "01_second.py"), lessons, strict=False):
        (sources / "lessons" / name).write_text(text, encoding="utf-8")
