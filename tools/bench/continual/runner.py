"""Runs cells: the program that they call, several at a time, and their documents by name."""

import concurrent.futures
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import figures
import tuning
from cells import Skipped, cell_name
from values import Problem

ROOT = pathlib.Path(__file__).resolve().parents[3]

# ---- reef --------------------------------------------------------------------------------------------


def find_reef(given):
    built = sorted(ROOT.glob("build/*/tools/reef"), key=lambda path: path.stat().st_mtime)
    path = given or (str(built[-1]) if built else shutil.which("reef"))
    if not path or not os.access(path, os.X_OK):
        raise Problem(f"there is no program {path or 'reef'}: build it, or give --reef PATH")
    return str(pathlib.Path(path).resolve())


class Reef:
    """Runs reef, or another program; what runs is stopped when we are, even by SIGKILL where setpriv is there."""

    def __init__(self, path, threads):
        self.path, self.threads, self.running, self.stopped = path, threads, set(), False
        self.lock = threading.Lock()
        self.prefix = []
        if shutil.which("setpriv"):
            self.prefix = ["setpriv", "--pdeathsig", "KILL"]

    def __call__(self, *words_of_command):
        command = [self.path, *map(str, words_of_command), "--json"]
        if self.threads and words_of_command[0] in ("train", "eval"):
            command += ["--threads", str(self.threads)]
        return json.loads(self.execute(command))

    def execute(self, command):
        """What it printed."""
        with self.lock:
            if self.stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                self.prefix + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self.running.add(process)
        output, errors = process.communicate()
        with self.lock:
            self.running.discard(process)
        if self.stopped:
            raise KeyboardInterrupt
        if process.returncode:
            raise Problem(f"{' '.join(command)}\n  ended with {process.returncode}: {(errors or output).strip()}")
        return output

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.kill()

    def options_of_init(self):
        return {option["name"].replace("-", "_") for option in self("init", "--help")["options"]}


# ---- all of them -------------------------------------------------------------------------------------


def duration(seconds):
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def say(text):
    print(text, file=sys.stderr, flush=True)


class Work:
    """Cells under way: started as they come, and their documents by name; one that is skipped has none."""

    def __init__(self, bench, total):
        self.bench, self.total = bench, total
        self.pool = concurrent.futures.ThreadPoolExecutor(bench.jobs)
        self.done, self.futures = {}, {}
        self.over = self.ran = 0  # cells that need no more work; of them those that this run made
        self.began = time.monotonic()

    def start(self, cells):
        """(name, plan) of each."""
        for name, plan in cells:
            found = self.bench.finished(name, plan)
            if found:
                self.done[name] = found
                self.over += 1
            else:
                self.futures[self.pool.submit(self.bench.run, name, plan)] = name

    def rate(self):
        """Of cells that are much alike, and the time that is left."""
        rate, left = self.ran / (time.monotonic() - self.began), self.total - self.over
        return f"  ({60 * rate:.2f} cells a minute" + (f", eta {duration(left / rate)})" if left else ")")

    def take_finished(self):
        """Wait for one cell or more."""
        finished, _ = concurrent.futures.wait(self.futures, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in finished:
            name = self.futures.pop(future)
            self.over, self.ran = self.over + 1, self.ran + 1
            try:
                self.done[name] = future.result()
                text = figures.line(self.done[name]) + self.rate()
            except Skipped as reason:
                text = f"skipped: {reason}"
            say(f"[{self.over}/{self.total}] {name}: {text}")

    def stop(self):
        self.bench.reef.stop()
        self.pool.shutdown(wait=True, cancel_futures=True)


def start_chosen(work, choosing, waiting):
    """Start the cells whose grid has been run."""
    for grid in [grid for grid, cells in choosing.items() if all(name in work.done for name, _ in cells)]:
        stream, method = grid
        say(f"{stream.name}: {method} has {tuning.words(work.bench.choice(stream, method))}")
        work.start([work.bench.cell(*cell) for cell in waiting[grid]])
        del choosing[grid]


def run_all(bench, cells):
    """Documents by cell, in the order of `cells`. Those with a grid begin when all of its choices are measured."""
    choosing, waiting = {}, {}
    for grid in tuning.wanted(bench.config, cells):
        choosing[grid] = bench.tuning_cells(*grid)
        waiting[grid] = [cell for cell in cells if (cell[0], bench.config.chosen_for(cell[2])) == grid]
    total = len(cells) + sum(map(len, choosing.values()))
    work = Work(bench, total)
    try:
        for of_grid in choosing.values():
            work.start(of_grid)
        start_chosen(work, choosing, waiting)
        work.start([bench.cell(*cell) for cell in cells if not bench.config.chosen_for(cell[2])])
        if work.done:
            say(f"{len(work.done)} of {total} cells are there already")
        while work.futures:
            work.take_finished()
            start_chosen(work, choosing, waiting)
    except BaseException:
        work.stop()
        raise
    work.pool.shutdown()
    return {cell_name(*cell): work.done[cell_name(*cell)] for cell in cells if cell_name(*cell) in work.done}


def lock(out):
    """One run at a time in a directory; the lock ends with the process, however it ends."""
    file = open(out / ".lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Problem(f"another run is at work in {out}; choose another --out") from None
    return file


def present(bench, cells):
    """Documents of the cells that are there, by name."""
    documents = {}
    for name, plan in (bench.cell(*cell) for cell in cells):
        found = bench.finished(name, plan)
        if found:
            documents[name] = found
    if not documents:
        raise Problem(f"--render: {bench.cells} has no finished cell of this configuration")
    return documents
