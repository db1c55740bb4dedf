"""A log that is written faster than it is trained, and rotated: bounded memory, nothing left out, nothing twice.

A process writes numbered lines at --rate bytes a second, --seconds long, and goes on in a new file when the old one was
moved away: by logrotate where it is installed, else by a rename. After that the rest is trained. Compared with a pool
that followed the same bytes in one file: every score must be the same to the last digit.
"""

import multiprocessing
import os
import shutil
import subprocess
import time

import harness
from harness import ONE_GENERATION, Problem, Progress

HELP = "a log written at 50 MB/s and rotated every 64 MB, training slower than the writer"
SECONDS, SECONDS_QUICK = 6, 2
RATE, RATE_QUICK = 50_000_000, 400_000
ROTATE, ROTATE_QUICK = 64_000_000, 200_000
LINE_BYTES = 64
BLOCK_LINES = 32
BLOCK_BYTES = LINE_BYTES * BLOCK_LINES
CHUNK_BLOCKS_MAX = 512
MEMORY_MAX = 64 << 20
SWIFT = (
    "--layers 1 --d-model 8 --attention-heads 1 --context 32 --batch 64 --ffw d "
    "--d-ffw 8 --memory 0"
).split()


def add_arguments(parser):
    parser.add_argument("--rate", type=int, metavar="BYTES", help="written a second (50000000)")
    parser.add_argument("--rotate", type=int, metavar="BYTES", help="a file is moved away at this size (64000000)")


# ---- the writer, a process ---------------------------------------------------------------------------


WORDS = b"ka lo mi ren tu sa vel o shi an kalomi rentusa velo shian la ."
BLOCK = b"".join(WORDS[i % 7 : i % 7 + LINE_BYTES - 1].ljust(LINE_BYTES - 1) + b"\n" for i in range(1, BLOCK_LINES))


def lines(first, count):
    """`count` blocks of lines, all of one length; the first of a block holds its number, and the rest goes fast."""
    return b"".join((b"%010d " % i).ljust(LINE_BYTES - 1, b"-") + b"\n" + BLOCK for i in range(first, first + count))


def write(path, rate, seconds, moved, out):
    number, began = 0, time.monotonic()
    file = open(path, "ab", buffering=0)
    chunk = max(1, min(CHUNK_BLOCKS_MAX, rate // BLOCK_BYTES // 20))
    while time.monotonic() - began < seconds:
        if moved.is_set():  # told after the rename, as by a signal: some lines still went to the old file
            moved.clear()
            file.close()
            file = open(path, "ab", buffering=0)
        file.write(lines(number, chunk))
        number += chunk
        ahead = number * BLOCK_BYTES / rate - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)
    file.close()
    out.send((number, time.monotonic() - began))


class Log:
    """The file, its writer, and who moves it away."""

    def __init__(self, directory, rate, seconds, rotate_bytes):
        context = multiprocessing.get_context("fork")
        directory.mkdir()
        self.path, self.rotate_bytes = directory / "app.log", rotate_bytes
        self.path.touch()
        self.moved, self.rotations = context.Event(), 0
        self.end, other = context.Pipe(duplex=False)
        self.writer = context.Process(
            target=write, args=(self.path, rate, seconds, self.moved, other), daemon=True
        )
        self.logrotate = shutil.which("logrotate") or next(
            (path for path in ("/usr/sbin/logrotate", "/sbin/logrotate") if os.access(path, os.X_OK)), None
        )
        self.config, self.state = directory.parent / "logrotate.conf", directory.parent / "logrotate.state"
        self.config.write_text(f"{self.path} {{\n  rotate 1000\n  nocompress\n  nocreate\n  missingok\n}}\n")
        self.config.chmod(0o600)

    def rotate_when_due(self):
        if not self.writer.is_alive() or self.moved.is_set() or not self.path.exists():
            return
        if self.path.stat().st_size < self.rotate_bytes:
            return
        if self.logrotate:
            command = [self.logrotate, "--force", "--state", str(self.state), str(self.config)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise Problem(f"{' '.join(command)} ended with {done.returncode}: {done.stdout.strip()}")
        else:
            for number in range(self.rotations, 0, -1):
                os.rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            os.rename(self.path, f"{self.path}.1")
        self.rotations += 1
        self.moved.set()

    def files(self):
        """Oldest first."""
        numbered = sorted(self.path.parent.glob("app.log.*"), key=lambda path: -int(path.suffix[1:]))
        return numbered + ([self.path] if self.path.exists() else [])


# ---- the campaign ------------------------------------------------------------------------------------


def source_of(daemon):
    return daemon.status()["sources"][0]


def lag_of(source):
    if source.get("lag_bytes") is not None:
        return source["lag_bytes"]
    return max(0, (source["bytes"] or 0) - source["cursor"])




def train_undisturbed(w, given, path, files, total, threads):
    """The same bytes in one file of the same name, in a pool of its own."""
    pool = w.make_pool(given.model or SWIFT + ONE_GENERATION, "reference")
    whole = path.with_name("whole")
    with open(whole, "wb") as out:
        for file in files:
            with open(file, "rb") as part:
                shutil.copyfileobj(part, out)
            file.unlink()
    os.rename(whole, path)
    daemon = w.start(pool, "--source", f"follow:{path}", "--quiet", "--threads", threads)
    await_trained(daemon, total, "undisturbed run", lambda: None)
    daemon.stop()
    return pool


def await_trained(daemon, total, what, look):
    progress = Progress(what, total / 1e6, "MB")
    last, changed = -1, time.monotonic()
    while (cursor := source_of(daemon)["cursor"]) < total:
        look()
        progress.at(cursor / 1e6)
        now = time.monotonic()
        if cursor != last:
            last, changed = cursor, now
        elif now - changed > harness.AWAIT_SECONDS_MAX:
            raise Problem(f"stuck at {cursor} of {total} bytes: {daemon.said()}")
        time.sleep(0.05)
    time.sleep(1)  # would it take more than there is?
    progress.end()


def run(w, given):
    if not w.knows("follow:"):
        raise Problem("this reefd knows no follow:PATH")
    seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    rate = given.rate or (RATE_QUICK if given.quick else RATE)
    threads = given.threads or max(1, (os.cpu_count() or 2) - 1)
    log = Log(w.directory / "log", rate, seconds, given.rotate or (ROTATE_QUICK if given.quick else ROTATE))
    pool = w.make_pool(given.model or SWIFT + ONE_GENERATION)
    daemon = w.start(
        pool, "--source", f"follow:{log.path}", "--http", "0", "--quiet", "--threads", threads, "--commit-seconds", 2
    )
    calm, memory, lags = daemon.private_bytes(), [], []

    def look():
        memory.append(daemon.private_bytes())
        lags.append(lag_of(source_of(daemon)))

    log.writer.start()
    progress = Progress("writing", seconds, "s")
    began = time.monotonic()
    while not log.end.poll(0.01):
        log.rotate_when_due()
        look()
        progress.at(time.monotonic() - began)
    progress.end()
    count, written_seconds = log.end.recv()
    log.writer.join()
    total = count * BLOCK_BYTES
    trained_meanwhile = source_of(daemon)["cursor"]
    shown = b"reef_source_lag_bytes" in harness.get(daemon.address(), "/metrics")[1]
    await_trained(daemon, total, "training the rest", look)
    trained = source_of(daemon)["cursor"]
    lag_at_end = lag_of(source_of(daemon))
    daemon.stop()
    text = w.directory / "text"
    text.write_bytes(lines(0, 2) + harness.make_text(4096, 5))
    found = w.tool("score", pool, text)
    reference = train_undisturbed(w, given, log.path, log.files(), total, threads)
    document = {
        "bytes_written": total,
        "bytes_written_per_s": total / written_seconds,
        "rotations": log.rotations,
        "rotated_by": "logrotate" if log.logrotate else "rename",
        "bytes_trained": trained,
        "bytes_trained_while_written": trained_meanwhile,
        "gaps": max(0, total - trained) // LINE_BYTES,
        "duplicates": max(0, trained - total) // LINE_BYTES,
        "scores_equal": {key: found[key] for key in ("bits", "bytes")}
        == {key: w.tool("score", reference, text)[key] for key in ("bits", "bytes")},
        "rss_growth_bytes": max(memory) - calm,
        "lag_bytes_max": max(lags),
        "lag_bytes_at_end": lag_at_end,
        "lag_in_metrics": shown,
    }
    left = total - trained_meanwhile  # when the last line was written; the daemon looks once a second
    goals = [
        ("gaps", "is", 0, True),
        ("duplicates", "is", 0, True),
        ("scores_equal", "is", True, True),
        ("rotations", "at least", 2, True),
        ("rss_growth_bytes", "under", MEMORY_MAX, False),
        ("lag_bytes_max", "at least", 1 if given.quick else left * 9 // 10, True),
        ("lag_bytes_at_end", "is", 0, True),
        ("lag_in_metrics", "is", True, True),
    ]
    return document, goals
