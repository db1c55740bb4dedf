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


def report(began, done, left):
    """Rate and time that is left, of cells that are much alike."""
    passed = time.monotonic() - began
    rate = done / passed
    return f"  ({60 * rate:.2f} cells a minute" + (f", eta {duration(left / rate)})" if left else ")")


def run_some(bench, cells, total, before):
    """Documents of (name, plan) cells, by name; one that is skipped has none. `before`: how many were done before."""
    done, todo = {}, []
    for name, plan in cells:
        found = bench.finished(name, plan)
        if found:
            done[name] = found
        else:
            todo.append((name, plan))
    if done:
        say(f"{len(done)} of {len(cells)} cells are there already")
    began = time.monotonic()
    pool = concurrent.futures.ThreadPoolExecutor(bench.jobs)
    futures = {pool.submit(bench.run, name, plan): name for name, plan in todo}
    try:
        for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
            name = futures[future]
            where = f"[{before + len(cells) - len(todo) + count}/{total}] {name}"
            try:
                done[name] = future.result()
            except Skipped as reason:
                say(f"{where}: skipped: {reason}")
                continue
            say(f"{where}: {figures.line(done[name])}" + report(began, count, total - before - len(done)))
    except BaseException:
        bench.reef.stop()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return done


def run_all(bench, cells):
    """Documents by cell, in the order of `cells`: first what grids are chosen by and what depends on none."""
    grids = tuning.wanted(bench.config, cells)
    choosing = [cell for stream, method in grids for cell in bench.tuning_cells(stream, method)]
    waits = [cell for cell in cells if bench.config.chosen_for(cell[2])]
    total = len(choosing) + len(cells)
    first = choosing + [bench.cell(*cell) for cell in cells if cell not in waits]
    done = run_some(bench, first, total, 0)
    for stream, method in grids:
        say(f"{stream.name}: {method} has {tuning.words(bench.choice(stream, method))}")
    if waits:
        done |= run_some(bench, [bench.cell(*cell) for cell in waits], total, len(first))
    return {cell_name(*cell): done[cell_name(*cell)] for cell in cells if cell_name(*cell) in done}


def lock(out):
    """One run at a time in a directory; the lock ends with the process, however it ends."""
    file = open(out / ".lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Problem(f"another lifelong-bench is at work in {out}; choose another --out") from None
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
