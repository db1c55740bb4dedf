#!/usr/bin/env python3
"""What the binding costs: one forward of a layer from C, from NumPy and from PyTorch, in turns; medians of all.

usage: forward.py PROGRAM [--rows N] [--rounds N] [--d-model N] [--side N] [--threads N]
PROGRAM is forward.c, built (the target libreef_forward).
"""

import argparse
import statistics
import subprocess
import tempfile
import time

import numpy as np

import reef

try:
    import torch
    import reef.torch
except ImportError:
    torch = None


def timed(call):
    """Milliseconds of one call, and the last value of its result."""
    start = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - start), float(result.ravel()[-1])


def main():
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for name, value in (("rows", 2048), ("rounds", 40), ("d-model", 256), ("side", 256), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    index = np.arange(args.rows * args.d_model, dtype=np.uint64)
    x = ((index * np.uint64(2654435761) % np.uint64(2001)).astype(np.float32) / np.float32(1000) - np.float32(1))
    x = x.reshape(args.rows, args.d_model)
    with tempfile.TemporaryDirectory(prefix="reef-bench-") as directory:
        path = f"{directory}/pool"
        reef.create_layer(path, args.d_model, side=args.side, threads=args.threads).close()
        with reef.open(path, threads=args.threads) as layer, subprocess.Popen(
                [args.program, path, str(args.rows), str(args.threads)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True) as program:

            def from_c():
                program.stdin.write("\n")
                program.stdin.flush()
                return tuple(map(float, program.stdout.readline().split()))

            ways = {"C": from_c, "NumPy": lambda: timed(lambda: layer.forward(x))}
            if torch is not None:
                module, tensor = reef.torch.PeerLayer(layer).eval(), torch.from_numpy(x)

                def evaluate():
                    with torch.no_grad():
                        return module(tensor)

                ways["PyTorch"] = lambda: timed(evaluate)
            times = {name: [] for name in ways}
            for round_ in range(args.rounds + 3):
                results = set()
                for name, way in ways.items():
                    ms, value = way()
                    results.add(np.float32(value))
                    if round_ >= 3:  # the first ones touch memory
                        times[name].append(ms)
                assert len(results) == 1, results  # they computed the same
            program.stdin.close()
    base = statistics.median(times["C"])
    for name, values in times.items():
        ms = statistics.median(values)
        print(f"{name:8} {ms:8.3f} ms for {args.rows} rows, {100 * (ms / base - 1):+.1f} % over C")


if __name__ == "__main__":
    main()
