"""A week in a night: a log is learned while it grows and is rotated, and reefd is killed again and again.

The texts of --stream, one after the other, are appended to a log, whole lines where possible, not much further than the
daemon has learned. The log is rotated every --rotate bytes and at some ends of the daemon; rotated files are deleted
once a commit has them. A life of the daemon is --life seconds on average, a third of that to five thirds, and as long
as it takes to commit something. Most end by kill -9, some before the pool is open, one in five by SIGTERM. A state is
kept by the clock every few minutes, older ones go. After each 100 MB (or quarter of a shorter stream) old states of
kinds are pruned and the pool is verified beside its daemon, and so at the end. With --compare (--quick: always) the
root must then be that of a pool that `reef train`s the same bytes in one piece.

With --work everything is kept in that folder. The same command continues after it was stopped or killed, or after
--seconds.
Figures are those of all runs. An opening lasts until the socket answers; `first_64k` is from the start of a daemon
until it has learned so much more. Rates are those of each tenth of the stream, without openings, but with what a kill
made it learn again; `private` memory has no pages of files.
"""

import fcntl
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import types

import harness
from harness import Problem, Progress, median
from kill import size
from soak import slope

HELP = "a log of any size, rotated, learned by a daemon that is killed every few minutes; may be done in parts"
LONG = {
    "life": 360, "rotate": 20 << 20, "rate": sys.maxsize, "ahead": 8_000_000,
    "model": "--net-share 0".split(), "settings": "--quiet --keep hourly=3 --snapshot-every 5m".split(),
}  # fmt: skip
QUICK = {
    "life": 0.8, "rotate": 40_000, "rate": 60_000, "ahead": 64_000,
    "model": "--net-share 0 --memory 4M".split(),
    "settings": "--quiet --keep hourly=3 --snapshot-every 1s --commit-steps 4".split(),
}  # fmt: skip
BYTES_QUICK = 300_000
VERIFY_BYTES = 100_000_000  # or a quarter of the stream
STOP_SHARE, EARLY_SHARE, ROTATE_SHARE = 0.2, 0.1, 0.5  # of lives: what their ends are, and what comes after them
PIECE_BYTES, LINE_BYTES_MAX = 16 << 10, 1 << 20
FIRST_BYTES = 64 << 10
STATES_OF_KINDS = 4  # that a prune leaves
SAMPLES = 400  # of memory, over the stream
SAVE_SECONDS, TELL_SECONDS, POLL_SECONDS = 5, 60, 0.1
LOG = "source/current.log"


def add_arguments(parser):
    parser.add_argument("--stream", nargs="+", type=pathlib.Path, metavar="FILE", help="what is learned, in this order")
    parser.add_argument("--work", dest="directory", metavar="DIR", help="keep everything here; the same command continues")
    parser.add_argument("--bytes", type=size, metavar="SIZE", help="of the stream (all)")
    parser.add_argument("--rotate", type=size, metavar="SIZE", help="the log is rotated at this size (20M)")
    parser.add_argument("--rate", type=size, metavar="SIZE", help="written a second at most (no bound)")
    parser.add_argument("--life", type=float, metavar="S", help="of a daemon, on average (360)")
    parser.add_argument("--compare", action="store_true", help="with a pool that learns the same bytes in one piece")


class Stream:
    """Files as one text, up to the last line that ends within `most` bytes."""

    def __init__(self, paths, most):
        self.files = [(path, path.stat().st_size) for path in paths]
        total = min(most or sys.maxsize, sum(length for _, length in self.files))
        tail = self.read(max(0, total - LINE_BYTES_MAX), min(total, LINE_BYTES_MAX))
        if b"\n" not in tail:
            raise Problem("no line ends shortly before the end of the stream")
        self.bytes = total - len(tail) + tail.rindex(b"\n") + 1

    def read(self, at, count):
        found = b""
        for path, length in self.files:
            if at < length and count > len(found):
                with open(path, "rb") as file:
                    file.seek(at)
                    found += file.read(count - len(found))
            at = max(0, at - length)
        return found


class Figures(dict):
    """What is known after any end of the campaign, in a file that is whole at all times."""

    def __init__(self, path, total):
        super().__init__(
            total=total, base=0, moved=None, pools=[], learned=0, committed=0, committed_lost=0, lives=0, kills=0,
            clean_stops=0, rotations=0, verified=0, verified_at=0, seconds=0, tenths=[0] * 10, commits={}, rss_max=0,
            opening={"kill": [], "stop": []}, first=[], ended=None, samples=[], lost=None, twice=None, root=None,
            root_other=None,
        )  # fmt: skip
        self.path, self.saved = path, 0
        if path.exists():
            self.update(json.loads(path.read_text()))
        if self["total"] != total:
            raise Problem(f"{path.parent} is about a stream of {self['total']} bytes, not of {total}")

    def save(self, pause=0):
        if time.monotonic() - self.saved >= pause:
            self.saved = time.monotonic()
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self))
            os.replace(new, self.path)


class Feeder:
    """The log. What was written so far is `base`, bytes of files that were moved away, and the size of the present."""

    def __init__(self, path, stream, figures, rotate):
        self.path, self.stream, self.figures, self.rotate_bytes = path, stream, figures, rotate
        path.parent.mkdir(exist_ok=True)
        path.touch()
        self.move()

    def fed(self):
        return self.figures["base"] + self.path.stat().st_size

    def feed(self, until):
        at = self.fed()
        while at < min(until, self.stream.bytes):
            piece = self.stream.read(at, min(PIECE_BYTES, self.stream.bytes - at))
            with open(self.path, "ab", buffering=0) as file:
                at += file.write(piece[: piece.rfind(b"\n") + 1] or piece)
            if self.path.stat().st_size >= self.rotate_bytes:
                self.rotate()

    def rotate(self):
        """As logrotate does with `create`; said before, so that it is done once."""
        at, present = self.fed(), self.path.stat()
        if present.st_size and self.stream.read(at - 1, 1) == b"\n":
            self.figures.update(base=at, moved=present.st_ino, rotations=self.figures["rotations"] + 1)
            self.figures.save()
            self.move()

    def move(self):
        if self.path.stat().st_ino == self.figures["moved"]:
            for old in reversed(self.old_files()):
                old.rename(old.with_suffix(f".{int(old.suffix[1:]) + 1}"))
            self.path.rename(f"{self.path}.1")
            self.path.touch()

    def old_files(self):
        """The newest first."""
        return sorted(self.path.parent.glob(self.path.name + ".*"), key=lambda path: int(path.suffix[1:]))

    def drop(self, committed):
        end = self.figures["base"]
        for old in self.old_files():
            length = old.stat().st_size
            if end <= committed:
                old.unlink()
            end -= length


class Week:
    def __init__(self, w, given, stream):
        self.w, self.stream, self.seed = w, stream, given.seed
        self.figures = Figures(w.directory / "figures.json", stream.bytes)
        chosen = {key: getattr(given, key) for key in ("life", "rotate", "rate", "model") if getattr(given, key)}
        self.set = types.SimpleNamespace(**{**(QUICK if given.quick else LONG), **chosen})
        self.pool = self.make_pool("pool")
        self.feeder = Feeder(w.directory / LOG, stream, self.figures, self.set.rotate)
        self.threads = ["--threads", given.threads] if given.threads else []
        self.verify = None  # a process
        self.first = None  # when this daemon was started and what it knew then, until it has learned FIRST_BYTES more
        self.looked = self.moved_on = time.monotonic()
        self.end = self.looked + (given.seconds or math.inf)
        self.progress = Progress("week", stream.bytes / 1e6, "MB", self.figures["learned"] / 1e6, TELL_SECONDS)

    def make_pool(self, name):
        if name not in self.figures["pools"]:
            self.w.make_pool(self.set.model, name)
            self.figures["pools"].append(name)
            self.figures.save()
        return self.w.directory / name

    def start(self, **more):
        return self.w.start(self.pool, "--source", f"follow:{LOG}", *self.set.settings, *self.threads, **more)

    def look(self, daemon):
        """What the daemon has learned and takes, and what is to be done for it. Has it learned all?"""
        f, status, now = self.figures, daemon.status(), time.monotonic()
        learned, committed = status["sources"][0]["cursor"], status["last_commit"]["stream_bytes"]
        if learned != f["learned"] or learned == self.feeder.fed():
            self.moved_on = now
        if now - self.moved_on > harness.ANSWER_SECONDS_MAX:
            raise Problem(f"stuck at {learned} of {self.feeder.fed()} bytes: {daemon.said()}")
        if self.first is not None and learned - self.first[1] >= FIRST_BYTES:
            f["first"].append(now - self.first[0])
            self.first = None
        f["seconds"] += now - self.looked
        f["tenths"][min(9, 10 * learned // f["total"])] += now - self.looked
        self.looked = now
        f.update(learned=learned, committed=committed, rss_max=max(f["rss_max"], daemon.rss_bytes()))
        f["commits"][str(f["lives"])] = commits_of(daemon)
        if learned - (f["samples"] or [(-math.inf, 0)])[-1][0] >= f["total"] / SAMPLES:
            f["samples"].append((learned, daemon.private_bytes()))
        self.feeder.feed(min(learned + self.set.ahead, self.set.rate * f["seconds"]))
        self.feeder.drop(committed)
        if self.verify is None and learned - f["verified_at"] >= min(VERIFY_BYTES, f["total"] // 4):
            f["verified_at"] = learned
            self.verify_beside()
        if self.verify is not None and self.verify.poll() is not None:
            self.await_verify()
        f.save(SAVE_SECONDS)
        self.progress.at(learned / 1e6, f", {f['kills']} kills, {f['rss_max'] >> 20} MiB")
        return learned >= f["total"]

    def verify_beside(self):
        self.w.tool("prune", self.pool, "--keep-last", STATES_OF_KINDS, "--yes")
        command = [*self.w.before, self.w.reef, "verify", self.pool, "--json"]
        self.verify = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def await_verify(self):
        if self.verify is not None:
            said, _ = self.verify.communicate()
            if self.verify.returncode:
                raise Problem(f"reef verify ended with {self.verify.returncode}: {said}")
            self.figures["verified"] += 1
            self.verify = None

    def kill(self, daemon):
        if not daemon.kill():
            raise Problem(f"reefd ended with {daemon.process.returncode}: {daemon.said()}")
        self.figures["kills"] += 1
        self.figures["ended"] = "kill"

    def stop(self, daemon):
        daemon.stop()
        self.figures["clean_stops"] += 1
        self.figures["ended"] = "stop"

    def open(self):
        f, began = self.figures, time.monotonic()
        ended, f["ended"] = f["ended"], "kill"
        f["lives"] += 1
        daemon = self.start()
        found = daemon.status()["last_commit"]["stream_bytes"]
        if ended:
            f["opening"][ended].append(time.monotonic() - began)
        f["committed_lost"] += max(0, f["committed"] - found)
        self.first, self.looked = (began, found), time.monotonic()
        return daemon, found

    def life(self):
        draw = random.Random(f"{self.seed}/{self.figures['lives']}")
        if draw.random() < EARLY_SHARE:
            daemon = self.start(await_socket=False)
            time.sleep(draw.random() * (median(self.figures["opening"]["kill"]) or 0))
            self.kill(daemon)
        daemon, before = self.open()
        end = time.monotonic() + self.set.life * (1 + 4 * draw.random()) / 3
        while not (complete := self.look(daemon)) and time.monotonic() < self.end:
            if time.monotonic() >= end and self.figures["committed"] > before:  # or slow machines would not get on
                break
            time.sleep(POLL_SECONDS)
        if complete:
            self.finish(daemon)
        elif draw.random() < STOP_SHARE or time.monotonic() >= self.end:
            self.stop(daemon)
        else:
            self.kill(daemon)
        if draw.random() < ROTATE_SHARE:
            self.feeder.rotate()
        self.figures.save()

    def finish(self, daemon):
        """What the pool says when it has learned all, and its root."""
        f = self.figures
        daemon.ask("drain")
        time.sleep(1)  # would it take more than there is?
        self.await_verify()
        self.verify_beside()
        self.await_verify()
        status = self.w.tool("status", self.pool)
        found = status["stream_bytes"] + status["carried_bytes"], status["sources"][0]["cursor"]
        f.update(lost=max(0, f["total"] - min(found)), twice=max(0, max(found) - f["total"]))
        self.stop(daemon)
        f["root"] = self.w.tool("status", self.pool)["last_commit"]["root"]

    def train_in_one_piece(self):
        """From a file whose path is the name of the source, which the root covers. Until time is over."""
        folder = self.w.directory / "compare"
        whole = folder / f"follow:{LOG}"
        whole.parent.mkdir(parents=True, exist_ok=True)
        if not whole.exists() or whole.stat().st_size != self.stream.bytes:
            with open(whole, "wb") as file:
                for at in range(0, self.stream.bytes, 1 << 20):
                    file.write(self.stream.read(at, min(1 << 20, self.stream.bytes - at)))
        words = [self.make_pool("reference"), f"file:follow:{LOG}", *self.threads, "--json"]
        command = [*self.w.before, self.w.reef, "train", *map(str, words)]
        left = None if self.end == math.inf else max(self.end - time.monotonic(), 0)
        try:
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, timeout=left)
        except subprocess.TimeoutExpired:
            return
        if done.returncode:
            raise Problem(f"reef train ended with {done.returncode}")
        self.figures["root_other"] = json.loads(done.stdout)["root"]

    def go_on(self, compares):
        try:
            while self.figures["root"] is None and time.monotonic() < self.end:
                self.life()
            if compares and self.figures["root"] and not self.figures["root_other"]:
                self.train_in_one_piece()
        finally:
            self.progress.end()
            self.figures.save()
            if self.verify is not None:
                self.verify.kill()
                self.verify.wait()
        return bool(self.figures["root_other"] if compares else self.figures["root"])


def commits_of(daemon):
    """By seconds, how many commits of the daemon took at most so long."""
    daemon.control.request("GET", "/metrics")
    text = daemon.control.getresponse().read().decode()
    rows = re.findall(r'^reef_commit_duration_seconds_bucket{le="(.*)"} (.*)$', text, re.MULTILINE)
    return {le: int(count) for le, count in rows}


def document_of(week):
    f = week.figures
    # A kill may come between a state and its event.
    states = {event["name"] for event in week.w.tool("timeline", week.pool)["events"] if "snapshot" in event["event"]}
    kept = {snapshot["name"] for snapshot in week.w.tool("snapshot", "list", week.pool)["snapshots"]}
    commits = {}
    for of_life in f["commits"].values():
        commits.update({le: commits.get(le, 0) + count for le, count in of_life.items()})
    rates = [round(f["total"] / 10 / seconds) for seconds in f["tenths"] if seconds]
    late = [sample for sample in f["samples"] if sample[0] >= f["total"] / 2]
    document = {key: f[key] for key in ("total", "learned", "seconds", "lives", "kills", "clean_stops", "rotations")}
    document.update(
        states_made=len(states | kept), states_kept=len(kept), verified=f["verified"], lost=f["lost"], twice=f["twice"],
        committed_lost=f["committed_lost"],
    )  # fmt: skip
    for ended, seconds in f["opening"].items():
        document[f"opening_after_{ended}_p50_s"] = median(seconds)
        document[f"opening_after_{ended}_max_s"] = max(seconds, default=None)
    document.update(
        first_64k_p50_s=median(f["first"]),
        first_64k_max_s=max(f["first"], default=None),
        commits=commits.get("+Inf"),
        commit_p99_s_at_most=next((le for le, count in commits.items() if count >= 0.99 * commits["+Inf"]), None),
        rss_max_bytes=f["rss_max"],
        private_slope_bytes_per_mb=slope(late) / 3600 * 1e6 if late else None,
        bytes_per_s_of_tenths=rates,
        rate_last_over_first=rates[-1] / rates[0] if f["root"] and len(rates) == 10 else None,
        pool_bytes_per_byte=(week.pool / "data.mdb").stat().st_size / max(1, f["learned"]),
        root=f["root"],
        roots_equal=f["root"] == f["root_other"] if f["root_other"] else None,
    )
    return document


def run(w, given):
    if shutil.which("setpriv"):  # what was started ends with the campaign, whatever ends that
        w.before = ["setpriv", "--pdeathsig", "KILL"]
    lock = open(w.directory / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Problem(f"another campaign works in {w.directory}") from None
    paths = [path.resolve() for path in given.stream or []]
    if not paths and not given.quick:
        raise Problem("give texts: --stream FILE...")
    if not paths:
        paths = [w.directory / "stream"]
        paths[0].write_bytes(harness.make_text(BYTES_QUICK, 1))
    os.chdir(w.directory)  # so that the log's name in the pool is short, wherever it is
    week = Week(w, given, Stream(paths, given.bytes))
    compares = given.compare or given.quick
    finished = week.go_on(compares)
    document = {"finished": finished, **document_of(week)}
    goals = [("committed_lost", "is", 0, True)]
    if not finished:
        what = f"{document['learned']} of {document['total']} bytes are learned"
        what += ", and not compared yet" if document["root"] else ""
        print(f"week: {what}; the same command goes on", file=sys.stderr)
        return document, goals
    goals += [
        ("lost", "is", 0, True),
        ("twice", "is", 0, True),
        ("kills", "at least", 1, True),
        ("rotations", "at least", 2, True),
        ("rate_last_over_first", "at least", 0.5, False),
    ]
    if compares:
        goals.append(("roots_equal", "is", True, True))
    return document, goals
