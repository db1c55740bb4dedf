"""What compressors make of the same stream: the loss of each held-out text after all that was trained on.

A compressor predicts every byte before it learns it. So 8 * (size(stream + held-out) - size(stream)) / bytes is its
loss on a held-out text after the stream, adapting while it reads, as a context memory does.
"""

import os
import shutil
import sys

from values import Problem

# 7-Zip gives PPMd 16 times the input and at most `mem`; a run of zeros behind it gets the whole gigabyte, so that the
# model never starts over in the middle. zpaq cuts what is longer than its block of 64 MB in two that know nothing of
# each other.
ZEROS_BYTES = 64 << 20
ZPAQ_BLOCK_BYTES = 64 << 20
# Runs a command, and prints the seconds of a processor that it took: other work makes it no slower.
TIMED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""
PROGRAMS = {"ppmd": (("7z", "7zz", "7za"), "7zip"), "zpaq": (("zpaq",), "zpaq")}


def find(method):
    """The program's path, or None."""
    return next((path for name in PROGRAMS[method][0] if (path := shutil.which(name))), None)


def lacks(method):
    names, package = PROGRAMS[method]
    return f"there is no {' or '.join(names)} (Debian package {package})"


def command(method, program, archive, file):
    if method == "ppmd":
        return [program, "a", "-bd", "-mmt=1", "-m0=PPMd:o=12:mem=1g", str(archive), str(file)]
    return [program, "add", str(archive), str(file), "-m5", "-t1"]


def size(method, program, parts, work, run):
    """(bytes of the archive of all parts in a row, seconds of a processor)."""
    archive, file = work / f"archive.{method}", work / "input"
    archive.unlink(missing_ok=True)
    with open(file, "wb") as out:
        for part in parts:
            with open(part, "rb") as of:
                shutil.copyfileobj(of, out)
        if method == "ppmd":
            out.truncate(out.tell() + ZEROS_BYTES)
    seconds = float(run([sys.executable, "-c", TIMED, *command(method, program, archive, file)]))
    return os.path.getsize(archive), seconds


def measure(method, plan, work, run):
    """{"bits_per_byte": of each domain, "archive_bytes", "cpu_seconds"} of the plan's stream."""
    program = find(method)
    longest = sum(os.path.getsize(part) for part in plan["train"]) + max(map(os.path.getsize, plan["held"]))
    if method == "zpaq" and longest > ZPAQ_BLOCK_BYTES:
        raise Problem(f"the stream has {longest} bytes, more than one block of zpaq ({ZPAQ_BLOCK_BYTES})")
    before, seconds = size(method, program, plan["train"], work, run)
    losses = {}
    for name, held in zip(plan["domains"], plan["held"]):
        after, _ = size(method, program, [*plan["train"], held], work, run)
        losses[name] = 8 * (after - before) / os.path.getsize(held)
    return {"bits_per_byte": losses, "archive_bytes": before, "cpu_seconds": seconds}

