#!/usr/bin/env python3
"""Make the golden pool of format 2, its archives, and what the test expects of them, in this folder.

usage: tests/data/make_pool_v2.py REEF

For as long as no version with this format was released. Afterwards these files are never made again: what later versions
read is what users have.
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("--layers 1 --d-model 8 --attention-heads 1 --context 16 --batch 2 --rehearse 0 --heads 1 --topk 2 --d-key 4 "
         "--side 3 --side-new 3 --adapters 1 --boundaries given --reservoir-bytes 4096 --reservoir-window 64 "
         "--context-memory 4M --net-share 0.5")
STATES = ("0", "kept", "now")
TEXTS = ("words.txt", "digits.txt")


def words(count, seed=1):
    """Text of the kind of words.txt, other than it."""
    out = ""
    for _ in range(count):
        seed = (seed * 69069 + 12345) % 2**32
        word = ("coral", "reef", "sand", "wave")[(seed >> 16) % 4]
        out += word + ("\n" if (seed >> 16) % 7 == 0 else " ")
    return out


def main():
    reef = str(pathlib.Path(sys.argv[1]).resolve())

    def run(*arguments):
        return subprocess.run([reef, *map(str, arguments)], check=True, capture_output=True).stdout

    def ask(*arguments):
        return json.loads(run(*arguments, "--json"))

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        pool, copy, text = folder / "pool", folder / "copy", folder / "text"
        text.write_text(words(260), encoding="ascii")
        run("init", pool, *SIZES.split())
        run("train", pool, text)
        run("seal", pool)
        run("snapshot", "create", pool, "kept")
        run("export", "pool", pool, copy)
        packed = gzip.compress((copy / "data.mdb").read_bytes(), 9, mtime=0)
        (HERE / "pool-v2-text.mdb.gz").write_bytes(packed)
        for name in TEXTS:
            archive = HERE / f"pool-v2-{name}.reef"
            run("compress", copy, HERE / name, "--as-of", "0", "--out", archive, "--force")
        found = ask("verify", copy)
        expected = {"root": found["root"], "records": found["records"], "bits_per_byte": {
            state: {name: ask("eval", copy, "--as-of", state, HERE / name)["files"][0]["bits_per_byte"]
                    for name in TEXTS} for state in STATES}}
        (HERE / "pool-v2-text.json").write_text(json.dumps(expected, indent=2) + "\n", encoding="ascii")
    print(f"{len(packed)} bytes, {expected}")


main()
