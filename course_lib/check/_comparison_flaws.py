"""Exercise 10's task `flaws`: what makes a comparison of two optimizers unfair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

import numpy as np

from course_lib.check import _values
from course_lib.check._task import Belief, Task, Verdict, case, ways, wrong

Report = Mapping[str, Any]
Test = Callable[[Report, Report], bool]
WORDS = ("search", "edge", "leak", "pairs")


def _either(test: Callable[[Report], bool]) -> Test:
    return lambda a, b: test(a) or test(b)


def _at_edge(report: Report) -> bool:
    return report["rate"] in (min(report["tried"]), max(report["tried"]))


def _first_or_last(report: Report) -> bool:
    return report["rate"] in (report["tried"][0], report["tried"][-1])


def _leaks(report: Report) -> bool:
    return report["chosen_by"] == report["judged_by"]


def _uneven(a: Report, b: Report) -> bool:
    return len(a["tried"]) != len(b["tried"])


def _other_seeds(a: Report, b: Report) -> bool:
    return set(a["seeds"]) != set(b["seeds"])


def _other_rows(a: Report, b: Report) -> bool:
    return a["judged_by"] != b["judged_by"]


def _never(a: Report, b: Report) -> bool:
    return False


RIGHT: dict[str, Test] = {
    "search": _uneven,
    "edge": _either(_at_edge),
    "leak": _either(_leaks),
    "pairs": lambda a, b: _other_seeds(a, b) or _other_rows(a, b),
}


def _flaws(a: Report, b: Report, **instead: Test) -> set[str]:
    return {word for word, test in (RIGHT | instead).items() if test(a, b)}


def _first_only(a: Report, b: Report, order: tuple[str, ...] = WORDS) -> set[str]:
    found = _flaws(a, b)
    return {word for word in order if word in found and not found & set(order[: order.index(word)])}


def _as_words(call: Callable[..., Any], *args: Any) -> Any:
    """A collection of words in one order, so that it does not matter which kind of collection it is."""
    came = call(*args)
    came = came.tolist() if isinstance(came, np.ndarray) else came
    if isinstance(came, (list, tuple, Set)) and all(isinstance(word, str) for word in came):
        return sorted({word.strip().casefold() for word in came})
    return came


def _accept(came: Any, a: Report, b: Report) -> Verdict | None:
    right = sorted(_flaws(a, b))
    expected = _listed(right)
    if not isinstance(came, list) or not all(isinstance(word, str) for word in came):
        return wrong(f"It is {_values.kind(came)}; a set of words was expected.", came=came, expected=expected)
    if came == right:
        return None
    strange = [f"`{word}` is none of the four words." for word in came if word not in WORDS]
    missing = [f"`{word}` is missing." for word in right if word not in came]
    extra = [f"`{word}` does not apply." for word in came if word not in right]
    return wrong((strange or missing + extra)[0], came=_listed(came), expected=expected)


def _listed(words: list[str]) -> str:
    return ", ".join(words) or "an empty set"


def _report(**changes: Any) -> dict[str, Any]:
    fair = {
        "tried": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
        "rate": 1e-3,
        "chosen_by": "held back",
        "judged_by": "validation",
        "seeds": [0, 1, 2, 3, 4, 5, 6, 7],
    }
    return {**fair, **changes}


HIGH = {"tried": [0.03, 0.001, 0.01, 0.003, 0.1], "rate": 0.01}

flaws = Task(
    name="flaws",
    rule=_flaws,
    use=_as_words,
    accept=_accept,
    cases=lambda: [
        case(_report(), _report(rate=3e-4)),
        case(_report(), _report(tried=[3e-5, 1e-4, 3e-4], rate=1e-4)),
        case(_report(), _report(**HIGH)),
        case(_report(**HIGH, seeds=[7, 6, 5, 4, 3, 2, 1, 0]), _report()),
        case(_report(tried=[1e-3, 1e-4, 1e-2, 1e-5, 1e-6], rate=1e-3), _report()),
        case(_report(), _report(tried=[1e-3, 1e-2, 1e-4, 1e-5, 1e-6], rate=1e-2)),
        case(_report(rate=1e-4), _report()),
        case(_report(), _report(rate=1e-4)),
        case(_report(rate=1e-2), _report(tried=[1e-4], rate=1e-4)),
        case(_report(chosen_by="validation"), _report()),
        case(_report(), _report(chosen_by="validation")),
        case(_report(chosen_by="validation"), _report(chosen_by="validation", rate=1e-2)),
        case(_report(chosen_by="validation", judged_by="test"), _report(judged_by="test")),
        case(_report(judged_by="test"), _report(chosen_by="test", judged_by="test")),
        case(_report(), _report(seeds=[10, 11, 12, 13, 14, 15, 16, 17])),
        case(_report(), _report(seeds=[0, 1, 2, 3, 4])),
        case(_report(seeds=[7, 1, 2, 3, 4]), _report()),
        case(_report(seeds=[0, 1, 2]), _report(seeds=[2, 0, 1])),
        case(_report(), _report(judged_by="test")),
        case(_report(chosen_by="test"), _report(judged_by="test", seeds=[3, 4])),
        case(_report(tried=[1e-3], chosen_by="validation"), _report(seeds=[5, 4], judged_by="test")),
    ],
    beliefs=[
        Belief(
            "untuned_rival",
            "You never say `search`. Somebody who tries five rates for one side and one or three for the other has "
            "tuned the first alone, and that can make any winner.",
            partial(_flaws, search=_never),
        ),
        Belief(
            "only_no_search_counts",
            "You say `search` only where somebody had no choice at all. Three rates against five are not fair either.",
            partial(_flaws, search=lambda a, b: _uneven(a, b) and 1 in (len(a["tried"]), len(b["tried"]))),
        ),
        ways(
            "same_rate_demanded",
            "You ask both sides to have the same rate. A rate that suits one optimizer can be ten times too large for "
            "another: what has to be the same is how many were tried.",
            partial(_flaws, search=lambda a, b: a["rate"] != b["rate"]),
            partial(_flaws, search=lambda a, b: _uneven(a, b) or a["rate"] != b["rate"]),
        ),
        ways(
            "same_list_demanded",
            "You ask both sides to try the very same rates. Each may search where its own good rates are; what has to "
            "be the same is how many it may try.",
            partial(_flaws, search=lambda a, b: a["tried"] != b["tried"]),
            partial(_flaws, search=lambda a, b: set(a["tried"]) != set(b["tried"])),
        ),
        ways(
            "edge_is_fine",
            "You miss rates at the end of what was tried. Nobody knows then whether the next one would have been "
            "better.",
            partial(_flaws, edge=_never),
        ),
        Belief(
            "edge_by_position",
            "You look at the first and the last place of the list. The rates may stand in any order: the edge is the "
            "smallest or the largest of them.",
            partial(_flaws, edge=_either(_first_or_last)),
        ),
        ways(
            "one_edge_only",
            "A search has two ends: the best rate may lie below the smallest that was tried, or above the largest.",
            partial(_flaws, edge=_either(lambda r: r["rate"] == max(r["tried"]))),
            partial(_flaws, edge=_either(lambda r: r["rate"] == min(r["tried"]))),
        ),
        ways(
            "one_side_only",
            "You look at one of the two sides. A flaw on the other one makes the comparison as unfair.",
            *(
                partial(_flaws, **changes)
                for side in (0, 1)
                for edge in (lambda a, b, side=side: _at_edge((a, b)[side]),)
                for leak in (lambda a, b, side=side: _leaks((a, b)[side]),)
                for changes in ({"edge": edge}, {"leak": leak}, {"edge": edge, "leak": leak})
            ),
        ),
        ways(
            "both_have_to",
            "For `edge` and `leak` one side is enough. You report them only if both sides have the flaw.",
            *(
                partial(_flaws, **changes)
                for edge in (lambda a, b: _at_edge(a) and _at_edge(b),)
                for leak in (lambda a, b: _leaks(a) and _leaks(b),)
                for changes in ({"edge": edge}, {"leak": leak}, {"edge": edge, "leak": leak})
            ),
        ),
        ways(
            "leak_missed",
            "You miss rates that were chosen by the rows which judge. The best of five on those rows is partly luck on "
            "them, and looks better than it is.",
            partial(_flaws, leak=_never),
        ),
        Belief(
            "leak_turned_round",
            "You report a leak where other rows have chosen than judge. That is how it should be; it leaks where they "
            "are the same.",
            partial(_flaws, leak=_either(lambda r: not _leaks(r))),
        ),
        ways(
            "validation_is_the_leak",
            "You look for one kind of rows by its name. Any rows leak if they choose the rate and judge it "
            "afterwards, and no others do.",
            partial(_flaws, leak=_either(lambda r: r["chosen_by"] == "validation")),
            partial(_flaws, leak=_either(lambda r: r["chosen_by"] != "held back")),
            partial(_flaws, leak=_either(lambda r: r["chosen_by"] == r["judged_by"] == "validation")),
        ),
        ways(
            "leak_across",
            "For `leak` you compare one side's rows with the other's. The question is for each side alone: was its "
            "rate chosen by the rows that judge it?",
            partial(
                _flaws, leak=lambda a, b: bool({a["chosen_by"], b["chosen_by"]} & {a["judged_by"], b["judged_by"]})
            ),
            partial(_flaws, leak=lambda a, b: a["chosen_by"] == b["judged_by"] or b["chosen_by"] == a["judged_by"]),
            partial(_flaws, leak=lambda a, b: a["chosen_by"] != b["chosen_by"]),
        ),
        Belief(
            "few_seeds_are_no_pairs",
            "You count few seeds as a flaw of the pairs. Few seeds make the result less clear, but each run has its "
            "partner.",
            partial(_flaws, pairs=lambda a, b: RIGHT["pairs"](a, b) or min(len(a["seeds"]), len(b["seeds"])) < 5),
        ),
        ways(
            "some_pairs_are_enough",
            "You are content if some of the seeds are the same. `pairs` applies as soon as one run has no partner.",
            *(
                partial(
                    _flaws, pairs=lambda a, b, test=test: test(set(a["seeds"]), set(b["seeds"])) or _other_rows(a, b)
                )
                for test in (
                    set.isdisjoint,
                    lambda a, b: not a <= b,
                    lambda a, b: not b <= a,
                    lambda a, b: not (a <= b or b <= a),
                )
            ),
        ),
        ways(
            "order_of_seeds_counts",
            "The same seeds in another order are the same seeds. Each run is then compared with that of the same seed.",
            partial(_flaws, pairs=lambda a, b: a["seeds"] != b["seeds"] or _other_rows(a, b)),
            partial(_flaws, pairs=lambda a, b: a["seeds"] != b["seeds"]),
        ),
        ways(
            "as_many_is_enough",
            "You count the seeds. As many are not the same: without the same seeds there are no pairs to subtract.",
            partial(_flaws, pairs=lambda a, b: len(a["seeds"]) != len(b["seeds"]) or _other_rows(a, b)),
            partial(_flaws, pairs=lambda a, b: len(a["seeds"]) != len(b["seeds"])),
        ),
        ways(
            "rows_forgotten",
            "You compare the seeds alone. The rows that judge have to be the same, too, or one side may simply have "
            "had the easier ones.",
            partial(_flaws, pairs=_other_seeds),
            partial(_flaws, pairs=lambda a, b: _other_seeds(a, b) and _other_rows(a, b)),
        ),
        Belief(
            "seeds_forgotten",
            "For `pairs` you compare the rows alone. Without the same seeds there are no two runs to subtract.",
            partial(_flaws, pairs=_other_rows),
        ),
        ways(
            "first_flaw_only",
            "You stop at the first flaw. All of them are asked: whoever mends one would like to know of the next.",
            _first_only,
            partial(_first_only, order=WORDS[::-1]),
        ),
    ],
    hints=[
        "Start with an empty set and ask four questions, one after the other. Each may add its word.",
        "`edge` and `leak` are about one side each, so ask them of `a` and of `b`. `search` and `pairs` are about both "
        "together.",
        '`set(a["seeds"])` forgets the order. `min` and `max` of the rates do not need it.',
    ],
    praise="These four can be asked of any table in a paper. Often the answer is that it does not say.",
)
