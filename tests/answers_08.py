"""Answers to exercise 08."""

import copy
import math
import sys
from itertools import chain

import numpy as np
import torch
from answers import right, wrong
from torch import nn

from course_lib import adafactor, memory, planner

# --- compute_optimizer_size


def flat(thing):
    """Everything in a state, one after the other."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        return list(chain.from_iterable(flat(part) for part in thing))
    return [] if thing is None else [thing]


def numbers(thing):
    return thing.numel() if torch.is_tensor(thing) else 1


def distinct(things):
    tensors = {id(thing): thing for thing in things if torch.is_tensor(thing)}
    return [*tensors.values(), *(thing for thing in things if not torch.is_tensor(thing))]


@wrong("compute_optimizer_size", "decimal_mb")
def _(states):
    things = distinct(flat(list(states)))
    size = sum(thing.nbytes for thing in things if torch.is_tensor(thing)) / 1_000_000
    return size, sum(thing.numel() if torch.is_tensor(thing) else 1 for thing in things)


@wrong("compute_optimizer_size", "decimal_mb", "and shared twice, top level only")
def _(states):
    size = elements = 0
    for state in states:
        for value in state.values():
            if isinstance(value, torch.Tensor):
                size += value.nbytes
                elements += value.numel()
            elif isinstance(value, (int, float)):
                elements += 1
    return size * 1e-6, elements


@wrong("compute_optimizer_size", "decimal_mb", "as the lesson's second version")
def _(states):
    size, elements = 0, 0
    for value in (value for state in states for value in state.values()):
        if torch.is_tensor(value):
            size += value.numel() * value.element_size()
            elements += value.numel()
        else:
            elements += 1
    return size / 1000**2, elements


@wrong("compute_optimizer_size", "wrong_unit")
def _(states):
    things = distinct(flat(list(states)))
    return [
        sum(t.nbytes for t in things if torch.is_tensor(t)),
        sum(t.numel() if hasattr(t, "numel") else 1 for t in things),
    ]


@wrong("compute_optimizer_size", "wrong_unit", "GiB")
def _(states):
    size, elements = memory.compute_optimizer_size(states)
    return size / 1024, elements


@wrong("compute_optimizer_size", "rounded")
def _(states):
    size, elements = memory.compute_optimizer_size(states)
    return float(f"{size:.2f}"), elements


@wrong("compute_optimizer_size", "rounded", "down, to a whole number")
def _(states):
    size, elements = memory.compute_optimizer_size(states)
    return int(size), elements


@wrong("compute_optimizer_size", "wrong_order")
def _(states):
    return memory.compute_optimizer_size(states)[::-1]


@wrong("compute_optimizer_size", "entries_counted")
def _(states):
    things = distinct(flat(list(states)))
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, len(things)


@wrong("compute_optimizer_size", "steps_skipped")
def _(states):
    things = distinct(flat([{k: v for k, v in state.items() if k != "step"} for state in states]))
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "steps_skipped", "inside entries too, shared twice")
def _(states):
    def without(state):
        return {k: without(v) if isinstance(v, dict) else v for k, v in state.items() if k != "step"}

    things = flat([without(state) for state in states])
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "steps_skipped", "everything with one number")
def _(states):
    things = [t for t in distinct(flat(list(states))) if torch.is_tensor(t) and t.dim() > 0]
    return sum(t.nbytes for t in things) / 2**20, sum(t.numel() for t in things)


@wrong("compute_optimizer_size", "steps_skipped", "by the number of elements, top level")
def _(states):
    total = count = 0
    for s in states:
        for v in s.values():
            if torch.is_tensor(v) and v.numel() > 1:
                total, count = total + v.nbytes, count + v.numel()
    return total / 2**20, count


@wrong("compute_optimizer_size", "steps_skipped", "tensors of one number, but no int")
def _(states):
    things = [t for t in distinct(flat(list(states))) if not torch.is_tensor(t) or t.ndim]
    return sum(getattr(t, "nbytes", 0) for t in things) / 2**20, sum(
        t.numel() if torch.is_tensor(t) else 1 for t in things
    )


@wrong("compute_optimizer_size", "ints_skipped")
def _(states):
    things = [t for t in distinct(flat(list(states))) if torch.is_tensor(t)]
    return sum(t.nbytes for t in things) / 2**20, sum(t.numel() for t in things)


@wrong("compute_optimizer_size", "ints_skipped", "as the lesson's repair, with hasattr")
def _(states):
    size, elements = 0, 0
    for state in states:
        for value in state.values():
            if hasattr(value, "numel"):
                size += value.numel() * value.element_size()
                elements += value.numel()
    return size / 1024**2, elements


@wrong("compute_optimizer_size", "floats_skipped")
def _(states):
    things = distinct(flat(list(states)))
    elements = sum(t.numel() if torch.is_tensor(t) else 1 for t in things if not isinstance(t, float))
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, elements


@wrong("compute_optimizer_size", "ints_take_bytes")
def _(states):
    things = [
        torch.as_tensor(t, dtype=None if torch.is_tensor(t) else torch.float64) for t in distinct(flat(list(states)))
    ]
    return sum(t.nbytes for t in things) / 2**20, sum(t.numel() for t in things)


@wrong("compute_optimizer_size", "ints_take_bytes", "as Python keeps them")
def _(states):
    size = elements = 0
    for value in distinct(flat(list(states))):
        tensor = torch.is_tensor(value)
        size += value.nbytes if tensor else sys.getsizeof(value)
        elements += value.numel() if tensor else 1
    return size / 2**20, elements


@wrong("compute_optimizer_size", "assumes_fp32")
def _(states):
    elements = tensors = 0
    for value in distinct(flat(list(states))):
        elements += value.numel() if torch.is_tensor(value) else 1
        tensors += value.numel() if torch.is_tensor(value) else 0
    return 4 * tensors / 2**20, elements


@wrong("compute_optimizer_size", "assumes_fp32", "for all elements")
def _(states):
    elements = sum(map(numbers, flat(list(states))))
    return elements * 4 / 2**20, elements


@wrong("compute_optimizer_size", "one_moment")
def _(states):
    size = elements = 0
    for state in states:
        for key in state:
            if key == "exp_avg":
                continue
            for t in flat(state[key]):
                size += t.nbytes if torch.is_tensor(t) else 0
                elements += t.numel() if torch.is_tensor(t) else 1
    return size / 2**20, elements


@wrong("compute_optimizer_size", "one_moment", "by its name")
def _(states):
    V = [state["exp_avg_sq"] for state in states]
    return sum(v.nbytes for v in V) / 2**20, sum(v.numel() for v in V)


@wrong("compute_optimizer_size", "crashes_on_int")
def _(states):
    size, elements = 0, 0
    for state in states:
        for value in state.values():
            size += value.numel() * value.element_size()
            elements += value.numel()
    return size / 1024**2, elements


@wrong("compute_optimizer_size", "crashes_on_int", "torch.numel")
def _(states):
    values = [value for state in states for value in state.values()]
    return sum(torch.numel(v) * v.itemsize for v in values) / 2**20, sum(map(torch.numel, values))


@wrong("compute_optimizer_size", "crashes_on_int", "in MB")
def _(states):
    values = [value for state in states for value in state.values()]
    return sum(v.nbytes for v in values) / 10**6, sum(v.numel() for v in values)


@wrong("compute_optimizer_size", "crashes_on_the_rest")
def _(states):
    size, elements = 0, 0
    for state in states:
        for value in state.values():
            if isinstance(value, int):
                elements += 1
            else:
                size += value.numel() * value.element_size()
                elements += value.numel()
    return size / 1024**2, elements


@wrong("compute_optimizer_size", "crashes_on_the_rest", "None inside a list")
def _(states):
    def inside(value):
        if isinstance(value, dict):
            return sum((inside(part) for part in value.values()), np.zeros(2))
        if isinstance(value, list):
            return sum((inside(part) for part in value), np.zeros(2))
        if isinstance(value, (int, float)):
            return np.array([0, 1])
        return np.array([value.nbytes, value.numel()])

    size, elements = sum((inside(state) for state in states), np.zeros(2))
    return size / 2**20, elements


@wrong("compute_optimizer_size", "asks_for_values_again")
def _(states):
    return sum(v.nbytes for _, s in states.items() for v in s.values()) / 2**20, len(states)


@wrong("compute_optimizer_size", "needs_a_list")
def _(states):
    size = elements = 0
    for i in range(len(states)):
        for value in states[i].values():
            size += value.nbytes
            elements += value.numel()
    return size / 2**20, elements


@wrong("compute_optimizer_size", "needs_a_list", "an average over the states")
def _(states):
    count = len(states)
    size, elements = memory.compute_optimizer_size(states)
    return size, elements if count else 0


@wrong("compute_optimizer_size", "equal_numbers_once")
def _(states):
    seen, size, elements = set(), 0, 0
    for value in flat(list(states)):
        if id(value) in seen:
            continue
        seen.add(id(value))
        size += value.nbytes if torch.is_tensor(value) else 0
        elements += value.numel() if torch.is_tensor(value) else 1
    return size / 2**20, elements


@wrong("compute_optimizer_size", "two_passes")
def _(states):
    size = sum(t.nbytes for t in distinct(flat([s for s in states])) if torch.is_tensor(t))
    elements = sum(t.numel() if torch.is_tensor(t) else 1 for t in distinct(flat([s for s in states])))
    return size / 2**20, elements


@wrong("compute_optimizer_size", "two_passes", "elements first, shared twice")
def _(states):
    elements = sum(t.numel() if torch.is_tensor(t) else 1 for s in states for t in flat(s))
    return sum(t.nbytes for s in states for t in flat(s) if torch.is_tensor(t)) / 2**20, elements


@wrong("compute_optimizer_size", "anything_is_one", "the lesson's second version")
def _(states, count_python_numbers=True):
    size, elements = 0, 0
    for value in (value for state in states for value in state.values()):
        if torch.is_tensor(value):
            size += value.numel() * value.element_size()
            elements += value.numel()
        elif count_python_numbers:
            elements += 1
    return size / 1024**2, elements


@wrong("compute_optimizer_size", "none_is_a_number")
def _(states):
    size = elements = 0
    waiting, met = list(states), []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif not torch.is_tensor(value):
            elements += 1
        elif not any(value is other for other in met):
            met.append(value)
            size += value.nbytes
            elements += value.numel()
    return size / 2**20, elements


@wrong("compute_optimizer_size", "top_level_only")
def _(states):
    things = distinct(
        [value for state in states for value in state.values() if isinstance(value, (torch.Tensor, int, float))]
    )
    return sum(getattr(t, "nbytes", 0) for t in things) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "top_level_only", "dictionaries, but no lists, shared twice")
def _(states):
    def walk(state):
        for value in state.values():
            if isinstance(value, dict):
                yield from walk(value)
            elif isinstance(value, (torch.Tensor, int, float)):
                yield value

    things = [value for state in states for value in walk(state)]
    return sum(getattr(t, "nbytes", 0) for t in things) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "shared_twice")
def _(states):
    things = flat(list(states))
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "shared_twice", "in one state only")
def _(states):
    size = elements = 0
    for state in states:
        for t in distinct(flat(state)):
            size += t.nbytes if torch.is_tensor(t) else 0
            elements += t.numel() if torch.is_tensor(t) else 1
    return size / 2**20, elements


@right("compute_optimizer_size", "by the address of the memory, as tensors")
def _(states):
    size, elements, addresses = torch.tensor(0.0), torch.tensor(0), set()
    for value in flat(list(states)):
        if not torch.is_tensor(value):
            elements += 1
        elif value.untyped_storage().data_ptr() not in addresses:
            addresses.add(value.untyped_storage().data_ptr())
            size += value.untyped_storage().nbytes()
            elements += value.numel()
    return [size / 2**20, elements]


@right("compute_optimizer_size", "in NumPy, of things found first")
def _(states):
    things = distinct(flat(tuple(states)))
    sizes = np.array([[t.nbytes, t.numel()] if torch.is_tensor(t) else [0, 1] for t in things]).reshape(-1, 2)
    return tuple(sizes.sum(axis=0) / [2**20, 1])


@wrong("compute_optimizer_size", "compares_tensors")
def _(states):
    met, size, elements = [], 0, 0
    for thing in flat(list(states)):
        if torch.is_tensor(thing) and thing in met:
            continue
        met.append(thing)
        size += thing.nbytes if torch.is_tensor(thing) else 0
        elements += numbers(thing)
    return size / 2**20, elements


def counted_unless(states, met, name_of):
    """Counts a tensor if its name is not in `met`."""
    size = elements = 0
    for thing in flat(list(states)):
        if torch.is_tensor(thing):
            if (name := name_of(thing)) in met:
                continue
            met.add(name)
            size += thing.nbytes
        elements += numbers(thing)
    return size / 2**20, elements


@wrong("compute_optimizer_size", "alike_is_the_same")
def _(states):
    return counted_unless(states, set(), lambda t: (tuple(t.shape), t.float().numpy().tobytes()))


@wrong("compute_optimizer_size", "alike_is_the_same", "in shape")
def _(states):
    return counted_unless(states, set(), lambda t: t.shape)


@wrong("compute_optimizer_size", "remembers", "a default argument")
def _(states, met=set()):  # noqa: B006 - the mistake
    return counted_unless(states, met, id)


SEEN = set()


@wrong("compute_optimizer_size", "remembers", "a set outside")
def _(states):
    return counted_unless(states, SEEN, lambda t: t)


@wrong("compute_optimizer_size", "once_in_one_of_two")
def _(states):
    things = flat(list(states))
    return sum(t.nbytes for t in distinct(things) if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "once_in_one_of_two", "in elements")
def _(states):
    things = flat(list(states))
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, distinct(things)))


@wrong("compute_optimizer_size", "shared_by_name")
def _(states):
    size, elements, names = 0, 0, set()
    for state in states:
        for name, entry in state.items():
            if name.startswith("qmap"):
                if name in names:
                    continue
                names.add(name)
            for thing in flat([entry]):
                size += thing.nbytes if torch.is_tensor(thing) else 0
                elements += numbers(thing)
    return size / 2**20, elements


@wrong("compute_optimizer_size", "no_states_at_all")
def _(states):
    states = list(states)
    if states[0] is not None:
        return counted_unless(states, set(), id)


def all_in_mib(states, met):
    """Calls itself for what is inside, which comes back in MiB."""
    size = elements = 0
    for state in states:
        for value in state.values():
            if torch.is_tensor(value) and id(value) not in met:
                met.add(id(value))
                size, elements = size + value.nbytes, elements + value.numel()
            elif isinstance(value, (dict, list, tuple)):
                part = all_in_mib([value if isinstance(value, dict) else dict(enumerate(value))], met)
                size, elements = size + part[0], elements + part[1]
            elif isinstance(value, (int, float)):
                elements += 1
    return size / 1024**2, elements


@wrong("compute_optimizer_size", "divides_inside")
def _(states):
    return all_in_mib(states, set())


@wrong("compute_optimizer_size", "divides_inside", "each state too")
def _(states):
    met = set()
    parts = [all_in_mib([state], met) for state in states]
    return sum(size for size, _ in parts) / 1024**2, sum(count for _, count in parts)


@wrong("compute_optimizer_size", "ints_take_bytes", "all made tensors")
def _(states):
    size = elements = 0
    for state in states:
        for value in state.values():
            value = torch.as_tensor(value)
            size += value.nbytes
            elements += value.numel()
    return size / 2**20, elements


@wrong("compute_optimizer_size", "top_level_only", "lists, but no tuples")
def _(states):
    def parts(value):
        if isinstance(value, dict):
            value = list(value.values())
        return [x for part in value for x in parts(part)] if isinstance(value, list) else [value]

    things = distinct([x for state in states for x in parts(state) if isinstance(x, (torch.Tensor, int, float))])
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@wrong("compute_optimizer_size", "top_level_only", "one level down")
def _(states):
    found = []
    for state in states:
        for value in state.values():
            inside = (
                value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
            )
            found += [part for part in inside if isinstance(part, (torch.Tensor, int, float))]
    things = distinct(found)
    return sum(t.nbytes for t in things if torch.is_tensor(t)) / 2**20, sum(map(numbers, things))


@right("compute_optimizer_size", "a stack instead of recursion, and a set of tensors")
def _(states):
    todo, tensors, single = list(states), set(), 0
    while todo:
        thing = todo.pop()
        if isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, (list, tuple)):
            todo += thing
        elif isinstance(thing, torch.Tensor):
            tensors.add(thing)
        elif thing is not None:
            single += 1
    return np.float32(sum(t.nbytes for t in tensors) / 2**20), np.int64(single + sum(t.nelement() for t in tensors))


@right("compute_optimizer_size", "by PyTorch's own tree")
def _(states):
    leaves = [leaf for state in states for leaf in torch.utils._pytree.tree_leaves(state) if leaf is not None]
    tensors = {leaf for leaf in leaves if torch.is_tensor(leaf)}
    single = sum(not torch.is_tensor(leaf) for leaf in leaves)
    return torch.tensor([sum(t.nbytes for t in tensors) / 2**20, single + sum(t.numel() for t in tensors)])


# --- whose_state


def known_by_name(state):
    table = [
        ("state1", "adamw8bit_bitsandbytes"),
        ("RMS", "adafactor_transformers"),
        ("row_var", "adafactor_torch"),
        ("variance", "adafactor_torch"),
        ("sum", "adagrad"),
        ("square_avg", "rmsprop"),
        ("exp_avg", "adamw"),
        ("momentum_buffer", "sgd_momentum"),
    ]
    return next((name for key, name in table if key in state), "adafactor")


@wrong("whose_state", "always_the_same")
def _(state, shape):
    return "adafactor" if any("exp_avg_sq" in key for key in state) else "adafactor"


@wrong("whose_state", "judged_by_key_count")
def _(state, shape):
    return {1: "sgd_momentum", 2: "rmsprop", 3: "adamw", 4: "adafactor_transformers"}.get(
        len(state), "adamw8bit_bitsandbytes"
    )


@wrong("whose_state", "judged_by_key_count", "and the axes")
def _(state, shape):
    if len(shape) == 1:
        return ["sgd_momentum", "adagrad", "adamw"][min(len(state), 3) - 1]
    return ["sgd_momentum", "rmsprop", "adafactor"][min(len(state), 3) - 1]


@wrong("whose_state", "judged_by_size")
def _(state, shape):
    kept = sum(v.numel() for v in state.values() if torch.is_tensor(v)) / math.prod(shape)
    if kept < 0.9:
        return "adafactor"
    return "rmsprop" if kept < 1.5 else "adamw"


@wrong("whose_state", "judged_by_size", "in bytes")
def _(state, shape):
    size = sum(v.nbytes for v in state.values() if torch.is_tensor(v))
    per_number = size / shape.numel()
    return "adafactor_transformers" if per_number < 2 else "sgd_momentum" if per_number < 6 else "adamw"


@wrong("whose_state", "judged_by_shapes")
def _(state, shape):
    shapes = [tuple(v.shape) for v in state.values() if torch.is_tensor(v)]
    full = shapes.count(tuple(shape))
    ints = any(isinstance(v, int) for v in state.values())
    if full == 2 or full == 3:
        return "adamw"
    if full == 1:
        return "adagrad" if () in shapes else "sgd_momentum"
    return "adafactor_transformers" if ints else "adafactor_torch" if any(1 in s for s in shapes) else "adafactor"


@wrong("whose_state", "not_on_the_list")
def _(state, shape):
    name = known_by_name(state)
    return {"sgd_momentum": "SGD"}.get(name, name)


@wrong("whose_state", "everyone_has_a_step")
def _(state, shape):
    if not torch.is_tensor(state["step"]):
        return "adafactor_transformers" if "RMS" in state else "adamw8bit_bitsandbytes"
    return known_by_name(state)


@wrong("whose_state", "step_is_a_tensor")
def _(state, shape):
    if "step" in state and state["step"].ndim == 0:
        return known_by_name(state)
    return "sgd_momentum"


@wrong("whose_state", "rmsprop_is_adafactor_vector")
def _(state, shape):
    if "exp_avg_sq" in state and "exp_avg" not in state and "RMS" not in state:
        return "rmsprop"
    return known_by_name(state)


@wrong("whose_state", "rmsprop_is_adafactor_vector", "by its missing rows")
def _(state, shape):
    keys = set(state)
    if keys >= {"RMS"}:
        return "adafactor_transformers"
    if keys == {"step", "exp_avg_sq_row", "exp_avg_sq_col"}:
        return "adafactor"
    if keys == {"step", "exp_avg_sq"} or keys == {"step", "variance"}:
        return "rmsprop"
    return known_by_name(state)


@wrong("whose_state", "half_of_adamw")
def _(state, shape):
    if "RMS" not in state and "exp_avg_sq" in state:
        return "adamw"
    return known_by_name(state)


@wrong("whose_state", "two_moments_mean_adamw")
def _(state, shape):
    return "adamw" if {"exp_avg", "exp_avg_sq"} <= set(state) else known_by_name(state)


@wrong("whose_state", "momentum_means_sgd")
def _(state, shape):
    return "sgd_momentum" if "momentum_buffer" in state else known_by_name(state)


@wrong("whose_state", "same_averages_same_class")
def _(state, shape):
    name = known_by_name(state)
    return "adafactor" if name == "adafactor_transformers" else name


@wrong("whose_state", "same_averages_same_class", "by the second moment first")
def _(state, shape):
    if any(key.startswith("exp_avg_sq") for key in state) and "exp_avg" not in state:
        return "adafactor_transformers"
    return known_by_name(state)


@wrong("whose_state", "small_is_not_8bit")
def _(state, shape):
    if "state1" in state:
        return "adamw8bit_bitsandbytes" if "qmap1" in state else "adamw"
    return known_by_name(state)


@wrong("whose_state", "defaults_only")
def _(state, shape):
    keys = set(state)
    if keys - {"step"} == {"exp_avg", "exp_avg_sq"}:
        return "adamw"
    if keys == {"step", "square_avg"}:
        return "rmsprop"
    name = known_by_name(state)
    return "adagrad" if name in ("adamw", "rmsprop") else name


@wrong("whose_state", "matrices_only")
def _(state, shape):
    if "variance" in state:
        return "adagrad"
    return known_by_name(state)


@right("whose_state", "from the exact keys, without what settings add")
def _(state, shape):
    keys = frozenset(state) - {"step", "max_exp_avg_sq", "grad_avg"}
    if "RMS" in keys:
        return "adafactor_transformers"
    return {
        frozenset(["momentum_buffer"]): "sgd_momentum",
        frozenset(["sum"]): "adagrad",
        frozenset(["square_avg"]): "rmsprop",
        frozenset(["square_avg", "momentum_buffer"]): "rmsprop",
        frozenset(["exp_avg", "exp_avg_sq"]): "adamw",
        frozenset(["exp_avg_sq"]): "adafactor",
        frozenset(["exp_avg_sq_row", "exp_avg_sq_col"]): "adafactor",
        frozenset(["row_var", "col_var"]): "adafactor_torch",
        frozenset(["variance"]): "adafactor_torch",
    }.get(keys, "adamw8bit_bitsandbytes")


@right("whose_state", "in capitals, from one text of all keys")
def _(state, shape):
    text = " ".join(state)
    if "state1" in text:
        return "AdamW8bit_bitsandbytes"
    if type(state.get("step")) is int:
        return "Adafactor_Transformers"
    if "_var" in text or "variance" in text:
        return "Adafactor_Torch"
    if "square_avg" in text:
        return "RMSprop"
    if "exp_avg " in text:
        return "AdamW"
    return "Adagrad" if "sum" in text else "Adafactor" if "exp_avg_sq" in text else "SGD_Momentum"


@wrong("whose_state", "int_step_means_transformers")
def _(state, shape):
    return "adafactor_transformers" if isinstance(state.get("step"), int) else known_by_name(state)


@wrong("whose_state", "eight_bit_is_adamw")
def _(state, shape):
    name = known_by_name(state)
    return "adamw" if "state1" in state and "qmap1" in state else name


@wrong("whose_state", "convolution_not_factored")
def _(state, shape):
    if len(shape) == 4 and "exp_avg_sq_row" in state:
        return "rmsprop"
    return known_by_name(state)


BY_DEFAULT = {
    ("momentum_buffer",): "sgd_momentum",
    ("step", "sum"): "adagrad",
    ("square_avg", "step"): "rmsprop",
    ("exp_avg", "exp_avg_sq", "step"): "adamw",
    ("exp_avg_sq_col", "exp_avg_sq_row", "step"): "adafactor",
    ("RMS", "exp_avg_sq_col", "exp_avg_sq_row", "step"): "adafactor_transformers",
    ("col_var", "row_var", "step"): "adafactor_torch",
}


@wrong("whose_state", "exact_keys")
def _(state, shape):
    return BY_DEFAULT.get(tuple(sorted(state)), "adamw8bit_bitsandbytes")


@wrong("whose_state", "exact_keys", "an error for others")
def _(state, shape):
    return "adamw8bit_bitsandbytes" if "state1" in state else BY_DEFAULT[tuple(sorted(state))]


@wrong("whose_state", "defaults_only", "None for others")
def _(state, shape):
    name = known_by_name(state)
    more = {"rmsprop": 2, "adamw": 3}.get(name)
    if (more is None or len(state) == more) and not ("RMS" in state and "exp_avg" in state):
        return name


@wrong("whose_state", "matrices_only", "an error for vectors")
def _(state, shape):
    return known_by_name(state) if "variance" not in state else known_by_name({state["row_var"]: 0})


@wrong("whose_state", "small_is_not_8bit", "by its codes")
def _(state, shape):
    if any(torch.is_tensor(value) and value.dtype == torch.uint8 for value in state.values()):
        return "adamw8bit_bitsandbytes"
    return "adamw" if "state1" in state else known_by_name(state)


@wrong("whose_state", "momentum_means_sgd", "and a first moment AdamW")
def _(state, shape):
    if "exp_avg" in state:
        return "adamw"
    return "sgd_momentum" if "momentum_buffer" in state else known_by_name(state)


@right("whose_state", "by the entries that each must have")
def _(state, shape):
    required = {
        "adamw8bit_bitsandbytes": {"state1", "state2"},
        "adafactor_transformers": {"RMS"},
        "rmsprop": {"square_avg"},
        "adamw": {"exp_avg", "exp_avg_sq"},
        "adagrad": {"sum"},
        "sgd_momentum": {"momentum_buffer"},
    }
    for name, keys in required.items():
        if keys <= state.keys():
            return np.str_(name)
    return np.str_("adafactor_torch" if any("var" in key for key in state) else "adafactor")


# --- predicted_numbers


def moments_of(shape):
    shape = list(shape)
    if len(shape) < 2:
        return int(np.prod(shape))
    return int(np.prod(shape) // shape[-1] + np.prod(shape) // shape[-2])


@wrong("predicted_numbers", "tied_twice")
def _(model):
    kept = 0
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if p.requires_grad:
                kept += moments_of(p.shape)
    return kept


@wrong("predicted_numbers", "frozen_counted")
def _(model):
    return sum(moments_of(p.shape) for p in model.parameters())


@wrong("predicted_numbers", "vector_factored")
def _(model):
    kept = 0
    for p in model.parameters():
        if p.requires_grad:
            kept += moments_of((*p.shape, 1)) if p.ndim == 1 else moments_of(p.shape)
    return kept


@wrong("predicted_numbers", "vector_factored", "to its mean")
def _(model):
    return sum(1 if p.ndim == 1 else moments_of(p.shape) for p in model.parameters() if p.requires_grad)


@wrong("predicted_numbers", "n_plus_m_for_conv")
def _(model):
    kept = 0
    for p in model.parameters():
        if p.requires_grad:
            kept += p.shape[0] + p.shape[1] if p.ndim >= 2 else p.numel()
    return kept


@wrong("predicted_numbers", "n_plus_m_for_conv", "last two axes alone")
def _(model):
    kept = 0
    for p in filter(lambda p: p.requires_grad, model.parameters()):
        kept += sum(p.shape[-2:]) if p.ndim >= 2 else p.numel()
    return kept


@wrong("predicted_numbers", "n_plus_m_for_conv", "all axes added")
def _(model):
    return sum(sum(p.shape) if p.ndim else 1 for p in model.parameters() if p.requires_grad)


@wrong("predicted_numbers", "n_plus_m_for_conv", "all axes added, which forgets a single number too")
def _(model):
    return sum(sum(p.shape) for p in model.parameters() if p.requires_grad)


@wrong("predicted_numbers", "n_plus_m_for_conv", "flattened")
def _(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    return sum(sum(p.flatten(1).shape) if p.ndim > 1 else p.numel() for p in trained)


@wrong("predicted_numbers", "conv_not_factored")
def _(model):
    return sum(sum(p.shape) if p.ndim == 2 else p.numel() for p in model.parameters() if p.requires_grad)


@wrong("predicted_numbers", "not_factored")
def _(model):
    return memory.predict_state_size(model, "rmsprop").moments


@wrong("predicted_numbers", "both_moments")
def _(model):
    return 2 * sum(math.prod(p.shape) for p in model.parameters() if p.requires_grad)


@wrong("predicted_numbers", "one_margin")
def _(model):
    trained = [p.detach().to("meta") for p in model.parameters() if p.requires_grad]
    return sum(p.mean(-1).numel() if p.ndim > 1 else p.numel() for p in trained)


@wrong("predicted_numbers", "vectors_forgotten")
def _(model):
    return sum(moments_of(p.shape) for p in model.parameters() if p.requires_grad and p.ndim >= 2)


@wrong("predicted_numbers", "single_number_forgotten")
def _(model):
    kept = 0
    for p in model.parameters():
        if p.requires_grad and p.ndim == 1:
            kept += len(p)
        elif p.requires_grad and p.ndim > 1:
            kept += moments_of(p.shape)
    return kept


@wrong("predicted_numbers", "steps_counted")
def _(model):
    return memory.predict_state_size(model, "adafactor").elements


@wrong("predicted_numbers", "steps_counted", "with the RMS of transformers")
def _(model):
    return memory.predict_state_size(model, "adafactor_transformers").elements


@wrong("predicted_numbers", "saved_model_counted")
def _(model):
    return sum(moments_of(value.shape) for value in model.state_dict().values())


@wrong("predicted_numbers", "saved_model_counted", "with all axes added")
def _(model):
    return sum(sum(t.shape) if t.ndim else 1 for _, t in model.state_dict().items())


@wrong("predicted_numbers", "counted_at_every_level")
def _(model):
    return sum(moments_of(p.shape) for module in model.modules() for p in module.parameters() if p.requires_grad)


@wrong("predicted_numbers", "steps_counted", "and frozen parameters")
def _(model):
    return sum(1 + moments_of(p.shape) for p in model.parameters())


@wrong("predicted_numbers", "waits_for_gradients")
def _(model):
    return sum(moments_of(p.shape) for p in model.parameters() if p.grad is not None)


@wrong("predicted_numbers", "waits_for_gradients", "counts before the first step")
def _(model):
    return memory.state_size(adafactor.Adafactor(model.parameters())).moments


@wrong("predicted_numbers", "takes_a_step")
def _(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.ones_like(p)
    optimizer = adafactor.Adafactor(trained)
    optimizer.step()
    return memory.state_size(optimizer).moments


@wrong("predicted_numbers", "needs_numbers")
def _(model):
    arrays = [p.detach().numpy() for p in model.parameters() if p.requires_grad]
    return sum(a.mean(-1).size + a.mean(-2).size if a.ndim > 1 else a.size for a in arrays)


@right("predicted_numbers", "measured on a copy")
def _(model):
    layer = copy.deepcopy(model)
    for p in layer.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    optimizer = adafactor.Adafactor(layer.parameters())
    optimizer.step()
    return sum(v.numel() for state in optimizer.state.values() for key, v in state.items() if key != "step")


@right("predicted_numbers", "by names, dropping what has been met")
def _(model):
    kept, met = 0.0, set()
    for _name, p in model.named_parameters(remove_duplicate=False):
        if id(p) not in met and p.requires_grad:
            met.add(id(p))
            kept += np.prod(p.shape) if p.dim() < 2 else np.prod(p.shape[:-1]) + np.prod(p.shape[:-2]) * p.shape[-1]
    return kept


@right("predicted_numbers", "as a tensor, by removing axes")
def _(model):
    kept = [
        torch.tensor([p.select(axis, 0).numel() for axis in (-1, -2)]).sum() if p.ndim > 1 else torch.tensor(p.numel())
        for p in model.parameters()
        if p.requires_grad
    ]
    return torch.stack(kept).sum()


def summed(model, of):
    """What `of` says of each trained parameter's shape, added up."""
    return sum(of(tuple(p.shape)) for p in model.parameters() if p.requires_grad)


def pretend(of):
    """`moments_of`, but `of` for what has more than two axes."""
    return lambda shape: of(shape) if len(shape) > 2 else moments_of(shape)


@wrong("predicted_numbers", "with_first_moment")
def _(model):
    return summed(model, lambda shape: moments_of(shape) + math.prod(shape))


@wrong("predicted_numbers", "in_bytes")
def _(model):
    return memory.predict_state_size(model, "adafactor").moments * 4


@wrong("predicted_numbers", "in_bytes", "in MiB")
def _(model):
    return summed(model, moments_of) * 4 / 2**20


@wrong("predicted_numbers", "first_axes_for_conv")
def _(model):
    return summed(model, pretend(lambda shape: (shape[0] + shape[1]) * math.prod(shape[2:])))


@wrong("predicted_numbers", "first_axes_for_conv", "the longest two")
def _(model):
    return summed(model, pretend(lambda shape: sum(math.prod(shape) // n for n in sorted(shape)[-2:])))


@wrong("predicted_numbers", "n_plus_m_for_conv", "one leading axis")
def _(model):
    return summed(model, pretend(lambda shape: shape[0] * sum(shape[-2:])))


@wrong("predicted_numbers", "smaller_of_both")
def _(model):
    return summed(model, lambda shape: min(math.prod(shape), moments_of(shape)))


@wrong("predicted_numbers", "buffers_counted")
def _(model):
    return summed(model, moments_of) + sum(moments_of(buffer.shape) for buffer in model.buffers())


@wrong("predicted_numbers", "biases_forgotten")
def _(model):
    weights = [p for name, p in model.named_parameters() if name.endswith("weight") and p.requires_grad]
    return sum(moments_of(p.shape) for p in weights)


@wrong("predicted_numbers", "biases_forgotten", "without all that has bias in its name")
def _(model):
    return sum(moments_of(p.shape) for name, p in model.named_parameters() if "bias" not in name and p.requires_grad)


@wrong("predicted_numbers", "some_layers_only")
def _(model):
    kept = 0
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            kept += summed(layer, moments_of)
    return kept


@wrong("predicted_numbers", "equal_shapes_once")
def _(model):
    return sum(moments_of(shape) for shape in {tuple(p.shape): p for p in model.parameters() if p.requires_grad})


@wrong("predicted_numbers", "four_axes_only")
def _(model):
    return summed(model, lambda shape: moments_of(shape) if len(shape) in (2, 4) else math.prod(shape))


@wrong("predicted_numbers", "four_axes_only", "an error for three")
def _(model):
    return summed(model, pretend(lambda shape: shape[0] * shape[1] * (shape[2] + shape[3])))


@wrong("predicted_numbers", "number_has_no_axis")
def _(model):
    return summed(model, lambda shape: moments_of(shape) if len(shape) > 1 else shape[0])


@wrong("predicted_numbers", "two_axes_at_most")
def _(model):
    kept = 0
    for p in model.parameters():
        if p.requires_grad and p.ndim > 1:
            n, m = p.shape
            kept += n + m
        elif p.requires_grad:
            kept += p.numel()
    return kept


@wrong("predicted_numbers", "two_axes_at_most", "which leaves the others out")
def _(model):
    return summed(model, pretend(lambda shape: 0))


@wrong("predicted_numbers", "matrices_only")
def _(model):
    return sum(n + m for n, m in (p.shape for p in model.parameters() if p.requires_grad))


@wrong("predicted_numbers", "changes_the_model")
def _(model):
    return summed(model.to("meta"), moments_of)


@wrong("predicted_numbers", "changes_the_model", "frozen afterwards")
def _(model):
    kept = summed(model, moments_of)
    model.requires_grad_(False)
    return kept


@wrong("predicted_numbers", "changes_the_model", "in another dtype")
def _(model):
    return summed(model.double(), moments_of)


@wrong("predicted_numbers", "tied_twice", "by a step on meta")
def _(model):
    trained = [p for p in copy.deepcopy(model).to("meta").parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.empty_like(p)
    optimizer = adafactor.Adafactor(trained)
    optimizer.step()
    return memory.state_size(optimizer).moments


@wrong("predicted_numbers", "needs_numbers", "by a step with random gradients")
def _(model):
    trained = [p for p in copy.deepcopy(model).parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.rand(p.shape)
    optimizer = adafactor.Adafactor(trained)
    optimizer.step()
    return memory.state_size(optimizer).moments


@wrong("predicted_numbers", "vectors_forgotten", "and frozen ones counted")
def _(model):
    return sum(moments_of(p.shape) for p in model.parameters() if p.ndim != 1)


@right("predicted_numbers", "module by module, what is tied once")
def _(model):
    def below(module, met):
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in met]
        met |= {id(p) for p in own}
        return sum(moments_of(p.shape) for p in own) + sum(below(child, met) for child in module.children())

    return below(model, set())


@right("predicted_numbers", "with NumPy's integers, of a set")
def _(model):
    return sum((np.int32(moments_of(p.shape)) for p in {p for p in model.parameters() if p.requires_grad}), np.int32(0))


# --- t5_3b


def t5():
    return planner.build("T5 3B")


def sizes(**changes):
    """The right answer with changes."""
    model = t5()
    count = sum(p.numel() for p in model.parameters())
    factored = sum(moments_of(p.shape) for p in model.parameters())
    found = {"adamw": 8 * count, "adafactor": 4 * factored, "adafactor_momentum": 4 * (count + factored)}
    return {**{key: value / 2**30 for key, value in found.items()}, "wrong": "adafactor", **changes}


@wrong("t5_3b", "believes_source")
def _():
    return {"adamw": 24, "adafactor": 12, "adafactor_momentum": 12, "wrong": "8bit"}


@wrong("t5_3b", "believes_source", "with the exact count")
def _():
    count = sum(p.numel() for p in t5().parameters())
    return sizes(adafactor=4 * count / 2**30)


@wrong("t5_3b", "believes_source", "slightly more than 4 bytes")
def _():
    return sizes(adafactor=sizes()["adafactor_momentum"])


@wrong("t5_3b", "blames_adamw")
def _():
    return sizes(wrong="AdamW")


@wrong("t5_3b", "blames_8bit")
def _():
    return sizes(wrong="8-bit")


@wrong("t5_3b", "decimal_for_binary")
def _():
    return {key: value if key == "wrong" else value * 2**30 / 1e9 for key, value in sizes().items()}


@wrong("t5_3b", "bits_for_bytes")
def _():
    count = sum(p.numel() for p in t5().parameters())
    return sizes(adamw=2 * count * 32 / 2**30)


@wrong("t5_3b", "numbers_not_bytes")
def _():
    model = t5()
    return sizes(adamw=memory.predict_state_size(model, "adamw").elements / 2**30)


@wrong("t5_3b", "wrong_unit")
def _():
    return sizes(adafactor=memory.predict_state_size(t5(), "adafactor").mib)


@wrong("t5_3b", "wrong_unit", "bytes")
def _():
    return sizes(adamw=memory.predict_state_size(t5(), "adamw").bytes)


@wrong("t5_3b", "three_billion")
def _():
    return sizes(adamw=3e9 * 8 / 1024**3)


@wrong("t5_3b", "three_billion", "for momentum")
def _():
    return sizes(adafactor_momentum=sizes()["adafactor"] + 3_000_000_000 * 4 / 1024**3)


@wrong("t5_3b", "tied_twice")
def _():
    count = sum(value.numel() for value in t5().state_dict().values())
    return sizes(adamw=count * 8 / 2**30)


@wrong("t5_3b", "one_moment")
def _():
    return sizes(adamw=memory.predict_state_size(t5(), "rmsprop").bytes / 2**30)


@wrong("t5_3b", "weights_are_state")
def _():
    count = sum(p.numel() for p in t5().parameters())
    return sizes(adamw=16 * count / 2**30)


@wrong("t5_3b", "forgets_momentum")
def _():
    return sizes(adafactor_momentum=memory.predict_state_size(t5(), "adafactor").bytes / 2**30)


@wrong("t5_3b", "forgets_second_moment")
def _():
    return sizes(adafactor_momentum=memory.predict_state_size(t5(), "sgd_momentum").bytes / 2**30)


@wrong("t5_3b", "second_moment_whole")
def _():
    return sizes(adafactor_momentum=memory.predict_state_size(t5(), "adamw").bytes / 2**30)


@wrong("t5_3b", "rounded")
def _():
    return {key: value if key == "wrong" else round(value, 1) for key, value in sizes().items()}


@wrong("t5_3b", "rounded", "to two places")
def _():
    return {key: value if key == "wrong" else float(f"{value:.2f}") for key, value in sizes().items()}


@right("t5_3b", "with the library, steps included")
def _():
    model = t5()
    gib = {
        kind: memory.predict_state_size(model, kind).bytes / 2**30 for kind in ("adamw", "adafactor", "sgd_momentum")
    }
    gib["adafactor_momentum"] = gib.pop("sgd_momentum") + gib["adafactor"]
    return {**gib, "wrong": " Adafactor"}


@right("t5_3b", "as tensors")
def _():
    return {key: value if key == "wrong" else torch.tensor(value) for key, value in sizes().items()}


@right("t5_3b", "with two moments from an empty module of the same size")
def _():
    flat_weight = nn.Linear(1, sum(p.numel() for p in t5().parameters()), bias=False, device="meta")
    return sizes(adamw=memory.predict_state_size(flat_weight, "adamw").mib / 1024)


def in_unit(unit, **of_bytes):
    """The right answer in another unit, with some sizes given in bytes."""
    known = {key: value * 2**30 for key, value in sizes().items() if key != "wrong"}
    return {**{key: value / unit for key, value in {**known, **of_bytes}.items()}, "wrong": "adafactor"}


@wrong("t5_3b", "two_bytes")
def _():
    return in_unit(2**31)


@wrong("t5_3b", "vectors_forgotten")
def _():
    matrices = sum(moments_of(p.shape) for p in t5().parameters() if p.ndim == 2)
    return in_unit(2**30, adafactor=4 * matrices)


@wrong("t5_3b", "one_margin")
def _():
    return in_unit(2**30, adafactor=4 * sum(p.shape[0] for p in t5().parameters()))


@wrong("t5_3b", "one_margin", "columns, and no vectors")
def _():
    return in_unit(2**30, adafactor=4 * sum(p.shape[1] for p in t5().parameters() if p.ndim == 2))


@wrong("t5_3b", "first_moment_factored")
def _():
    return in_unit(2**30, adafactor_momentum=8 * sum(moments_of(p.shape) for p in t5().parameters()))


@wrong("t5_3b", "bytes_once")
def _():
    parameters = list(t5().parameters())
    return in_unit(
        2**30, adafactor_momentum=sum(p.numel() for p in parameters) + 4 * sum(moments_of(p.shape) for p in parameters)
    )


@wrong("t5_3b", "tied_twice", "in GB")
def _():
    return in_unit(10**9, adamw=8 * sum(value.numel() for value in t5().state_dict().values()))


@wrong("t5_3b", "numbers_not_bytes", "not even in GiB")
def _():
    return in_unit(4)


@wrong("t5_3b", "rounded", "to four places")
def _():
    return {key: value if key == "wrong" else round(value, 4) for key, value in sizes().items()}


@wrong("t5_3b", "wrong_unit", "half decimal")
def _():
    return in_unit(1000 * 2**20)


@right("t5_3b", "torch's Adafactor, in NumPy's numbers")
def _():
    size = memory.predict_state_size(t5(), "adafactor_torch").bytes
    first = 4 * sum(p.numel() for p in t5().parameters())
    return sizes(adafactor=np.float64(size / 2**30), adafactor_momentum=np.array((size + first) / 2**30))
