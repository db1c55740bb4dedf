"""Everything at once for hours: memory, descriptors and file stay as they are, and a sanitized build is silent.

Standard input never ends; beside it lines are pushed and a log is followed, where the daemon can, each no further ahead
of training than LAG_MAX: what is kept for a trainer that cannot keep up, descriptors of deleted logs, a journal, grows
as it should, and `tail` looks at that. Clients score, scrape and ask for histories; hostile ones come and go; commands
commit, make and remove snapshots, pause and resume; the pool is verified now and then.

With --directory, pool and log stay there, and the next soak in it goes on with them: hours may be done in parts, with a
restart between them. The figures are of one daemon each; `seconds_before` tells how long earlier ones ran.

What is measured begins when what is kept for a time only has filled: the usage of single commits, of one to two hours
and at most 8 MiB, and the windows of the series. So it begins after two hours, or after half of a shorter run; where
earlier runs had these two hours, after half an hour, in which a new daemon maps what it needs of the pool.
The goals for memory and file are for hours: in a short run they are shown, and say little.
"""

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request

import hostile_clients
import harness
from harness import ONE_GENERATION, Progress, median

HELP = "8 hours of mixed load: slope of memory, descriptors, size of the file, reports of sanitizers"
SECONDS, SECONDS_QUICK = 8 * 3600, 20
HOSTILE = 12
WARM_SECONDS, WARM_AGAIN_SECONDS, WARM_SHARE_MAX = 7200, 1800, 0.5
PARTS = 8  # of the run, at whose ends the size of the file is told
COMMAND_SECONDS = 2
KEEP_SECONDS = 2  # a connection that rests longer is closed; the daemon closes it after six
VERIFY_SECONDS, VERIFY_SECONDS_QUICK = 300, 10
MIB = 1 << 20
LAG_MAX = 1 << 20  # of what is pushed and logged
PIECE_BYTES = 32 << 10  # below what a pipe holds, so that writing waits for nobody
REPORTS = ("AddressSanitizer", "ThreadSanitizer", "LeakSanitizer", "runtime error:")


class Actor(threading.Thread):
    """Does something again and again, until the end; what goes wrong ends the campaign."""

    def __init__(self, name, pause, act):
        super().__init__(daemon=True, name=name)
        self.pause, self.act = pause, act
        self.over = threading.Event()
        self.done, self.failure = 0, None
        self.held = False  # it is far enough ahead of training

    def run(self):
        try:
            while not self.over.wait(self.pause):
                if self.held:
                    continue
                self.act()
                self.done += 1
        except Exception as failure:  # told by the campaign's own thread
            self.failure = failure


def scorer(address, seed, pause):
    text = harness.make_text(256 << 10, seed)
    connection = http.client.HTTPConnection(*address, timeout=60)
    at = 0

    def act():
        nonlocal at
        at = (at + 1024) % len(text)
        connection.request("POST", "/v1/score", text[at : at + 1024])
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 429):
            raise harness.Problem(f"POST /v1/score: {answer.status}")
        if pause > KEEP_SECONDS:
            connection.close()

    return act


def reader(address):
    paths = ["/metrics", "/v1/status", "/v1/series", "/v1/generations", "/v1/timeline", "/v1/snapshots", "/readyz"]
    turn = 0

    def act():
        nonlocal turn
        turn += 1
        path = paths[turn % len(paths)]
        code, _ = harness.get(address, path)
        if code != 200:
            raise harness.Problem(f"GET {path}: {code}")

    return act


def commander(path, began):
    turn = 0

    def act():
        nonlocal turn
        turn += 1
        control = harness.Control(path)
        try:
            step = turn % 6
            if step == 0:
                control.ask("commit")
            elif step == 1:
                control.ask("snapshot", name=f"soak-{began}-{turn}")
            elif step == 2:
                control.ask("snapshot_remove", names=[f"soak-{began}-{turn - 1}"])
            elif step == 3:
                control.ask("pause")
            elif step == 4:
                control.ask("resume")
            else:
                control.ask("freeze", dry_run=True)
        except OSError:  # all connections are taken by hostile ones: again, later
            turn -= 1
        except harness.Problem as problem:
            if "too many clients" not in str(problem):
                raise
            turn -= 1
        finally:
            control.close()

    return act


def pusher(w, address, began):
    turn = 0

    def act():
        nonlocal turn
        body = harness.make_text(2000, turn)
        url = f"http://{address[0]}:{address[1]}/v1/ingest/web"
        request = urllib.request.Request(url, body, w.push_headers(f"{began}-{turn}"))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                json.load(answer)
            turn += 1
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise

    return act


def logger(path):
    turn = 0

    def act():
        nonlocal turn
        turn += 1
        if turn % 500 == 0 and path.exists():
            os.replace(path, f"{path}.1")
        with open(path, "ab") as log:
            log.write(harness.make_text(2000, turn) + b"\n")

    return act


class Feeder:
    """Standard input that never ends, a little ahead of training: what is read is trained before the daemon ends."""

    def __init__(self):
        self.read, self.write = os.pipe()
        self.block = harness.make_text(PIECE_BYTES, 3)

    def feed(self, status):
        if status["queue_bytes"] < PIECE_BYTES:
            os.write(self.write, self.block)

    def close(self):
        os.close(self.write)


def hold(actors, status):
    """What is pushed or logged waits while training is far behind it."""
    lags = {source["kind"]: source["lag_bytes"] or 0 for source in status["sources"]}
    for actor in actors:
        actor.held = lags.get({"push": "push", "log": "follow"}.get(actor.name), 0) > LAG_MAX
    return max(lags.values())


def slope(samples):
    """Least squares: of (seconds, value), in values an hour."""
    n = len(samples)
    mean_x = sum(x for x, _ in samples) / n
    mean_y = sum(y for _, y in samples) / n
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def actors_of(w, pool, address, load, began):
    actors = [
        Actor("score", 0.2 / load, scorer(address, 1, 0.2 / load)),
        Actor("score", 0.5 / load, scorer(address, 2, 0.5 / load)),
        Actor("read", 0.3 / load, reader(address)),
        Actor("command", COMMAND_SECONDS / load, commander(pool / "reefd.sock", began)),
    ]
    if w.knows("push:"):
        actors.append(Actor("push", 0.1 / load, pusher(w, address, began)))
    if w.knows("follow:"):
        actors.append(Actor("log", 0.1 / load, logger(w.directory / "app.log")))
    return actors


def load_share(text):
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError
    return share


def read_ledger(path):
    """Seconds of earlier runs in this directory."""
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def add_arguments(parser):
    parser.add_argument(
        "--load", type=load_share, default=1, metavar="SHARE", help="how often all is done: 0.2 waits 5 times as long (1)"
    )
    parser.add_argument("--directory", metavar="DIR", help="pool and log stay here; another soak goes on with them")


def start(w, given, threads):
    pool = w.directory / "pool"
    if not (pool / "data.mdb").exists():
        w.make_pool(given.model or harness.TINY + ONE_GENERATION)
    words = ["--http", "0", "--quiet", "--threads", threads, "--commit-seconds", 2, "--source", "-"]
    if w.knows("push:"):
        words += ["--source", "push:web"]
    if w.knows("follow:"):
        (w.directory / "app.log").touch()
        words += ["--source", f"follow:{w.directory / 'app.log'}"]
    feeder = Feeder()
    daemon = w.start(pool, *words, stdin=feeder.read)
    os.close(feeder.read)
    return pool, daemon, feeder


def run(w, given):
    seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    verify_seconds = (VERIFY_SECONDS_QUICK if given.quick else VERIFY_SECONDS) / given.load
    threads = given.threads or max(1, (os.cpu_count() or 2) - 1)
    ledger = w.directory / "seconds"
    before = read_ledger(ledger)
    pool, daemon, feeder = start(w, given, threads)
    address = daemon.address()
    connections = daemon.connections()
    actors = actors_of(w, pool, address, given.load, int(time.time()))
    storm = hostile_clients.Process(address, daemon.path, HOSTILE, seconds)
    for actor in actors:
        actor.start()
    warm = min(max(WARM_SECONDS - sum(before), WARM_AGAIN_SECONDS), WARM_SHARE_MAX * seconds)
    rss, private, file_bytes, file_bytes_parts, files, lag_bytes_max = [], [], [], [], [], 0
    progress, began, verified = Progress("soak", seconds, "s"), time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        if now > (verified + 1) * verify_seconds:
            w.tool("verify", pool)
            verified += 1
        for actor in actors:
            if actor.failure:
                raise harness.Problem(f"{actor.name}: {actor.failure!r}; reefd said: {daemon.said()}")
        status = daemon.status()
        feeder.feed(status)
        lag_bytes_max = max(lag_bytes_max, hold(actors, status))
        size = (pool / "data.mdb").stat().st_size
        if now > (len(file_bytes_parts) + 1) * seconds / PARTS:
            file_bytes_parts.append(size)
        if now > warm:
            rss.append((now, daemon.rss_bytes()))
            private.append((now, daemon.private_bytes()))
            file_bytes.append(size)
            files.append(daemon.descriptors() - daemon.connections())
        progress.at(now, f", {daemon.rss_bytes() / MIB:.0f} MiB")
        time.sleep(min(1, max(0.1, seconds / 2000)) / given.load)
    progress.end()
    for actor in actors:
        actor.over.set()
    for actor in actors:
        actor.join()
    waited = time.monotonic()
    while (status := daemon.status()) and daemon.connections() > connections:
        if time.monotonic() - waited > harness.AWAIT_SECONDS_MAX:
            break
        time.sleep(0.1)
    left = daemon.connections() - connections
    storm.release()
    feeder.close()
    daemon.stop()
    w.tool("verify", pool)
    ledger.write_text("".join(f"{part:.0f}\n" for part in before + [seconds]))
    said = daemon.messages.read_text(errors="replace")
    document = {
        "seconds": seconds,
        "seconds_before": sum(before),
        "warm_seconds": warm,
        "load": given.load,
        "threads": threads,
        "sources": [source["name"] for source in status["sources"]],
        "bytes_trained": status["stream_bytes"],
        "commits": status["last_commit"]["number"],
        "lag_bytes_max": lag_bytes_max,
        "done": {},
        "verified": verified + 1,
        "rss_bytes_first": rss[0][1],
        "rss_bytes_last": rss[-1][1],
        "rss_slope_bytes_per_h": slope(rss),
        "private_slope_bytes_per_h": slope(private),
        "descriptors_min": min(files),
        "descriptors_max": max(files),
        # A single count may be off by connections that came between its two looks, at /proc and at the daemon's own.
        "descriptors_growth": median(files[-len(files) // 4 :]) - median(files[: len(files) // 4 + 1]),
        "connections_left": left,
        "file_bytes_parts": file_bytes_parts + [size],
        "file_bytes_first": file_bytes[0],
        "file_bytes_max": max(file_bytes),
        "file_growth_share": max(file_bytes) / file_bytes[0] - 1,
        "sanitizer_reports": sum(said.count(report) for report in REPORTS),
    }
    for actor in actors:
        document["done"][actor.name] = document["done"].get(actor.name, 0) + actor.done
    goals = [
        ("rss_slope_bytes_per_h", "under", MIB, False),
        ("descriptors_growth", "at most", 0, False),
        ("connections_left", "at most", 0, True),
        ("file_growth_share", "at most", 0.25, False),
        ("sanitizer_reports", "is", 0, True),
    ]
    return document, goals
