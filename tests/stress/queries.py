"""Scoring clients, scrapes and a dashboard beside training: what training keeps of its pace, and how long scores take.

8 clients (--clients) ask 20 times a second each at random times (a Poisson process by a seed, as independent clients
do): one that is late asks at once and its lateness counts. Texts are 1 KB, each another one. With --rate 0 they ask as
fast as they are answered. Rounds of quiet and load in turns; training has one thread less than there are cores, unless --threads
says otherwise. What a score costs is the model's forward pass: --model chooses another one.
"""

import http.client
import multiprocessing
import os
import random
import time

import harness
from harness import ONE_GENERATION, Pace, median, percentile, share_of_idle

HELP = "8 scoring clients at 20 requests a second each at random times, 10 scrapes a second and a dashboard"
SECONDS, SECONDS_QUICK = 100, 9
ROUNDS, ROUNDS_QUICK = 3, 1
CLIENTS = 8
RATE = 20
SCRAPES = 10
TEXT_BYTES = 1024
TEXTS = 512  # of a client


def add_arguments(parser):
    parser.add_argument("--clients", type=int, default=CLIENTS, metavar="N", help=f"how many score ({CLIENTS})")
    parser.add_argument("--rate", type=float, default=RATE, metavar="R", help=f"requests a second of a client ({RATE})")


# ---- clients, each a process -------------------------------------------------------------------------


def on_clock(rate, stop, act, seed=None):
    """Call act `rate` times a second, with a seed at random; latencies count from when it should have begun. By code:
    how often."""
    draw = random.Random(seed)

    def pause():
        return 1 / rate if seed is None else draw.expovariate(rate)

    latencies, codes, due = [], {}, time.monotonic()
    if rate and seed is not None:
        due += pause()
    while not stop.is_set():
        now = time.monotonic()
        if rate and now < due:
            stop.wait(due - now)
            continue
        code = act()
        done = time.monotonic()
        codes[code] = codes.get(code, 0) + 1
        if code == 200:
            latencies.append(done - (due if rate else now))
        due = due + pause() if rate else done
    return latencies, codes


def ask(connection, method, path, body=None):
    """Code of the answer; a connection that was closed is opened anew for the next."""
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0


def score(address, seed, rate, stop, out):
    text = harness.make_text(TEXT_BYTES * TEXTS, seed)
    connection = http.client.HTTPConnection(*address, timeout=60)
    at = 0

    def act():
        nonlocal at
        at = (at + TEXT_BYTES) % len(text)
        return ask(connection, "POST", "/v1/score", text[at : at + TEXT_BYTES])

    out.put(("score", *on_clock(rate, stop, act, seed)))


def scrape(address, stop, out):
    connection = http.client.HTTPConnection(*address, timeout=60)
    out.put(("scrape", *on_clock(SCRAPES, stop, lambda: ask(connection, "GET", "/metrics"))))


def watch(address, stop, out):
    """A dashboard: reads events as they come, or, of a daemon that has none, asks for what it shows once a second."""
    connection = http.client.HTTPConnection(*address, timeout=2)
    connection.request("GET", "/v1/events", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    if answer.status != 200:
        answer.read()
        out.put(("watch", *on_clock(1, stop, lambda: ask(connection, "GET", "/v1/series"))))
        return
    arrivals = []
    while not stop.is_set():
        try:
            line = answer.fp.readline()
        except OSError:  # nothing for two seconds
            continue
        if not line:
            break
        if line.startswith(b"data:"):
            arrivals.append(time.monotonic())
    out.put(("events", arrivals, {200: len(arrivals)}))


class Clients:
    def __init__(self, address, count, rate, seed):
        context = multiprocessing.get_context("fork")
        self.stop, self.out = context.Event(), context.Queue()
        clock = self.stop, self.out
        calls = [(score, address, 1000 * seed + i, rate, *clock) for i in range(count)]
        calls += [(scrape, address, *clock), (watch, address, *clock)]
        self.processes = [context.Process(target=call[0], args=call[1:], daemon=True) for call in calls]
        for process in self.processes:
            process.start()

    def result(self):
        """By kind: latencies and counts by code."""
        self.stop.set()
        found = {}
        for _ in self.processes:
            kind, latencies, codes = self.out.get(timeout=120)
            kept = found.setdefault(kind, ([], {}))
            kept[0].extend(latencies)
            for code, count in codes.items():
                kept[1][code] = kept[1].get(code, 0) + count
        for process in self.processes:
            process.join()
        return found


# ---- the campaign ------------------------------------------------------------------------------------


def merge(total, found):
    for kind, (latencies, codes) in found.items():
        kept = total.setdefault(kind, ([], {}))
        kept[0].extend(latencies)
        for code, count in codes.items():
            kept[1][code] = kept[1].get(code, 0) + count


def milliseconds(latencies, share):
    value = percentile(latencies, share)
    return None if value is None else 1e3 * value


def run(w, given):
    seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    rounds = ROUNDS_QUICK if given.quick else ROUNDS
    threads = given.threads or max(1, (os.cpu_count() or 2) - 1)
    each = seconds / (2 * rounds + 2)
    text = w.directory / "text"
    harness.write_repeated(text, 256 << 20, 1)  # more than a context memory alone learns meanwhile
    pool = w.make_pool(given.model or harness.SMALL + ONE_GENERATION)
    daemon = w.start(pool, "--source", text, "--http", "0", "--stay", "--quiet", "--threads", threads)
    address = daemon.address()
    pace, total, quiet, loud, spent = Pace(daemon), {}, [], [], 0
    harness.wait_telling("warming up", each)
    # The first score opens the model, which can take a second.
    first = http.client.HTTPConnection(*address, timeout=60)
    if ask(first, "POST", "/v1/score", harness.make_text(TEXT_BYTES, 0)) != 200:
        raise harness.Problem("the first score failed")
    first.close()
    pace.settle()
    harness.wait_telling("quiet", each)
    quiet.append(pace.rate())
    for i in range(rounds):
        clients = Clients(address, given.clients, given.rate, i)
        pace.again()
        began = time.monotonic()
        harness.wait_telling("serving", each)
        loud.append(pace.rate())
        spent += time.monotonic() - began
        merge(total, clients.result())
        pace.again()
        harness.wait_telling("quiet", each)
        quiet.append(pace.rate())
    daemon.stop()
    latencies, codes = total["score"]
    events = "events" in total
    document = {
        "clients": given.clients,
        "requests_per_s_wanted": given.clients * given.rate or None,
        "requests_per_s": len(latencies) / spent,
        "refused": codes.get(429, 0),
        "failed": sum(count for code, count in codes.items() if code not in (200, 429)),
        "text_bytes": TEXT_BYTES,
        "threads": threads,
        "rounds": rounds,
        "score_p50_ms": milliseconds(latencies, 0.5),
        "score_p99_ms": milliseconds(latencies, 0.99),
        "scrape_p99_ms": milliseconds(total["scrape"][0], 0.99),
        "scrapes_failed": sum(count for code, count in total["scrape"][1].items() if code != 200),
        "dashboard": "events" if events else "asks for the series: this daemon has no /v1/events",
        "events": len(total["events"][0]) if events else None,
        "training_bytes_per_s": median(rate[0] for rate in quiet),
        "training_share": share_of_idle(quiet, loud, 0),
        "training_share_on_core": share_of_idle(quiet, loud, 1),
    }
    goals = [
        ("failed", "at most", 0, True),
        ("scrapes_failed", "at most", 0, True),
        ("refused", "at most", 0, False),
        ("score_p99_ms", "at most", 150, False),
        ("training_share", "at least", 0.9, False),
    ]
    return document, goals
