"""Surprise of log lines by PPMd (Shkarin 2002), as the program 7z has it: what a line adds to what was learned."""

import pathlib
import re
import shutil
import subprocess
import tempfile

from baselines import mask

LEARNED_BYTES = 1 << 16  # of learned lines, one of each template, drawn evenly: each line is compressed behind them
LINES_AT_ONCE = 500  # files in a folder and an archive
PROGRAMS = "7z", "7zz", "7za"


def program():
    """7z, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def sample(learned):
    lines = list({mask(line): line for line in learned}.values())
    step = max(1, -(-sum(len(line) + 1 for line in lines) // LEARNED_BYTES))
    return "".join(line + "\n" for line in lines[::step])


def packed_bytes(folder, texts):
    """Bytes of each text, compressed by itself."""
    for old in folder.iterdir():
        old.unlink()
    for i, text in enumerate(texts):
        (folder / f"{i:06}").write_bytes(text.encode("utf-8", "replace"))
    archive = folder.parent / "archive.7z"
    archive.unlink(missing_ok=True)
    subprocess.run([program(), "a", "-ms=off", "-mmt=1", "-m0=PPMd:o=8:mem=24", archive, folder], check=True,
                   capture_output=True)
    listed = subprocess.run([program(), "l", "-slt", archive], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^Path = \S*/(\d{6})$.*?^Packed Size = (\d+)$", listed, re.M | re.S)
    return [int(size) for _, size in sorted(found)]


def ppmd(learned, lines):
    """Bits a byte of the line that PPMd takes more for the learned lines and this one than for the learned ones."""
    before, known = sample(learned), {}
    with tempfile.TemporaryDirectory(prefix="reef-ppmd-") as scratch:
        folder = pathlib.Path(scratch) / "texts"
        folder.mkdir()
        least = packed_bytes(folder, [before])[0] if before else 0
        different = list(dict.fromkeys(lines))
        for at in range(0, len(different), LINES_AT_ONCE):
            some = different[at:at + LINES_AT_ONCE]
            for line, size in zip(some, packed_bytes(folder, [f"{before}{line}\n" for line in some])):
                known[line] = 8 * (size - least) / (len(line.encode("utf-8", "replace")) + 1)
    return [known[line] for line in lines]
