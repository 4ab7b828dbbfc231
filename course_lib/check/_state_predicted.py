"""The task `predicted_numbers` of exercise 08: what Adafactor will keep, before it has taken a step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import nn

from course_lib import adafactor, memory
from course_lib.check._state_guesses import GUESS, GUESSES, Guess
from course_lib.check._task import Belief, Case, NotFit, Task, case, wrong


class _Everything(nn.Module):
    """A tied, a frozen and a convolution parameter, vectors, a single number, and buffers, which are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.body = nn.Sequential(nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 8))
        self.frozen = nn.Conv2d(8, 4, 3).requires_grad_(False)
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(8, 50)
        self.head.weight = self.embedding.weight


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Embedding(40, 6), nn.Linear(6, 40, bias=False))
    model[1].weight = model[0].weight
    return model


def _models() -> list[Case]:
    with torch.random.fork_rng(devices=[]):  # the notebook's random numbers go on as if nothing had happened
        return [
            case(nn.Linear(6, 4), given="a Linear(6, 4): shapes (4, 6) and (4,)"),
            case(_tied(), given="an Embedding(40, 6) whose weight is also that of a Linear(6, 40) without bias"),
            case(
                nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3).requires_grad_(False)),
                given="a Linear(5, 7), and a Linear(7, 3) that is frozen",
            ),
            case(nn.Conv2d(6, 8, 3), given="a Conv2d(6, 8, 3): shapes (8, 6, 3, 3) and (8,)"),
            case(_Everything(), given="a model with a tied embedding, a frozen and a trained convolution, and more"),
            case(nn.Conv1d(6, 8, 5), given="a Conv1d(6, 8, 5): shapes (8, 6, 5) and (8,)"),
            case(
                nn.Conv2d(32, 64, 1, device="meta"),
                given="on meta: a Conv2d(32, 64, 1): shapes (64, 32, 1, 1) and (64,)",
            ),
            case(
                nn.ParameterDict({"scale": torch.tensor(2.0), "weight": torch.ones(3, 2)}),
                given="a single number, of shape (), and a matrix of shape (3, 2)",
            ),
        ]


def _kept(model: nn.Module) -> int:
    """The moments that a step leaves, taken with a copy of the model."""
    trained = [p for p in copy.deepcopy(model).parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.ones_like(p)
    optimizer = adafactor.Adafactor(trained)
    optimizer.step()
    return memory.state_size(optimizer).moments


CHANGES = {
    "takes_a_step": "You train the model to find out: it comes back with gradients or with other weights. A prediction "
    "needs the shapes only, and leaves the model as it is.",
    "changes_the_model": "The model comes back in another state: on another device, with another dtype, in another "
    "mode, frozen or no longer so. Many methods of a module change the module itself. Reading shapes changes nothing.",
}


def _condition(model: nn.Module) -> list[Any]:
    """What a prediction leaves as it is, apart from the numbers."""
    parameters = [(name, p.device, p.dtype, p.requires_grad) for name, p in model.named_parameters()]
    return [*parameters, *(module.training for module in model.modules())]


def _left_alone(call: Callable[..., Any], model: nn.Module) -> Any:
    """What is predicted, if the model is as it was."""
    before = copy.deepcopy(model)
    result = call(model)
    name = ""
    if _condition(model) != _condition(before):
        name = "changes_the_model"
    elif any(
        p.grad is not None or not (p.is_meta or torch.equal(p, q))
        for p, q in zip(model.parameters(), before.parameters(), strict=True)
    ):
        name = "takes_a_step"
    if name:
        raise NotFit(wrong(CHANGES[name], name, given=getattr(call, "given", "")))
    return result


def _saved(guess: Guess, model: nn.Module) -> int:
    return sum(guess.of(value.shape) for value in model.state_dict().values())


def _at_every_level(guess: Guess, model: nn.Module) -> int:
    return sum(guess(module) for module in model.modules())


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _of_some(guess: Guess, model: nn.Module, kinds: tuple[type, ...]) -> float:
    """What is kept for layers of these kinds."""
    return sum(guess.of(p.shape) for layer in model.modules() if isinstance(layer, kinds) for p in _trained(layer))


def _has_axes(test: Callable[[int], bool]) -> Callable[[nn.Module], bool]:
    """Tells a model with a trained parameter whose number of axes passes the test."""
    return lambda model: any(test(p.ndim) for p in _trained(model))


LAYERS = (nn.Linear, nn.Embedding, nn.Conv2d, nn.BatchNorm2d)


def _guesses() -> list[Belief]:
    """Each misconception alone; too early or in the wrong place; then two misconceptions at once."""
    alone = [
        Belief(name, says, [replace(GUESS, **change) for change in changes])
        for name, (says, changes) in GUESSES.items()
    ]
    every = [replace(GUESS, **change) for _, changes in GUESSES.values() for change in changes]
    elsewhere = [
        Belief(
            "saved_model_counted",
            "You count what a saved model holds: tied parameters under each name, frozen ones, and buffers such as "
            "those of BatchNorm, which are no parameters. Ask the model for its parameters.",
            [partial(_saved, guess) for guess in (GUESS, *every)],
        ),
        Belief(
            "counted_at_every_level",
            "You go through the modules, and ask each for all parameters inside it. So what lies deeper counts again "
            "at each level.",
            [partial(_at_every_level, guess) for guess in (GUESS, *every)],
        ),
    ]
    elsewhere += [
        Belief(
            "buffers_counted",
            "You count buffers, too, such as BatchNorm's averages. They are not trained, so an optimizer never sees "
            "them.",
            lambda model: GUESS(model) + sum(GUESS.of(buffer.shape) for buffer in model.buffers()),
        ),
        Belief(
            "biases_forgotten",
            "You count what is called a weight. A bias is a parameter, too, and there may be others with other names.",
            [
                lambda model, of=of: sum(
                    GUESS.of(p.shape)
                    for name, p in model.named_parameters()
                    if p.requires_grad and of(name.rpartition(".")[2])
                )
                for of in (lambda name: name == "weight", lambda name: name != "bias")
            ],
        ),
        Belief(
            "some_layers_only",
            "You ask layers of certain kinds for their parameters. Others have some as well: ask the model for all.",
            [
                partial(_of_some, GUESS, kinds=kinds)
                for number in range(1, len(LAYERS) + 1)
                for kinds in combinations(LAYERS, number)
            ],
        ),
        Belief(
            "equal_shapes_once",
            "You take parameters of the same shape for one. They are two, unless they are the very same tensor.",
            lambda model: sum(map(GUESS.of, {p.shape for p in _trained(model)})),
        ),
    ]
    partly = [
        Belief(
            "four_axes_only",
            "A `Conv1d` has a weight of three axes, and others have five. The last two are rows and columns, "
            "however many stand before them.",
            only_on=_has_axes(lambda axes: axes == 3),
        ),
        Belief(
            "number_has_no_axis",
            "A single number has no axis at all: its shape is `()`, so there is no first place to ask for. Its second "
            "moment is one number.",
            only_on=_has_axes(lambda axes: axes == 0),
        ),
        Belief(
            "two_axes_at_most",
            "For matrices and what has fewer axes you are right. A convolution has more: the last two are rows and "
            "columns, and each place on the others has a matrix of its own.",
            only_on=_has_axes(lambda axes: axes > 2),
        ),
        Belief(
            "matrices_only",
            "For matrices alone you are right. A parameter may also have one axis, none, or more than two.",
            only_on=_has_axes(lambda axes: axes != 2),
        ),
    ]
    before = [
        Belief(
            "waits_for_gradients",
            "You find nothing in any model. There are no gradients and no state yet: all that a prediction has are "
            "the shapes, and `requires_grad`.",
            lambda model: 0,
        ),
        Belief(
            "needs_numbers",
            "You need the numbers of the model. On `meta` there are none, and no prediction needs them: the shapes do.",
            raises="(?i)on meta|meta (tensor|device)|meta.*numpy|device type 'meta'",
        ),
        *(Belief(name, says) for name, says in CHANGES.items()),
    ]
    both = [
        Belief(name, says, [replace(guess, **change) for guess in every for change in changes])
        for name, (says, changes) in GUESSES.items()
    ]
    return before + alone + elsewhere + both + partly


predicted_numbers = Task(
    name="predicted_numbers",
    rule=_kept,
    cases=_models,
    use=_left_alone,
    rtol=0.0,
    atol=0.0,
    beliefs=_guesses(),
    hints=[
        "Which parameters get a state at all? `model.parameters()` gives each of them once, tied or not.",
        "For a shape `(a, b, n, m)` write down the shapes of `V.mean(-1)` and of `V.mean(-2)`, and count their "
        "entries.",
        "For two or more axes: all axes but the last, multiplied, and all axes but the last but one, multiplied. Add "
        "both. For fewer axes: all entries.",
    ],
    praise="The check has taken a step with each model, and found what you say. For the 1 × 1 convolution Adafactor "
    "keeps twice as many numbers as it has weights.",
)
