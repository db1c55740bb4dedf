"""A folder in which the examples of the manual can be run as they stand: small pools and texts."""

import os
import random
import shutil
import subprocess

SIZES = ("--layers 2 --d-model 16 --attention-heads 2 --context 16 --batch 2 --heads 1 --topk 2 --d-key 8 --side 10 "
         "--boundaries given").split()
SMALL = [*SIZES, "--memory", "4M"]
WORDS = {
    "english": "the sea is calm and the night is long on the shore of a small green island ".split(),
    "code": "int main ( void ) { return 0 ; } static if else for while struct const char * x = y + 1 ;".split(),
    "french": "la mer est calme et la nuit est longue sur le rivage de cette petite ile verte".split(),
    "log": "host app[1]: request took 12 ms from 10.0.0.1 with status 200 in 3 steps".split(),
}


def text(kind, size, seed=1):
    draw = random.Random(seed)
    words, out = WORDS[kind], ""
    while len(out) < size:
        out += " ".join(draw.choice(words) for _ in range(8)) + "\n"
    return out[:size - 1] + "\n"


def watched_log():
    """Six hours of requests, and a fault in the last."""
    lines = [f"2026-11-30 {i // 120:02}:{i // 2 % 60:02}:{i % 2 * 30:02} app[12]: request {i} took {i * 7 % 90} ms"
             for i in range(720)]
    lines.insert(660, lines[660][:20] + "app[12]: error: disk is full")
    return "\n".join(lines) + "\n"


class World:
    """`folder` is made once; what an example changes is changed in a copy of it."""

    def __init__(self, folder, reef, reefd):
        self.folder, self.reef, self.reefd = folder, reef, reefd
        self.environment = dict(os.environ, PATH=f"{os.path.dirname(reef)}:{os.path.dirname(reefd)}:{os.environ['PATH']}",
                                OPENBLAS_NUM_THREADS="1", LC_ALL="C.UTF-8", TMPDIR=folder)
        self.environment.pop("REEF_POOL", None)
        self.base = f"{folder}/base"
        os.mkdir(self.base)
        self.write_files()
        self.make_pools()

    def run(self, *words, cwd=None, data=None):
        done = subprocess.run([self.reef, *words], cwd=cwd or self.base, env=self.environment, input=data,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"reef {' '.join(words)}: {done.returncode}: {done.stderr}")
        return done.stdout

    def write_files(self):
        names = {"english": ["english.txt", "held.txt", "en.txt", "corpus.txt", "today.txt", "a.txt", "a.held",
                             "notes.txt", "lambada.txt"],
                 "code": ["code.c", "held.c", "c.txt", "main.c", "b.txt", "b.held"],
                 "french": ["french.txt"], "log": ["server.log"]}
        for kind, files in names.items():
            for seed, name in enumerate(files):
                with open(f"{self.base}/{name}", "w") as file:
                    file.write(text(kind, 900 if "held" in name or len(name) < 7 else 2000, seed))

        os.mkdir(f"{self.base}/app")
        with open(f"{self.base}/app/app.log", "w") as file:
            file.write(watched_log())

    def make_pools(self):
        self.run("init", "fresh.pool", *SMALL)
        self.run("train", "fresh.pool", "english.txt")
        self.run("seal", "fresh.pool")
        shutil.copytree(f"{self.base}/fresh.pool", f"{self.base}/reef.pool")
        shutil.copytree(f"{self.base}/fresh.pool", f"{self.base}/other.pool")
        self.run("train", "other.pool", "french.txt")
        self.run("seal", "other.pool")
        shutil.copytree(f"{self.base}/other.pool", f"{self.base}/sealed.pool")
        self.run("export", "model", "other.pool", "model.safetensors")
        for name in ("code.c", "french.txt", "server.log"):
            self.run("train", "reef.pool", name)
            self.run("seal", "reef.pool")
        self.run("train", "reef.pool", "main.c")
        for name in ("before-upgrade", "monday", "tuesday"):
            self.run("snapshot", "create", "reef.pool", name)
        self.run("init", "memory.pool", *SIZES)
        self.run("train", "memory.pool", "english.txt")
        self.run("seal", "memory.pool")
        self.run("train", "memory.pool", "code.c")
        self.run("compress", "memory.pool", "notes.txt", "--as-of", "0")
        self.run("init", "kinds.pool", "--net-share", "0", "--memory", "4M")
        for names in (("english.txt", "notes.txt", "corpus.txt"), ("french.txt", "server.log", "code.c")):
            self.run("train", "kinds.pool", *names)
            self.run("seal", "kinds.pool")
        self.run("init", "logs.pool", "--net-share", "0", "--memory", "4M", "--watch", "true")
        self.run("train", "logs.pool", "app/app.log")
        self.run("init", "empty.pool", *SMALL)

    def copy(self, name):
        """A copy of the folder, to be changed."""
        folder = f"{self.folder}/{name}"
        shutil.copytree(self.base, folder)
        return folder
