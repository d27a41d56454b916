"""The inputs of the functions, as each op and its forms take them: arrays that fit together."""

import functools

import numpy as np

from minitf.backend import refuse_masked, to_device, xp
from minitf.tensor import Tensor, arrays_of


def linear_arrays(x, weight, bias):
    """Return the arrays of linear's arguments. Raises ValueError for sizes that do not fit."""
    x, w, b = (*arrays_of(x, weight), None) if bias is None else arrays_of(x, weight, bias)
    if w.ndim != 2:
        raise ValueError(f"linear: the weight must be a matrix, not of shape {w.shape}")
    if x.shape[-1:] != w.shape[:1]:
        features = x.shape[-1] if x.ndim else "no"
        raise ValueError(f"linear: x has {features} features, but the weight takes {w.shape[0]}")
    if b is not None:
        _check_vector("linear: the bias", b, w.shape[1])
    return x, w, b


def layer_norm_arrays(x, gain, bias):
    """Return the arrays of layer_norm's arguments. Raises ValueError for sizes that do not fit."""
    x, g, b = arrays_of(x, gain, bias)
    size = x.shape[-1] if x.ndim else 0
    if not size:
        raise ValueError(f"layer_norm: x of shape {x.shape} has no features to normalise")
    _check_vector("layer_norm: the gain", g, size)
    _check_vector("layer_norm: the bias", b, size)
    return x, g, b


def _check_vector(name, vector, size):
    if vector.shape != (size,):
        raise ValueError(
            f"{name} has shape {vector.shape}, but needs ({size},): one number for each feature"
        )


def attention_arrays(query, key, value, mask):
    """Return the arrays of attention's arguments; query, key and value with the same axes in front.

    Raises TypeError for a mask that is not boolean, ValueError for sizes that do not fit.
    """
    q, k, v = arrays = arrays_of(query, key, value)
    mask = None if mask is None else as_mask(mask)
    front = _axes_in_front(q.shape, k.shape, v.shape, () if mask is None else mask.shape)
    if front is None:
        raise ValueError(
            "attention takes a query (..., T, K), a key (..., S, K), a value (..., S, U) and "
            f"optionally a mask (..., T, S), not query {q.shape}, key {k.shape}, value {v.shape}"
            f"{'' if mask is None else f', mask {mask.shape}'}"
        )
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == front:
        q, k, v = (xp.broadcast_to(x, (*front, *x.shape[-2:])) for x in arrays)
    return q, k, v, mask


@functools.lru_cache(maxsize=256)  # every layer asks for the same shapes
def _axes_in_front(q, k, v, mask):
    """Return the axes in front that attention's shapes broadcast to, or None if they do not fit."""
    if min(len(q), len(k), len(v)) < 2:
        return None
    (t, d), (s, d_of_key), s_of_value = q[-2:], k[-2:], v[-2]
    if d == 0 or d != d_of_key or s != s_of_value:
        return None
    for n, length in zip(reversed(mask), (s, t), strict=False):  # a mask may have fewer axes
        if n not in (1, length):
            return None
    try:
        return np.broadcast_shapes(q[:-2], k[:-2], v[:-2], mask[:-2])
    except ValueError:
        return None


def as_mask(mask):
    """Return a mask as an array of the library in use. Raises TypeError for a mask of numbers.

    Masks made for other libraries may hold 1 and 0, or 0 and -infinity to be added to the scores:
    here they would be misread.
    """
    mask = to_device(mask.data if isinstance(mask, Tensor) else mask)
    if mask.dtype != bool:
        raise TypeError(
            f"a mask must be boolean, not {mask.dtype}: write mask != 0 for a mask of 1 and 0, "
            "mask == 0 for one of 0 and -inf"
        )
    return mask


def checked_ids(ids, table):
    """Return ids as an array of the library in use; each must be a row of the table (V, D).

    Raises ValueError, TypeError or IndexError, as `embedding` says.
    """
    if table.ndim != 2:
        raise ValueError(f"embedding takes a table (V, D), not shape {table.shape}")
    ids = integers(ids, "ids")
    if ids.size and not (ids.min() >= 0 and ids.max() < len(table)):
        raise IndexError(
            f"ids must be from 0 to {len(table) - 1}, but range from {ids.min()} to {ids.max()}"
        )
    return to_device(ids)


def integers(ids, name):
    """Return ids as a NumPy array of integers. Raises TypeError for an array of another type."""
    ids = np.asarray(refuse_masked(ids))
    if ids.dtype.kind in "iu":
        return ids
    if ids.size:
        raise TypeError(f"{name} must be integers, not {ids.dtype}")
    return ids.astype(np.int64)  # an empty list, to which NumPy gives the type float64


def batch_of_ids(ids, name, axes):
    """Return ids as a NumPy array with one row for each sentence.

    Raises TypeError unless they are integers, ValueError unless they have one row per sentence.
    """
    ids = integers(ids, name)
    if ids.ndim == 2 and not ids.shape[1]:
        raise ValueError(f"{name} has no tokens: its shape is {ids.shape}")
    if ids.ndim != 2:
        raise ValueError(
            f"{name} must be ids {axes}, got shape {ids.shape}: one sentence is a batch of "
            "one, ids[None]"
        )
    return ids
