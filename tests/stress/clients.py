"""Hostile clients on the port and on the control socket: /livez stays quick, all are closed, memory and training hold.

Rounds of quiet and storm in turns, because the machine may have other work: training is compared with the quiet
before and after. Training has one thread less than there are cores, unless --threads says otherwise: the clients
run on the same machine, and what they take of it is not the daemon's doing.
"""

import os
import socket
import threading
import time

import hostile_clients
import harness
from harness import ONE_GENERATION, Pace, get, median, percentile, share_of_idle

HELP = "200 hostile clients at once on the port and as many on the control socket"
COUNT, COUNT_QUICK = 200, 100
SECONDS, SECONDS_QUICK = 60, 6
ROUNDS, ROUNDS_QUICK = 3, 1
PROBE_SECONDS = 0.05
CLOSED_SECONDS_MAX = 120  # waits so long for clients that nobody closes
MEMORY_MAX = 64 << 20


class Probe(threading.Thread):
    """Asks /livez again and again, each time on a new connection, as an orchestrator does."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.over = address, False
        self.latencies, self.failures = [], 0

    def run(self):
        while not self.over:
            began = time.monotonic()
            try:
                code, _ = get(self.address, "/livez")
                self.failures += code != 200
            except (OSError, socket.timeout):
                self.failures += 1
            self.latencies.append(time.monotonic() - began)
            time.sleep(PROBE_SECONDS)

    def stop(self):
        self.over = True
        self.join()


def await_descriptors(daemon, before):
    """Seconds until every connection is closed on the daemon's side, too."""
    began = time.monotonic()
    while daemon.connections() > before:
        if time.monotonic() - began > CLOSED_SECONDS_MAX:
            raise harness.Problem(f"{daemon.connections() - before} connections were never closed")
        time.sleep(0.05)
    return time.monotonic() - began


def storm(daemon, pace, count, seconds, memory):
    """One round under load: rate of training, latencies, and what the clients saw."""
    before = daemon.connections()
    address = daemon.address()
    pace.again()
    clients = hostile_clients.Process(address, daemon.path, count, seconds)
    probe = Probe(address)
    probe.start()
    end = time.monotonic() + seconds
    progress = harness.Progress("storm", seconds, "s")
    while (left := end - time.monotonic()) > 0:
        progress.at(seconds - left, f", {daemon.descriptors()} descriptors")
        memory.append(daemon.private_bytes())
        daemon.status()  # or its connection, the only one that is sure to get in, would be let go for silence
        time.sleep(min(left, 0.25))
    progress.end()
    rate = pace.rate()
    probe.stop()
    drained = await_descriptors(daemon, before)
    seen = clients.release()
    memory.append(daemon.private_bytes())
    return rate, probe, drained, seen


def run(w, given):
    count = given.count or (COUNT_QUICK if given.quick else COUNT)
    seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    rounds = ROUNDS_QUICK if given.quick else ROUNDS
    threads = given.threads or max(1, (os.cpu_count() or 2) - 1)
    each = seconds / (2 * rounds + 1)
    text = w.directory / "text"
    harness.write_repeated(text, 64 << 20, 1)
    pool = w.make_pool(given.model or harness.SMALL + ONE_GENERATION)
    daemon = w.start(
        pool, "--source", text, "--http", "0", "--stay", "--quiet", "--threads", threads, "--commit-seconds", 2
    )
    pace = Pace(daemon)
    harness.wait_telling("warming up", each)
    pace.settle()
    quiet, loud, memory, latencies, failures, drained, lives, connections = [], [], [], [], 0, 0.0, {}, 0
    descriptors = daemon.descriptors()
    harness.wait_telling("quiet", each)
    quiet.append(pace.rate())
    calm = daemon.private_bytes()
    for _ in range(rounds):
        rate, probe, closed, seen = storm(daemon, pace, count, each, memory)
        loud.append(rate)
        latencies += probe.latencies
        failures += probe.failures
        drained = max(drained, closed)
        connections += seen["connections"]
        for kind, life in seen["lives"].items():
            lives[kind] = max(lives.get(kind, 0), life)
        pace.again()
        harness.wait_telling("quiet", each)
        quiet.append(pace.rate())
    left_open = daemon.descriptors() - descriptors
    daemon.stop()
    slowest = max(lives, key=lives.get)
    document = {
        "clients": 2 * count,
        "connections": connections,
        "rounds": rounds,
        "threads": threads,
        "livez_asked": len(latencies),
        "livez_failed": failures,
        "livez_p50_ms": 1e3 * median(latencies),
        "livez_p99_ms": 1e3 * percentile(latencies, 0.99),
        "closed_within_s": max(drained, lives[slowest]),
        "slowest_kind": slowest,
        "lives_s": {kind: round(life, 2) for kind, life in sorted(lives.items())},
        "rss_growth_bytes": max(memory) - calm,
        "descriptors_left": left_open,
        "training_bytes_per_s": median(rate[0] for rate in quiet),
        "training_loss_share": 1 - share_of_idle(quiet, loud, 0),
        "training_loss_share_on_core": 1 - share_of_idle(quiet, loud, 1),
    }
    goals = [
        ("livez_failed", "at most", 0, True),
        ("descriptors_left", "at most", 0, True),
        ("livez_p99_ms", "at most", 100, False),
        ("closed_within_s", "at most", 15, False),
        ("rss_growth_bytes", "under", MEMORY_MAX, False),
        ("training_loss_share", "under", 0.05, False),
    ]
    return document, goals
