#!/usr/bin/env python3
"""Learn labelled vectors from CSV files, one generation each, and show that what was learned first stays.

Each line is an example: its values, and an integer label as the last column.

usage: vectors.py NEW-POOL FILE.csv FILE.csv...
"""

import sys

import numpy as np

import reef


def read(path):
    """The vectors of a file, and their labels."""
    table = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float32)
    return table[:, :-1], table[:, -1].astype(np.int32)


def batches(vectors, labels, rows=100):
    """Pieces of the examples, in order."""
    for at in range(0, len(vectors), rows):
        yield vectors[at:at + rows], labels[at:at + rows]


def main(path, *files):
    """Every file is a task; a fifth of its examples is kept to measure on."""
    tasks = [read(name) for name in files]
    kept = [(x[::5], y[::5]) for x, y in tasks]
    with reef.create(path, model="vector", inputs=tasks[0][0].shape[1], side=16, boundaries="given") as pool:
        for number, (x, y) in enumerate(tasks):
            learned = np.arange(len(x)) % 5 != 0
            pool.train(batches(x[learned], y[learned]), source=files[number])
            if number + 1 < len(tasks):
                pool.seal()
        print(f"{len(pool.classes)} classes: {sorted(pool.classes.tolist())}")
        for name, examples in zip(files, kept):
            print(f"now: {100 * pool.evaluate(*examples).accuracy:.1f} % of {name}")
        pool.commit()
    with reef.open(path, as_of=0) as then:
        print(f"as of generation 0: {100 * then.evaluate(*kept[0]).accuracy:.1f} % of {files[0]}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
