"""What to say about mistakes that happen in any task, whatever it is about."""

STUB = "`{name}` still raises `NotImplementedError`: write your answer in its place."
UNKNOWN = "This is no mistake that the check knows by name. Compare both by hand; `check.{name}.hint()` helps."

MISTAKES = {
    "overwritten_name": (
        "The name `{name}` holds {kind} now, no function. Run the cell that defines it again, and give the other thing "
        "another name."
    ),
    "borrowed": "This `{name}` is the course's own function. Write yours.",
    "mutates_input": (
        "The function changes its input. Whoever calls it goes on with other numbers than before, without a word: work "
        "on a copy, or make a new tensor."
    ),
    "async": "The function is an `async def`, which only makes a promise to run: leave the `async` away.",
    "generator": (
        "The function has a `yield`, so calling it makes a generator and no result: collect the values and `return` "
        "them."
    ),
    "prints_result": (
        "The function prints its result and returns None. Nobody can go on with what is printed: use `return`."
    ),
    "returns_nothing": "The function returns None: a `return` is missing, or one of its branches has none.",
    "never_returns": (
        "The function was still running after {seconds} seconds, and {end}. Look for a loop whose end never comes."
    ),
    "unreadable": "What the function returned is of a kind that this check cannot look at. Compare with what is asked.",
    "interrupted": "The check was interrupted.",
    "raises": "The function raised an error.{line}",
}
