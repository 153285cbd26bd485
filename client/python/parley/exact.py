"""Conversions of arrays that change no value without a word. Floats may be rounded to a shorter float type; all else is either exact or
refused, by the field's name."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.wire import Invalid

Array = npt.NDArray[Any]


def array(field: str, value: Any) -> Array:
    """Returns numbers as an array: an array of numpy, a tensor of torch, a number, or nested lists of numbers. bfloat16 becomes float32."""
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()  # numpy does not have the type
        try:
            value = value.numpy()
        except (TypeError, RuntimeError) as e:
            raise Invalid(field, f"is a tensor that numpy cannot read ({e}): pass a dense one of a type of numpy") from None
    try:
        a = np.asarray(value)
    except ValueError as e:
        raise Invalid(field, f"is not an array: {e}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise Invalid(field, "is a masked array, whose mask would be lost: pass value.filled(…)")
    if a.dtype.name == "bfloat16":
        a = a.astype(np.float32)
    if a.dtype.kind not in "biuf":
        raise Invalid(field, f"has the type {a.dtype}, which is not one of numbers")
    return a


def exact(field: str, value: Any, dtype: Any) -> Array:
    """Returns the value as an array of this type, or refuses it."""
    want, a = np.dtype(dtype), array(field, value)
    if a.dtype == want or a.size == 0:
        return a.astype(want, copy=False)
    if want.kind == "f":
        with np.errstate(over="ignore"):
            to = a.astype(want)
        if a.dtype.kind == "f":
            lost = np.isinf(to) & np.isfinite(a)
        elif a.dtype.kind == "b" or max(abs(int(a.min())), abs(int(a.max()))) <= 1 << np.finfo(want).nmant + 1:
            return to
        else:
            lost = np.array([int(x) != (int(y) if np.isfinite(y) else None) for x, y in zip(a.flat, to.flat, strict=True)]).reshape(a.shape)
        if lost.any():
            raise Invalid(field, f"has {a[lost].flat[0]}, which {want} does not have")
        return to
    if want.kind == "b" or a.dtype.kind == "f":
        raise Invalid(field, f"has the type {a.dtype}, it must have {want}: convert it before")
    if a.dtype.kind != "b":
        bounds = np.iinfo(want)
        for x in int(a.min()), int(a.max()):
            if not bounds.min <= x <= bounds.max:
                raise Invalid(field, f"has {x}, but {want} goes from {bounds.min} to {bounds.max}")
    return a.astype(want)


def whole(field: str, value: Any, least: int, most: int) -> int:
    """Returns a whole number of these bounds, or refuses it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise Invalid(field, f"is {value!r}, it must be a whole number") from None
    if not least <= number <= most:
        raise Invalid(field, f"is {number}, it must be from {least} to {most}")
    return number


def finite(field: str, value: Any, n: int, least: float = -np.inf) -> npt.NDArray[np.float64]:
    """Returns n finite numbers as one flat array of float64, or refuses them."""
    a = exact(field, value, np.float64).reshape(-1)
    if len(a) != n:
        raise Invalid(field, f"has {len(a)} numbers, it must have {n}")
    bad = ~np.isfinite(a)
    if bad.any():
        at = int(np.argmax(bad))
        raise Invalid(field, f"has {a[at]} at place {at}, all must be finite")
    if n and a.min() < least:
        raise Invalid(field, f"has {a.min()} at place {int(a.argmin())}, all must be at least {least:g}")
    return a
