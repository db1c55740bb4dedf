#!/usr/bin/env python3
"""Logs as four programs write them, for tests/scripts/logs/run: a directory to train on, and what comes after it.

usage: make.py OUT LINES LATER SEED

OUT/log/NAME.log   LINES lines of each program, nothing unusual in them
OUT/later/NAME.log LATER more lines of each, of which one in 100 is unusual
OUT/truth.json     {NAME: {text of a line: kind}} of the unusual ones

What varies as it does in real logs: times, addresses, hexadecimal ids, durations, users, rare but usual messages.
What is unusual is of many kinds, from a stack trace to a known message with a value or a user that never was. Some
of them differ from a usual line in three bytes.
"""
import json
import os
import random
import sys
import time

SHARE = 1.0 / 100  # of what comes later is unusual


class Clock:
    def __init__(self, draw):
        self.draw = draw
        self.now = 1_700_000_000.0

    def tick(self):
        self.now += self.draw.expovariate(1.0)
        return time.gmtime(self.now), int(self.now * 1000) % 1000


def address(draw):
    return f"10.{draw.randrange(4)}.{draw.randrange(256)}.{draw.randrange(1, 255)}"


def hexadecimal(draw, digits):
    return "".join(draw.choice("0123456789abcdef") for _ in range(digits))


def duration(draw):
    return int(draw.lognormvariate(3.5, 0.8)) + 1


USERS = ["anna", "boris", "chen", "dana", "emil", "farid", "greta"]
PAGES = ["/", "/login", "/cart", "/cart/add", "/search?q=lamp", "/search?q=chair", "/static/site.css",
         "/static/site.js", "/api/v1/items", "/api/v1/orders", "/img/logo.png", "/help"]
AGENTS = ["Mozilla/5.0 (X11; Linux x86_64) Firefox/118.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 16_5)",
          "curl/7.88.1", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/117.0"]


class Web:
    """Access log of a web server."""
    name = "web"

    def stamp(self, clock):
        return time.strftime("[%d/%b/%Y:%H:%M:%S +0000]", clock.tick()[0])

    def put(self, draw, clock, method, page, code, size, agent):
        return f'{address(draw)} - - {self.stamp(clock)} "{method} {page} HTTP/1.1" {code} {size} "{agent}"'

    def usual(self, draw, clock):
        page = draw.choice(PAGES)
        if page.startswith("/api") and draw.random() < 0.7:
            page += f"/{draw.randrange(1, 100000)}"
        method = "POST" if page == "/cart/add" else "GET"
        code = draw.choices([200, 304, 302, 404, 500], [80, 12, 5, 2.5, 0.5])[0]
        size = 0 if code == 304 else draw.randrange(200, 60000)
        return self.put(draw, clock, method, page, code, size, draw.choice(AGENTS))

    def unusual(self, draw, clock):
        return {
            "attack": lambda: self.put(draw, clock, "GET", draw.choice(
                ["/../../../../etc/passwd", "/index.php?id=1%27%20OR%201=1--", "/wp-admin/setup.php",
                 "/cgi-bin/.%2e/%2e%2e/bin/sh"]), 404, 196, draw.choice(AGENTS)),
            "agent": lambda: self.put(draw, clock, "GET", "/", 200, 5120, draw.choice(
                ["sqlmap/1.7.2#stable (https://sqlmap.org)", "masscan/1.3", "() { :; }; /bin/ping -c 3"])),
            "method": lambda: self.put(draw, clock, draw.choice(["TRACE", "PROPFIND", "CONNECT"]),
                                       draw.choice(PAGES), 405, 157, draw.choice(AGENTS)),
            "code": lambda: self.put(draw, clock, "GET", draw.choice(PAGES), draw.choice([418, 503, 507]),
                                     draw.randrange(200, 60000), draw.choice(AGENTS)),
        }


class Shop:
    """An application that writes levels, modules and key=value."""
    name = "shop"

    def put(self, draw, clock, level, module, text):
        at, milli = clock.tick()
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', at)}.{milli:03d}Z {level:<5} {module} [{hexadecimal(draw, 8)}] {text}"

    def usual(self, draw, clock):
        user = draw.choice(USERS)
        order = draw.randrange(100000, 999999)
        level, module, text = draw.choices([
            ("INFO", "orders", f"order {order} created user={user} items={draw.randrange(1, 9)} total={draw.randrange(5, 400)}.{draw.randrange(100):02d}"),
            ("INFO", "payment", f"charged order {order} in {duration(draw)} ms"),
            ("INFO", "stock", f"reserved {draw.randrange(1, 9)} of item {draw.randrange(1000, 9999)} in warehouse {draw.choice('ABC')}"),
            ("DEBUG", "cache", f"hit ratio {draw.uniform(0.85, 0.99):.3f}, {draw.randrange(1000, 3000)} entries"),
            ("INFO", "session", f"user {user} signed in from {address(draw)}"),
            ("WARN", "payment", f"slow answer of the bank: {duration(draw) * 20} ms, order {order}"),
            ("ERROR", "mail", f"cannot send receipt of order {order}: connection refused, will retry in 60 s"),
        ], [30, 25, 20, 10, 10, 4, 1])[0]
        return self.put(draw, clock, level, module, text)

    def unusual(self, draw, clock):
        return {
            "trace": lambda: draw.choice([
                "    at com.example.shop.OrderService.lambda$create$3(OrderService.java:214)",
                "java.lang.NullPointerException: Cannot invoke \"Cart.size()\" because \"cart\" is null",
                "Caused by: org.postgresql.util.PSQLException: FATAL: too many connections"]),
            "message": lambda: self.put(draw, clock, "ERROR", draw.choice(["orders", "stock"]), draw.choice([
                "deadlock detected while waiting for lock on table items", "database is in recovery mode",
                "checksum of the ledger does not match, refusing to write"])),
            "value": lambda: self.put(draw, clock, "INFO", "payment",
                                      f"charged order -{draw.randrange(1, 9)} in -2147483648 ms"),
            "user": lambda: self.put(draw, clock, "INFO", "session", "user mallory signed in from 203.0.113.9"),
            "slow": lambda: self.put(draw, clock, "INFO", "payment",
                                     f"charged order {draw.randrange(100000, 999999)} in {draw.randrange(10**6, 10**8)} ms"),
            "module": lambda: self.put(draw, clock, "INFO", "debugshell", f"opened by {draw.choice(USERS)}"),
        }


class Auth:
    """syslog of logins and jobs."""
    name = "auth"

    def put(self, draw, clock, program, text):
        at, _ = clock.tick()
        return f"{time.strftime('%b %d %H:%M:%S', at)} host3 {program}[{draw.randrange(300, 32768)}]: {text}"

    def usual(self, draw, clock):
        user = draw.choice(USERS)
        port = draw.randrange(32768, 61000)
        program, text = draw.choices([
            ("sshd", f"Accepted publickey for {user} from {address(draw)} port {port} ssh2"),
            ("sshd", f"Disconnected from user {user} {address(draw)} port {port}"),
            ("sshd", f"pam_unix(sshd:session): session opened for user {user}(uid={1000 + USERS.index(user)}) by (uid=0)"),
            ("CRON", "pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)"),
            ("CRON", "(root) CMD (   cd / && run-parts --report /etc/cron.hourly)"),
            ("sshd", f"Failed password for {user} from {address(draw)} port {port} ssh2"),
            ("systemd-logind", f"New session {draw.randrange(1, 9999)} of user {user}."),
        ], [25, 22, 20, 12, 8, 3, 10])[0]
        return self.put(draw, clock, program, text)

    def unusual(self, draw, clock):
        return {
            "message": lambda: self.put(draw, clock, "sshd", draw.choice([
                "error: kex_exchange_identification: banner line contains invalid characters",
                "fatal: Timeout before authentication for 203.0.113.77 port 4444",
                "Invalid user oracle from 198.51.100.23 port 51022"])),
            "program": lambda: self.put(draw, clock, draw.choice(["xmrig", "nc", "useradd"]), draw.choice([
                "new user: name=backdoor, UID=0, GID=0", "listening on [any] 31337 ...", "speed 10s/60s 812.4 H/s"])),
            "root": lambda: self.put(draw, clock, "sshd", "Accepted password for root from 203.0.113.5 port 4242 ssh2"),
            "foreign": lambda: f"Traceback (most recent call last): File \"/opt/agent/{draw.choice(['run', 'poll'])}.py\", line {draw.randrange(9, 400)}",
        }


class Machine:
    """A machine's sensors, as JSON."""
    name = "sensor"

    def put(self, draw, clock, **more):
        at, milli = clock.tick()
        line = {"ts": f"{time.strftime('%Y-%m-%dT%H:%M:%S', at)}.{milli:03d}", "id": hexadecimal(draw, 6)}
        line.update(more)
        return json.dumps(line)

    def usual(self, draw, clock):
        kind = draw.choices(["temp", "flow", "door", "self-test"], [50, 40, 8, 2])[0]
        unit = draw.randrange(1, 13)
        if kind == "temp":
            return self.put(draw, clock, unit=unit, kind=kind, value=round(draw.gauss(61, 4), 1), unit_of="C")
        if kind == "flow":
            return self.put(draw, clock, unit=unit, kind=kind, value=round(draw.gauss(12, 1.5), 2), unit_of="l/s")
        if kind == "door":
            return self.put(draw, clock, unit=unit, kind=kind, state=draw.choice(["open", "closed"]))
        return self.put(draw, clock, unit=unit, kind=kind, state="passed")

    def unusual(self, draw, clock):
        return {
            "value": lambda: self.put(draw, clock, unit=draw.randrange(1, 13), kind="temp",
                                      value=draw.choice([-273.1, 1.7e308, 99999.9]), unit_of="C"),
            "state": lambda: self.put(draw, clock, unit=draw.randrange(1, 13), kind="self-test",
                                      state=draw.choice(["overcurrent on phase 2", "rotor blocked"])),
            "garbage": lambda: "".join(chr(draw.randrange(33, 127)) for _ in range(draw.randrange(20, 70))),
            "cut": lambda: self.put(draw, clock, unit=1, kind="temp")[:draw.randrange(8, 30)] + "\\x00" * 6,
        }


def main():
    out, lines, later, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    truth = {}
    for folder in ("log", "later"):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
    for number, program in enumerate((Web(), Shop(), Auth(), Machine())):
        draw = random.Random(seed * 100 + number)
        clock = Clock(draw)
        with open(os.path.join(out, "log", program.name + ".log"), "w", encoding="utf-8") as file:
            for _ in range(lines):
                print(program.usual(draw, clock), file=file)
        unusual = program.unusual(draw, clock)
        where = draw.sample(range(later), round(later * SHARE))
        kinds = draw.sample(sorted(unusual), len(unusual))
        marks = {at: kinds[i % len(kinds)] for i, at in enumerate(where)}
        truth[program.name] = {}
        with open(os.path.join(out, "later", program.name + ".log"), "w", encoding="utf-8") as file:
            for at in range(later):
                line = program.usual(draw, clock)
                if at in marks:
                    line = unusual[marks[at]]()
                    truth[program.name][line] = marks[at]
                print(line, file=file)
    with open(os.path.join(out, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(truth, file, indent=1)


if __name__ == "__main__":
    main()
