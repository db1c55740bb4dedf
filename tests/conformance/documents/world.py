"""What the pages talk about: texts, logs, images, tables, a Redis server. All of it small and made up."""

import contextlib
import gzip
import os
import random
import shutil
import struct
import subprocess
import time

WORDS = {
    "english": "the sea is calm and the night is long on the shore of a small green island ".split(),
    "code": "int main ( void ) { return 0 ; } static if else for while struct const char * x = y + 1 ;".split(),
    "french": "la mer est calme et la nuit est longue sur le rivage de cette petite ile verte".split(),
    "log": "host app[1]: request took 12 ms from 10.0.0.1 with status 200 in 3 steps".split(),
}
TEXTS = {
    "english": ["notes.txt", "held-out.txt", "english.txt", "monday.txt", "train.txt"],
    "code": ["code.c", "held-out.c"],
    "french": ["french.txt", "held-out.fr", "french-later.txt"],
    "log": ["new.log", "monday.log", "tuesday.log", "log/web.log", "log/shop.log", "log/app.log"],
}


def text(kind, size, seed):
    draw, lines, length = random.Random(seed), [], 0
    while length < size:
        lines.append(" ".join(draw.choice(WORDS[kind]) for _ in range(8)) + "\n")
        length += len(lines[-1])
    return "".join(lines)


def write_files(folder):
    os.makedirs(f"{folder}/log", exist_ok=True)
    for kind, names in TEXTS.items():
        for seed, name in enumerate(names):
            with open(f"{folder}/{name}", "w") as file:
                file.write(text(kind, 2000 if "held" in name else 6000, seed))
    for seed, name in enumerate(("wikitext2", "python", "german", "chess", "french", "dna", "lambada", "shakespeare")):
        os.makedirs(f"{folder}/data/text/{name}")
        for part in ("train", "valid", "test"):  # two kinds of text are enough for the short forms of experiments
            with open(f"{folder}/data/text/{name}/{part}.txt", "w") as file:
                file.write(text(("english", "code")[seed % 2], 30000 if part == "train" else 8000, seed))
    for seed, name in enumerate(("train.u16", "held.u16")):  # token ids, two bytes each
        draw = random.Random(seed)
        with open(f"{folder}/{name}", "wb") as file:
            file.write(struct.pack("<3000H", *(draw.randrange(1, 40) for _ in range(3000))))
    with open(f"{folder}/.curlrc", "w") as file:
        file.write("fail-with-body\n")  # by itself curl is content with any answer
    draw = random.Random(1)
    for name, count in (("train", 60), ("t10k", 40)):
        write_images(folder, name, count, draw)
    for name, count in (("flowers.csv", 90), ("new-flowers.csv", 12)):
        with open(f"{folder}/{name}", "w") as file:
            for i in range(count):
                file.write(",".join(f"{draw.gauss(i % 3, 0.2):.3f}" for _ in range(4)) + f",{i % 3}\n")


def write_images(folder, name, count, draw):
    """IDX files, as those of MNIST: each class has pixels of its own."""
    with gzip.open(f"{folder}/{name}-images.gz", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 28, 28))
        for i in range(count):
            file.write(bytes(min(255, draw.randrange(60) + 180 * (place % 10 == i % 10)) for place in range(784)))
    with gzip.open(f"{folder}/{name}-labels.gz", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


@contextlib.contextmanager
def redis_server(folder, port):
    """Where there is one; commands that need it say so otherwise."""
    if not shutil.which("redis-server"):
        yield
        return
    with open(f"{folder}/redis.log", "w") as log:
        process = subprocess.Popen(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                                   stdout=log, stderr=log)
        try:
            for _ in range(200):
                if subprocess.run(["redis-cli", "-p", port, "PING"], capture_output=True).stdout == b"PONG\n":
                    break
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait()
