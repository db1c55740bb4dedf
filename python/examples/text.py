#!/usr/bin/env python3
"""Train a model of bytes on files, one generation each, and show that what was learned first stays.

usage: text.py NEW-POOL FILE FILE...
"""

import sys

import reef


def chunks(path, size=65536):
    """A file, a piece at a time."""
    with open(path, "rb") as file:
        while piece := file.read(size):
            yield piece


def main(path, first, *others):
    """First file, seal, the others."""
    with open(first, "rb") as file:
        sample = file.read(20000)
    with reef.create(path, layers=2, d_model=64, side=32, boundaries="given") as pool:
        print(f"untrained: {pool.evaluate(sample).bits_per_byte:.3f} bits per byte of {first}")
        pool.train(chunks(first), source=first)
        pool.seal()
        for other in others:
            pool.train(chunks(other), source=other)
        pool.commit()
        counts, _ = pool.usage(0)
        print(f"{(counts > 0).sum()} of {counts.size} experts of generation 0 were used in layer 0")
    with reef.open(path, as_of=0) as then:
        print(f"as of generation 0: {then.evaluate(sample).bits_per_byte:.3f} bits per byte of {first}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
