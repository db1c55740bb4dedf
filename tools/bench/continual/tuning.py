"""Grids: the values of a baseline's settings that are best for it.

A method with `grid.KEY = A, B` lines is run once for each combination, on the stream in the order of the file, cut to
[tune] train_bytes, with the seed of [tune]. What counts is the mean loss on the third file of each text, which is never
reported. Held-out texts and seeds of the table play no part. Of equal ones the first in the file's order is chosen.
"""

import itertools


def choices(method):
    """All combinations of a method's grid, in the order of the file, the last key fastest."""
    keys = list(method.grid)
    return [dict(zip(keys, values)) for values in itertools.product(*method.grid.values())]


def wanted(config, cells):
    """(stream, method) whose grid decides something in these cells, once each."""
    found = [(stream, config.chosen_for(method)) for stream, _, method, _ in cells]
    return list(dict.fromkeys((stream, method) for stream, method in found if method))


def loss(document):
    return document["train"]["figures"]["final_mean"]


def best(method, documents):
    """(choice, its loss) of the documents of all choices, in their order."""
    losses = [loss(document) for document in documents]
    least = min(range(len(losses)), key=lambda i: (losses[i], i))
    return choices(method)[least], losses[least]


def words(choice):
    return ", ".join(f"{key} {value}" for key, value in choice.items())


def at_an_end(grid, key, value):
    """Words where a number is the first or the last of three or more: beyond it the loss may be less still."""
    try:
        numbers = sorted(float(other) for other in grid.get(key, ()))
    except ValueError:
        return ""
    if len(numbers) < 3 or numbers[0] < float(value) < numbers[-1]:
        return ""
    return f" (the {'least' if float(value) == numbers[0] else 'most'} of its grid)"
