"""Comparing what a learner's function returned with what it should, and writing both down for reading."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

# Numbers of an array that are written out; of a larger one the shape and its corners are.
WRITTEN_OUT = 24


def same(came: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-6) -> bool:
    """Whether two values say the same: tensors, arrays, lists and numbers by value, whatever their dtype.

    Args:
        came: what the learner returned.
        expected: a number, bool, text, None, tensor, tuple or dictionary of such.
        rtol: tolerance, relative to each expected number.
        atol: tolerance, relative to the largest expected number of the array.
    """
    return difference(came, expected) == "" and _equal(came, expected, rtol, atol)


def difference(came: Any, expected: Any) -> str:
    """Why two values cannot be compared number by number, as a sentence; empty if they can."""
    if expected is None or isinstance(expected, str):
        return "" if isinstance(came, type(expected)) else f"It is {kind(came)}; {kind(expected)} was expected."
    if isinstance(expected, Mapping):
        if not isinstance(came, Mapping):
            return f"It is {kind(came)}; a dictionary was expected."
        if missing := [key for key in expected if key not in came]:
            return f"The key {missing[0]!r} is missing."
        if extra := [key for key in came if key not in expected]:
            return f"The key {extra[0]!r} is one too many."
        return next(
            (f"Under {key!r}: {text}" for key in expected if (text := difference(came[key], expected[key]))), ""
        )
    if isinstance(expected, (tuple, list)):
        parts = _parts(came)
        if parts is None or len(parts) != len(expected):
            found = kind(came) if parts is None else f"{len(parts)} value{'s' * (len(parts) != 1)}"
            return f"{len(expected)} values were expected; this is {found}."
        pairs = enumerate(zip(parts, expected, strict=True), start=1)
        return next((f"Value {n}: {text}" for n, (part, other) in pairs if (text := difference(part, other))), "")
    array = as_array(came)
    if array is None:
        return f"It is {kind(came)}; {kind(expected)} was expected."
    wanted = as_array(expected).shape
    if array.shape != wanted and not (array.size == 1 and wanted == ()):
        return f"Its shape is {list(array.shape)}; {list(wanted)} was expected."
    return ""


def unchanged(after: Any, before: Any) -> bool:
    """Whether the numbers in `after`, in lists and dictionaries too, are as in `before`; other objects may differ."""
    if isinstance(before, Mapping):
        return list(after) == list(before) and all(unchanged(after[key], before[key]) for key in before)
    if isinstance(before, (tuple, list)):
        return len(after) == len(before) and all(map(unchanged, after, before))
    array = as_array(before)
    return array is None or np.array_equal(as_array(after), array, equal_nan=True)


def as_array(value: Any) -> np.ndarray | None:
    """Numbers in float64; None if `value` holds no real ones."""
    try:
        if "complex" in str(getattr(value, "dtype", "")):
            return None
        if isinstance(value, torch.Tensor):
            return value.detach().to("cpu", torch.float64).numpy()
        if isinstance(value, (list, tuple)):
            rows = [as_array(part) for part in value]
            return None if any(row is None for row in rows) else np.array(rows, dtype=np.float64)
        if isinstance(value, (str, bytes, Mapping)) or value is None:
            return None
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def kind(value: Any) -> str:
    """What a value is, in words."""
    if value is None:
        return "None"
    if isinstance(value, bool):
        return "True or False"
    if isinstance(value, numbers.Number):
        small = isinstance(value, numbers.Real) and as_array(value) is not None
        return "a number" if small else f"a {'number too large' if isinstance(value, int) else 'complex number'}"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, Mapping):
        return "a dictionary"
    if isinstance(value, torch.Tensor) and value.is_meta:
        return "a tensor without values, on the device `meta`"
    if isinstance(value, (torch.Tensor, np.ndarray)) and "complex" in str(value.dtype):
        return "an array of complex numbers"
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"an array of shape {list(value.shape)}" if value.ndim else "a number"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def text(value: Any) -> str:
    """A value as a learner would like to read it."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = as_array(value)
        if array is None:
            return kind(value)
        written = np.array2string(
            array, threshold=WRITTEN_OUT, edgeitems=2, separator=", ", formatter={"float_kind": lambda x: f"{x:.5g}"}
        )
        written = " ".join(written.split())
        return written if array.size <= WRITTEN_OUT else f"shape {list(array.shape)}: {written}"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}" if abs(int(value)) >= 10_000 else str(int(value))
    if isinstance(value, numbers.Real):
        return f"{float(value):.6g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)) and len(value) > WRITTEN_OUT:
        return f"{len(value):,} values: {text(value[:2])[:-1]}, ...{']' if isinstance(value, list) else ')'}"
    if isinstance(value, (list, tuple)):
        written = ", ".join(text(part) for part in value)
        return f"[{written}]" if isinstance(value, list) else f"({written})"
    written = repr(value)
    return kind(value) if len(written) > 200 or " at 0x" in written else written


def _parts(value: Any) -> list[Any] | None:
    """The values of a sequence, also of an array along its first axis."""
    if isinstance(value, (tuple, list)) or (isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim):
        return list(value)
    return None


def _equal(came: Any, expected: Any, rtol: float, atol: float) -> bool:
    if expected is None:
        return True
    if isinstance(expected, str):
        return came.strip().casefold() == expected.strip().casefold()
    if isinstance(expected, Mapping):
        return all(_equal(came[key], expected[key], rtol, atol) for key in expected)
    if isinstance(expected, (tuple, list)):
        return all(_equal(a, b, rtol, atol) for a, b in zip(_parts(came), expected, strict=True))
    a, b = as_array(came).reshape(-1), as_array(expected).reshape(-1)
    finite = np.abs(b[np.isfinite(b)])
    return bool(np.allclose(a, b, rtol=rtol, atol=atol * finite.max(initial=0.0), equal_nan=True))
