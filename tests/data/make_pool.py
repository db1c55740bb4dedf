#!/usr/bin/env python3
"""Make the golden pool, its archives, and what the test expects of them, in this folder.

usage: tests/data/make_pool.py REEF

Two kinds, of which the first comes back; as `reef init` makes a pool, but small. For as long as no version with this
format was released, these files are made again whenever bits of pools change.
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("--memory 4M --d-model 2 --attention-heads 1 --context 16 --batch 2 --heads 1 --topk 2 --d-key 4 --side 3 "
         "--d-ffw 8")
STATES = ("0", "kept", "now")
TEXTS = ("words.txt", "digits.txt")
KINDS = {"words": ("coral", "reef", "sand", "wave"), "digits": ("0;0", "1:1;0", "1;1:0", "0:1")}
TURNS = (("words", 2000), ("digits", 2500), ("words", 1100))  # hardly more than two kinds need


def text(kind, count, seed):
    """Of the kind of words.txt or digits.txt, other than it."""
    out = ""
    for _ in range(count):
        seed = (seed * 69069 + 12345) % 2**32
        out += KINDS[kind][(seed >> 16) % 4] + ("\n" if (seed >> 16) % 7 == 0 else " ")
    return out


def main():
    reef = str(pathlib.Path(sys.argv[1]).resolve())

    def run(*arguments):
        return subprocess.run([reef, *map(str, arguments)], check=True, capture_output=True).stdout

    def ask(*arguments):
        return json.loads(run(*arguments, "--json"))

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        pool, copy, stream = folder / "pool", folder / "copy", folder / "stream"
        stream.write_text("".join(text(kind, count, i + 1) for i, (kind, count) in enumerate(TURNS[:2])), encoding="ascii")
        run("init", pool, *SIZES.split())
        run("train", pool, stream)
        run("kind", "name", pool, "0", "words")
        run("snapshot", "create", pool, "kept")
        stream.write_text(text(*TURNS[2], 3), encoding="ascii")
        run("train", pool, stream.rename(folder / "more"))
        run("kind", "name", pool, "1", "digits")
        run("export", "pool", pool, copy)
        packed = gzip.compress((copy / "data.mdb").read_bytes(), 9, mtime=0)
        (HERE / "pool.mdb.gz").write_bytes(packed)
        for name in TEXTS:
            run("compress", copy, HERE / name, "--as-of", "kept", "--out", HERE / f"{name}.reef", "--force")
        found = ask("verify", copy)
        expected = {"root": found["root"], "records": found["records"], "kinds": ask("kind", "list", copy)["kinds"],
                    "bits_per_byte": {
                        state: {name: ask("eval", copy, "--as-of", state, HERE / name)["files"][0]["bits_per_byte"]
                                for name in TEXTS} for state in STATES}}
        (HERE / "pool.json").write_text(json.dumps(expected, indent=2) + "\n", encoding="ascii")
    print(f"{len(packed)} bytes, {expected}")


main()
