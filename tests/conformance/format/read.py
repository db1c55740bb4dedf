"""Reads pools with the second reader (pool.py, model.py) and compares what it finds with what `reef` says of them.

usage: read.py golden DIRECTORY EXPECTED_ROOT [TEXT BITS_PER_BYTE]...
       read.py pool DIRECTORY GENERATION_FILE VERIFY_JSON EVAL_JSON...
"""

import json
import sys

from model import Model
from pool import Pool, Wrong, check

NEAR = 2e-4 # single precision there, double here


def sound(directory):
    pool = Pool(directory)
    pool.check_roots()
    windows = pool.check_usage()
    for name, snapshot in pool.snapshots.items():
        root = pool.snapshot_root(snapshot)
        check(root == snapshot["root"], f"snapshot {name}: its root is {root.hex()}")
    if pool.configuration.get("model", "lm") == "lm":
        pool.check_payloads()
    return pool, windows


def loss(pool, state, path, wanted):
    with open(path, "rb") as file:
        found = Model(pool, state).bits_per_byte(file.read())
    check(abs(found - wanted) <= NEAR, f"{path} as of {state}: {found:.6f} bits per token, not {wanted:.6f}")


def golden(directory, root, *texts):
    pool, _ = sound(directory)
    check(pool.commit["root"] == root, f"the root hash is {pool.commit['root']}")
    for path, wanted in zip(texts[::2], texts[1::2]):
        loss(pool, len(pool.generations) - 1, path, float(wanted))
    print(f"{root}: {sum(map(len, pool.records.values()))} records, {len(texts) // 2} texts")


def whole(directory, verified, *evaluations):
    pool, windows = sound(directory)
    check(pool.snapshots, "no snapshot to read")
    check(windows > 0, "no window of usage to read")
    with open(verified, encoding="utf-8") as report:
        said = json.load(report)
    check(said["root"] == pool.commit["root"], f"the root hash is {pool.commit['root']}")
    records = sum(map(len, pool.records.values()))
    check(said["records"] == records, f"{records} records, not {said['records']}")
    for path in evaluations:
        with open(path, encoding="utf-8") as report:
            evaluated = json.load(report)
        for text in evaluated["files"]:
            state = evaluated["as_of"]
            last = len(pool.generations) - 1 if state == "now" else int(state)
            loss(pool, last, text["file"], text["bits_per_byte"])
    dtypes = sorted({r.dtype for r in pool.records["experts"].values()})
    print(f"{records} records, rows of {dtypes}, {windows} windows")


if __name__ == "__main__":
    try:
        {"golden": golden, "pool": whole}[sys.argv[1]](*sys.argv[2:])
    except Wrong as wrong:
        sys.exit(f"{sys.argv[2]}: {wrong}")
