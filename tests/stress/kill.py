"""kill -9 at random moments: the end is that of a run that nothing disturbed, and what was acknowledged is there once.

The stream is counted: records of 32 bytes, each with its number. One half comes from a file, the other is pushed: over
HTTP and the control socket where the daemon takes pushes (a record counts as acknowledged with the answer, and goes
again, under its batch's name, when none came); else through standard input, whose sender goes on at the pool's cursor.
When all is trained the pool is compared with that of the undisturbed run, and so is its root hash once the open
generation is sealed; then the next begins, until all kills are spent. Every tenth pool that was killed is verified as
well.

With --net-share the pool has a context memory, whose net learns that share of the batches (0: there is no net), and
boundaries on the way. The tables of a memory are in the root hash of a generation once it is sealed.

Then restarts: a pool whose file has --pool-bytes is killed in the middle of training and started again --restarts
times; each counts from the start of the process to the end of its first training step. Beside them: how long this
machine takes to find as much memory as the pool has bytes and to write to each page of it once, on one core. Where
free memory goes back to a host this is most of a restart.

With --net-share the pool that is restarted has a full context memory of 64 MiB instead, which wrote its tables almost
384 KiB of the stream ago: each restart learns these bytes again.
"""

import functools
import json
import mmap
import os
import random
import socket
import threading
import time
import urllib.error
import urllib.request

import harness
from harness import ONE_GENERATION, SMALL, TINY, Problem, Progress, median, percentile

HELP = "kill -9 at random moments: nothing lost, nothing twice, the same root hash"
COUNT, COUNT_QUICK = 1000, 25
RECORD_BYTES = 32
RECORDS, RECORDS_QUICK = 2048, 1024  # of each source; whole slices, so that none waits for another at the end
BATCH_RECORDS = 32
POOL_BYTES, POOL_BYTES_QUICK = 1 << 30, 4 << 20
RESTARTS, RESTARTS_QUICK = 100, 2
FULL_MEMORY, FULL_MEMORY_QUICK = ("64M", 8 << 20), ("4M", 2 << 20)  # its bound, and bytes that it learns
TAIL_BYTES = 380 << 10  # learned again by a restart; from 384 KiB on tables are written
NEVER = 10**9  # steps to a commit
MEMORY_SHARE = 4  # of so many restarts, one look at the memory alone
COMMIT_STEPS = 20
LIFE_SHARE = 0.25  # a life is at most so much of an undisturbed run
VERIFY_EVERY = 10
POLL_SECONDS = 0.002
CONTEXT_MEMORY = ["--memory", "4M"]
GENERATIONS = 2  # of a pool with a context memory; each is long enough for checkpoints of its tables


def size(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    value = int(text[:-1]) << unit if unit else int(text)
    if value < 1:
        raise ValueError
    return value


def add_arguments(parser):
    parser.add_argument("--pool-bytes", type=size, metavar="SIZE", help="of the pool that is restarted (1G)")
    parser.add_argument(
        "--net-share", type=float, metavar="SHARE", help="a pool with a context memory, and of which share a net"
    )
    parser.add_argument("--restarts", type=int, metavar="N", help="of that pool; 0 for none (100)")


@functools.cache  # making words takes its time
def words():
    return harness.make_text(1 << 16, 1)


def record(source, number):
    begin = f"{source}{number:08d} ".encode()
    size = RECORD_BYTES - len(begin) - 1
    at = number * size % (len(words()) - size)
    return begin + words()[at : at + size] + b"\n"


def records(source, first, last):
    return b"".join(record(source, number) for number in range(first, last))


# ---- who pushes --------------------------------------------------------------------------------------


class Pusher(threading.Thread):
    """Sends its batches one after another, each until it is acknowledged, whatever happens to the daemon."""

    def __init__(self, letter, name, count):
        super().__init__(daemon=True)
        self.letter, self.name_of_source, self.count = letter, name, count
        self.acknowledged = self.sent_again = self.duplicates = 0
        self.over = False
        self.failure = None

    def run(self):
        try:
            for first in range(0, self.count, BATCH_RECORDS):
                self.push_until_acknowledged(first)
        except Exception as failure:  # told by the campaign's own thread
            self.failure = failure

    def push_until_acknowledged(self, first):
        body = records(self.letter, first, first + BATCH_RECORDS)
        while not self.over:
            answer = self.push(f"{self.letter}{first}", body)
            if answer is not None:
                self.acknowledged += BATCH_RECORDS
                self.duplicates += bool(answer.get("duplicate"))
                return
            self.sent_again += 1
            time.sleep(0.01)

    def stop(self):
        self.over = True
        self.join()


class HttpPusher(Pusher):
    def __init__(self, name, count, port, headers):
        super().__init__("h", name, count)
        self.headers = headers
        self.url = f"http://127.0.0.1:{port}/v1/ingest/{name}"

    def push(self, batch, body):
        """The answer, or None when there was none."""
        request = urllib.request.Request(self.url, body, self.headers(batch))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (429, 503):
                return None
            raise Problem(f"POST {self.url}: {error.code} {error.read().decode(errors='replace')}") from None
        except (OSError, ValueError):  # killed before or while it answered
            return None


class SocketPusher(Pusher):
    def __init__(self, name, count, path):
        super().__init__("s", name, count)
        self.path = path

    def push(self, batch, body):
        try:
            control = harness.Control(self.path, 60)
        except OSError:
            return None
        try:
            return control.push(self.name_of_source, batch, body)
        except (OSError, ValueError):
            return None
        except Problem as problem:
            if "busy" in str(problem) or "full" in str(problem):
                return None
            raise
        finally:
            control.close()


# ---- the stream and its daemon -----------------------------------------------------------------------


class Stream:
    """A pool on its way through the counted stream, in one life or in many."""

    def __init__(self, w, options, threads, count, pushes):
        self.w, self.threads, self.count, self.pushes = w, threads, count, pushes
        self.options = options
        self.file = w.directory / "file"
        self.file.write_bytes(records("f", 0, count))
        self.totals = {str(self.file): count * RECORD_BYTES}
        if pushes:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.totals.update({"push:web": count * RECORD_BYTES, "push:app": count * RECORD_BYTES})
        else:
            self.standard_input = records("i", 0, count)
            self.totals["-"] = len(self.standard_input)
        self.pushers, self.lives = [], 0
        self.pool = w.directory / "pool"

    def begin(self):
        self.w.make_pool(self.options)
        if self.pushes:
            self.pushers = [
                HttpPusher("web", self.count, self.port, self.w.push_headers),
                SocketPusher("app", self.count, self.pool / "reefd.sock"),
            ]
            for pusher in self.pushers:
                pusher.start()

    def start(self, *more):
        self.lives += 1
        threads = self.threads or 1 + self.lives % 2  # in turns
        words = ["--source", self.file, "--quiet", "--commit-steps", COMMIT_STEPS, "--threads", threads, *more]
        if self.pushes:
            words += ["--source", "push:web", "--source", "push:app", "--http", self.port]
            return self.w.start(self.pool, *words, await_socket=False)
        read, write = os.pipe()
        try:
            daemon = self.w.start(self.pool, *words, "--source", "-", stdin=read, await_socket=False)
        finally:
            os.close(read)
        threading.Thread(target=self.send, args=(daemon, write), daemon=True).start()
        return daemon

    def await_control(self, daemon):
        while True:
            try:
                return harness.Control(daemon.path)
            except OSError:
                if daemon.process.poll() is not None:
                    raise
                time.sleep(POLL_SECONDS)

    def send(self, daemon, write):
        """What the pool has not got yet, through standard input; until the daemon is killed."""
        try:
            control = self.await_control(daemon)
            accepted = {source["name"]: source["cursor"] for source in control.ask("status")["sources"]}
            control.close()
            rest = self.standard_input[accepted["-"] :]
            for at in range(0, len(rest), 777):
                os.write(write, rest[at : at + 777])
        except (OSError, ValueError):
            pass
        finally:
            os.close(write)

    def is_complete(self, daemon):
        """Has it accepted everything? Of one that ends by itself its end says so."""
        if not self.pushes:
            return daemon.process.poll() is not None
        if any(pusher.is_alive() for pusher in self.pushers) or daemon.process.poll() is not None:
            return False
        try:
            daemon.await_socket(POLL_SECONDS)
            sources = daemon.status()["sources"]
        except (OSError, Problem):
            return False
        return all(source["cursor"] == self.totals[source["name"]] for source in sources)

    def check(self):
        for pusher in self.pushers:
            if pusher.failure:
                raise pusher.failure

    def life(self, seconds):
        """One life of the daemon. False: it was killed; True: it ended, with everything trained."""
        daemon = self.start()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            if self.is_complete(daemon):
                if self.pushes:
                    daemon.stop()
                break
            time.sleep(min(POLL_SECONDS, left))
        if daemon.kill():
            return False
        if daemon.process.returncode:
            raise Problem(f"reefd ended with {daemon.process.returncode}: {daemon.said()}")
        return True

    def outcome(self):
        """Of a daemon with nothing to do any more: root hashes as it is and sealed, cursors by source, generations."""
        daemon = self.start("--stay")
        daemon.await_socket()
        status = daemon.status()
        daemon.ask("seal")
        sealed = daemon.status()["last_commit"]["root"]
        daemon.stop()
        cursors = {source["name"]: source["cursor"] for source in status["sources"]}
        return (status["last_commit"]["root"], sealed), cursors, 1 + status["generation"]

    def end(self):
        for pusher in self.pushers:
            pusher.stop()


def count_records(stream, cursors):
    """(lost, twice) over all sources: of what was acknowledged, and of what was ever sent."""
    lost = twice = 0
    for name, total in stream.totals.items():
        trained = cursors.get(name, 0)
        lost += max(0, total - trained) // RECORD_BYTES
        twice += max(0, trained - total) // RECORD_BYTES
    return lost, twice


def options_of(given, records_each):
    if given.model:
        return given.model
    if given.net_share is None:
        return TINY + ONE_GENERATION
    # A record in the middle of the file is a marker line: there a kind begins, wherever pushes have come to.
    mark = next(text for number in range(records_each // GENERATIONS, records_each)
                if "\n" not in (text := record("f", number)[:-1].decode()))
    return TINY + CONTEXT_MEMORY + ["--net-share", given.net_share, "--boundary-mark", mark]


def kills(w, given, count, document):
    draw = random.Random(given.seed)
    pushes = w.knows("push:")
    records_each = RECORDS_QUICK if given.quick else RECORDS
    sources = 3 if pushes else 2
    options = options_of(given, records_each)
    stream = Stream(w, options, given.threads, records_each, pushes)
    stream.begin()
    began = time.monotonic()
    if not stream.life(harness.ANSWER_SECONDS_MAX):
        raise Problem("the undisturbed run did not end")
    whole_seconds = time.monotonic() - began
    root, cursors, generations = stream.outcome()
    stream.end()
    if count_records(stream, cursors) != (0, 0):
        raise Problem(f"the undisturbed run accepted {cursors} of {stream.totals}")
    killed = runs = equal = lost = twice = again = duplicates = 0
    progress = Progress("kill", count, "kills")
    longest = LIFE_SHARE * whole_seconds
    while killed < count:
        stream.begin()
        runs += 1
        while True:  # the last pool is let through to its end
            ended = stream.life(draw.random() * longest if killed < count else harness.ANSWER_SECONDS_MAX)
            if ended:
                break
            killed += 1
            progress.at(killed, f", {runs} runs")
            if killed % VERIFY_EVERY == 0:
                w.tool("verify", stream.pool)
        found, cursors, _ = stream.outcome()
        stream.end()
        missing, double = count_records(stream, cursors)
        lost, twice, equal = lost + missing, twice + double, equal + (found == root)
        again += sum(pusher.sent_again for pusher in stream.pushers)
        duplicates += sum(pusher.duplicates for pusher in stream.pushers)
    progress.end()
    document.update(
        kills=killed,
        runs=runs,
        generations=generations,
        sources="file, push over HTTP, push over the socket" if pushes else "file, standard input",
        records=len(stream.totals) * stream.count,
        hash_equal=equal == runs,
        acknowledged_lost=lost,
        duplicated=twice,
        pushes_sent_again=again,
        pushes_known_already=duplicates,
        kill_seconds=time.monotonic() - began,
    )


# ---- restarts ----------------------------------------------------------------------------------------


def side_of(pool_bytes):
    """Sub-keys a side: 4 layers of side * side experts, 256 floats each, stored with two moments and an average."""
    return max(8, int((pool_bytes / (4 * 256 * 4 * 4)) ** 0.5))


def memory_seconds(size):
    """How long this machine takes to find that much memory and write to it once, on one core."""
    began = time.monotonic()
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory[::mmap.PAGESIZE] = bytes(len(range(0, size, mmap.PAGESIZE)))
        return time.monotonic() - began


def large_pool(w, pool_bytes):
    """A pool whose file has so many bytes, and how a daemon is to commit to it."""
    return w.make_pool(["--side", side_of(pool_bytes), *ONE_GENERATION], "large"), ["--commit-steps", 5]


def full_memory_pool(w, given):
    """A pool whose context memory is full and has the longest tail, which no daemon is to end by a commit."""
    bound, learned = FULL_MEMORY_QUICK if given.quick else FULL_MEMORY
    options = ["--memory", bound, "--net-share", given.net_share]
    pool = w.make_pool(SMALL + ONE_GENERATION + options, "large")
    commits = ["--commit-steps", NEVER, "--commit-seconds", 0]
    for seed, count in (3, learned), (4, TAIL_BYTES):
        part = w.directory / f"part{seed}"
        with open(part, "wb") as file:
            for at in range(0, count, 1 << 20):
                file.write(harness.make_text(min(count - at, 1 << 20), seed + at))
        w.start(pool, "--source", part, "--quiet", *commits, await_socket=False).wait()  # commits once, as it ends
    return pool, commits


def restarts(w, given, count, pool_bytes, document):
    draw = random.Random(given.seed + 1)
    text = w.directory / "long"
    harness.write_repeated(text, 8 << 20, 2)
    pool, commits = large_pool(w, pool_bytes) if given.net_share is None else full_memory_pool(w, given)
    words = ["--source", text, "--quiet", "--stay", *commits]
    if given.threads:
        words += ["--threads", given.threads]
    seconds, busy = [], []
    progress = Progress("restart", count, "restarts")
    for i in range(count + 1):
        before = w.tool("status", pool, "--socket", w.directory / "none")["step"]
        began = time.monotonic()
        daemon = w.start(pool, *words, await_socket=False)
        daemon.await_socket(POLL_SECONDS)
        while daemon.status()["step"] <= before:
            time.sleep(POLL_SECONDS)
        if i > 0:  # the first one was no restart
            seconds.append(time.monotonic() - began)
            busy.append(sum(ran for ran, _ in daemon.schedule().values()))
        time.sleep(draw.random())
        daemon.kill()
        progress.at(i)
    progress.end()
    actual_bytes = (pool / "data.mdb").stat().st_size
    memory = []
    for _ in range(max(2, count // MEMORY_SHARE)):
        time.sleep(draw.random())
        memory.append(memory_seconds(actual_bytes))
    document.update(
        pool_bytes=actual_bytes,
        restarts=count,
        restart_p50_ms=1e3 * median(seconds),
        restart_p99_ms=1e3 * percentile(seconds, 0.99),
        restart_max_ms=1e3 * max(seconds),
        restart_cpu_p50_ms=1e3 * median(busy),
        memory_p50_ms=1e3 * median(memory),
        memory_p99_ms=1e3 * percentile(memory, 0.99),
    )


def run(w, given):
    count = given.count or (COUNT_QUICK if given.quick else COUNT)
    restart_count = given.restarts if given.restarts is not None else (RESTARTS_QUICK if given.quick else RESTARTS)
    pool_bytes = given.pool_bytes or (POOL_BYTES_QUICK if given.quick else POOL_BYTES)
    document = {"seed": given.seed, "net_share": given.net_share, "restart_p99_ms": None}
    kills(w, given, count, document)
    goals = [
        ("kills", "at least", count, True),
        ("hash_equal", "is", True, True),
        ("acknowledged_lost", "is", 0, True),
        ("duplicated", "is", 0, True),
    ]
    if given.net_share is not None and not given.model:
        goals.append(("generations", "at least", GENERATIONS, True))
    if restart_count:
        restarts(w, given, restart_count, pool_bytes, document)
        goals.append(("restart_p99_ms", "at most", 2000, False))
    return document, goals
