"""Alarms of reefd and `reef watch`; see run."""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from receiver import Receiver

REEF, REEFD = sys.argv[1:3]
DEADLINE_S = 120
STARTED = []  # processes; none outlives the test
ALERTMANAGER = """
route: {receiver: hook, group_by: [incident], group_wait: 1s, group_interval: 1s, repeat_interval: 4h}
receivers: [{name: hook, webhook_configs: [{url: "%s", send_resolved: true}]}]
"""


def until(what, found, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def start(argv, **options):
    process = subprocess.Popen(argv, **options)
    STARTED.append(process)
    return process


def end(process, number=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(number)
    return process.wait(DEADLINE_S)


def processes(*words):
    """Numbers of the processes whose command line has these words in this order."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                line = file.read().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue  # it has ended
        if any(tuple(line[i:i + len(words)]) == words for i in range(len(line))):
            found.append(int(number))
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Log:
    """A log of a service whose lines are usual, but for faults; its time is its own."""

    def __init__(self, path, hours_ago=0):
        self.path = path
        self.random = random.Random(path.name if hasattr(path, "name") else path)
        self.seconds = time.time() - 7200 - 3600 * hours_ago
        open(path, "w").close()

    def write(self, text, step=1.2):
        self.seconds += step
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.seconds))
        with open(self.path, "a") as file:
            file.write(f"{stamp} {text}\n")

    def usual(self, count, step=1.2):
        for _ in range(count):
            self.write(f"INFO request {self.random.randrange(10**5, 10**6)} of /items answered", step)

    def fault(self, number=1):
        """Words that no other number has."""
        word = "".join(chr(ord("a") + int(d)) for d in str(number)) * 2
        self.write(f"FATAL {word} volume of store{word} lost its {word}disk, giving up {word}")

    def pass_by(self):
        """So long that what rang has ended."""
        self.usual(300)


class World:
    def __init__(self, name, *init):
        self.directory = tempfile.mkdtemp(prefix=f"reef-alarms-{name}-")
        self.pool = f"{self.directory}/pool"
        self.log = Log(f"{self.directory}/app.log")
        self.log.usual(4000)
        subprocess.run([REEF, "init", self.pool, "--watch", "true", "--net-share", "0", "--memory", "16M", *init],
                       check=True, stdout=subprocess.DEVNULL)
        self.said = f"{self.directory}/said"

    def daemon(self, *options, source=None):
        with open(self.said, "a") as said:
            daemon = start([REEFD, "--pool", self.pool, "--source", source or f"follow:{self.log.path}", "--quiet",
                            "--commit-seconds", "1", *options], stderr=said)
        until("it answers", lambda: (self.status() or {}).get("daemon") or daemon.poll() is not None)
        return daemon

    def status(self):
        done = subprocess.run([REEF, "status", self.pool, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def alarms(self, way):
        """Of the daemon that runs; empty while none answers."""
        return ((self.status() or {}).get("alarms") or {}).get(way, {})

    def caught_up(self):
        """All that the log has now is in a commit, but for what is less than a step."""
        size = os.path.getsize(self.log.path)
        until("the log is learned", lambda: (self.status() or {}).get("stream_bytes", 0) >= size - 8192)

    def text(self):
        with open(self.said, errors="replace") as file:
            return file.read()

    def release(self):
        shutil.rmtree(self.directory)


def begun(receiver):
    return [number for number, status in receiver.states() if status == "firing"]


def ended(receiver):
    return [number for number, status in receiver.states() if status == "resolved"]


# ---- web hooks ------------------------------------------------------------------------------------------------------

def a_receiver_hears_of_the_beginning_and_the_end_once():
    w, r = World("hook"), Receiver()
    daemon = w.daemon("--alarm-hook", r.url)
    w.log.fault()
    until("an alarm", lambda: begun(r))
    w.log.fault()  # the same: counted
    w.log.pass_by()
    until("its end", lambda: ended(r))
    status = w.alarms("hook")
    assert status["delivered"] == 2 and status["failures"] == 0 and status["error"] is None, status
    assert end(daemon) == 0
    assert len(r.taken) == 2 and r.attempts == 2, r.states()
    key, body = r.taken[0]
    alert = body["alerts"][0]
    assert body["version"] == "4" and body["status"] == "firing" and len(body["alerts"]) == 1, body
    assert alert["labels"]["alertname"] == "ReefIncident" and alert["labels"]["severity"] == "critical", alert
    assert "volume of store" in alert["annotations"]["summary"], alert
    assert alert["annotations"]["source"].endswith("app.log"), alert
    assert alert["endsAt"] == "0001-01-01T00:00:00Z", alert
    assert alert["labels"] == r.taken[1][1]["alerts"][0]["labels"], "the end is of the same alert"
    assert key != r.taken[1][0], "each change of state has its own key"
    # Nothing comes again with a restart.
    daemon = w.daemon("--alarm-hook", r.url)
    w.log.usual(100)
    w.caught_up()
    assert end(daemon) == 0 and len(r.taken) == 2, r.states()
    r.stop()
    w.release()


def what_rings_while_a_receiver_is_away_waits_for_it():
    w, port = World("away"), free_port()
    url = f"http://127.0.0.1:{port}/hook/secret"
    daemon = w.daemon("--alarm-hook", url)
    w.log.fault()
    until("a failure", lambda: w.alarms("hook").get("failures"))
    assert "cannot be reached" in w.alarms("hook")["error"]
    assert end(daemon, signal.SIGKILL) < 0
    assert "it is tried again" in w.text() and "secret" not in w.text(), w.text()
    daemon = w.daemon("--alarm-hook", url)
    until("a failure again", lambda: w.alarms("hook").get("failures"))
    assert end(daemon) == 0
    r = Receiver(port)
    daemon = w.daemon("--alarm-hook", url)
    until("the alarm", lambda: begun(r))
    assert end(daemon) == 0 and len(r.taken) == 1, r.states()
    r.stop()
    w.release()


def failures_are_tried_again_and_refusals_are_not():
    w, r = World("fails"), Receiver()
    r.answers = [500, 503, 429]
    r.body = bytes(range(256)) * 40  # binary
    daemon = w.daemon("--alarm-hook", r.url)
    w.log.fault(1)
    until("an alarm", lambda: begun(r))
    assert r.attempts == 4 and len(r.taken) == 1, (r.attempts, r.states())
    r.answers = [400]
    w.log.pass_by()
    until("a refusal", lambda: w.alarms("hook").get("refused") == 1)
    w.log.fault(2)
    until("the next alarm", lambda: len(begun(r)) == 2)
    assert ended(r) == [], "the end was refused"
    status = w.alarms("hook")
    assert status["failures"] == 4 and status["error"] is None, status
    assert end(daemon) == 0
    assert "answered 500" in w.text() and "answered 400" in w.text()
    assert all(c == "\n" or " " <= c for c in w.text()), "no control characters reach the terminal"
    r.stop()
    w.release()


def a_receiver_that_hangs_keeps_nobody():
    w, r = World("hangs"), Receiver()
    r.hang_s = 60
    daemon = w.daemon("--alarm-hook", r.url)
    w.log.fault()
    until("an attempt", lambda: r.attempts)
    w.log.usual(500)
    w.caught_up()  # learning goes on
    assert end(daemon) == 0, "and it ends"
    r.hang_s = 0
    daemon = w.daemon("--alarm-hook", r.url)
    until("the alarm", lambda: begun(r))
    assert end(daemon) == 0
    r.stop()
    w.release()


def kills_lose_nothing():
    w, r = World("kills"), Receiver()
    for k in range(10):
        daemon = w.daemon("--alarm-hook", r.url)
        w.log.fault(k)
        w.log.pass_by()
        time.sleep(0.3 + 0.2 * k)
        end(daemon, signal.SIGKILL)
    daemon = w.daemon("--alarm-hook", r.url)
    w.caught_up()
    rang = lambda: json.loads(subprocess.run([REEF, "incident", w.pool, "list", "--last", "1000", "--json"],
                                             capture_output=True, text=True).stdout)["incidents"]
    until("all alarms", lambda: len(set(begun(r))) >= len(rang()) >= 10)
    assert end(daemon) == 0
    keys = {}
    for (key, body), (number, status) in zip(r.taken, r.states()):
        keys.setdefault((number, status), set()).add(key)
    assert all(len(k) == 1 for k in keys.values()), f"told twice: {keys}"
    assert {number for number, _ in keys} == {str(i["incident"]) for i in rang()}
    assert len(r.taken) - len(keys) <= 10, "at most one a kill is repeated, with the same key"
    r.stop()
    w.release()


def history_is_not_alarmed():
    w, r = World("history"), Receiver()
    old = Log(f"{w.directory}/old.log", hours_ago=200)
    old.usual(4000)
    old.fault(3)
    old.pass_by()
    daemon = w.daemon("--alarm-hook", r.url, source=f"follow:{old.path}")
    until("it rang", lambda: w.alarms("hook").get("past"))
    old.seconds = time.time() - 60
    old.usual(10)  # a clock that jumps is believed after several lines
    old.fault(4)
    until("what is new", lambda: begun(r))
    assert end(daemon) == 0
    assert len(r.taken) == 1 and "eevolume" not in json.dumps(r.taken), r.states()
    r.stop()
    w.release()


# ---- events of HTTP -------------------------------------------------------------------------------------------------

def events_have_incidents_as_they_ring():
    w, port = World("events"), free_port()
    daemon = w.daemon("--http", f"127.0.0.1:{port}")
    w.caught_up()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/events", timeout=DEADLINE_S) as stream:
        def next_incident():
            while stream.readline() != b"event: incident\n":
                pass
            return json.loads(stream.readline().removeprefix(b"data: "))
        w.log.fault(3)
        first = next_incident()
        assert first["state"] == "open" and "dd volume" in first["title"], first
        w.log.pass_by()
        second = next_incident()
        assert second["state"] == "ended" and second["incident"] == first["incident"], second
    assert end(daemon) == 0
    w.release()


# ---- Alertmanager ---------------------------------------------------------------------------------------------------

class Alertmanager:
    def __init__(self, directory, hook):
        self.directory = directory
        self.port = free_port()
        with open(f"{directory}/alertmanager.yml", "w") as file:
            file.write(ALERTMANAGER % hook)
        self.start()

    def start(self):
        with open(f"{self.directory}/alertmanager.log", "a") as log:
            self.process = start(["prometheus-alertmanager", f"--config.file={self.directory}/alertmanager.yml",
                                  f"--storage.path={self.directory}/alertmanager", "--cluster.listen-address=",
                                  f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        until("Alertmanager answers", lambda: self.alerts() is not None)

    def alerts(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v2/alerts", timeout=10) as reply:
                return json.load(reply)
        except (OSError, http.client.HTTPException):
            return None


def alertmanager_passes_it_on():
    w, r = World("alertmanager"), Receiver()
    a = Alertmanager(w.directory, r.url)
    url = f"http://user:word@127.0.0.1:{a.port}/api/v2/alerts"
    daemon = w.daemon("--alarm-hook", url)
    w.log.fault(1)
    until("Alertmanager has it", a.alerts)
    alert = a.alerts()[0]
    assert alert["labels"]["alertname"] == "ReefIncident" and alert["status"]["state"] == "active", alert
    until("its receiver has it", lambda: begun(r))
    w.log.pass_by()
    until("its receiver has the end", lambda: ended(r))
    # Killed, it is waited for.
    end(a.process, signal.SIGKILL)
    w.log.fault(2)
    until("a failure", lambda: w.alarms("hook").get("failures"))
    a.start()
    until("the second", lambda: len(begun(r)) == 2)
    assert w.alarms("hook")["error"] is None
    assert end(daemon) == 0 and "word@" not in w.text()
    end(a.process)
    r.stop()
    w.release()


# ---- commands -------------------------------------------------------------------------------------------------------

def a_command_has_the_incident_on_its_input():
    w = World("exec")
    out = f"{w.directory}/out"
    daemon = w.daemon("--alarm-exec", f"cat >>{out}; sleep 300.5 & exit 0")  # what it leaves behind keeps nobody
    w.log.fault()
    w.log.pass_by()
    read = lambda: [json.loads(line) for line in open(out)] if os.path.exists(out) else []
    until("both", lambda: len(read()) == 2)
    first, second = read()
    assert first["state"] == "open" and second["state"] == "ended" and first["incident"] == second["incident"]
    assert first["pool"] == "pool" and first["events"][0]["severity"] == "critical", first
    assert "volume of store" in first["events"][0]["first_line"]
    assert end(daemon) == 0
    for number in processes("sleep", "300.5"):
        os.kill(number, signal.SIGKILL)
    w.release()


def a_command_that_fails_is_run_again():
    w = World("execfails")
    out = f"{w.directory}/out"
    command = (f"if [ -e {out} ]; then cat >>{out}; else printf '\\033[31m\\001no\\377\\n' >&2; touch {out}; "
               "exit 3; fi")
    daemon = w.daemon("--alarm-exec", command)
    w.log.fault()
    until("the second attempt", lambda: os.path.exists(out) and os.path.getsize(out))
    assert len(open(out).readlines()) == 1
    assert "the alarm command ended with 3" in w.text(), w.text()
    assert "\033" not in w.text() and "\001" not in w.text()
    assert end(daemon) == 0
    daemon = w.daemon("--alarm-exec", "sleep 300.25")  # hangs
    w.log.pass_by()
    w.log.fault(7)
    until("it runs", lambda: processes("sleep", "300.25"))
    assert end(daemon) == 0, "the daemon ends"
    assert not processes("sleep", "300.25"), "and the command with it"
    w.release()


# ---- bad input ------------------------------------------------------------------------------------------------------

def mistakes_are_named():
    w = World("mistakes")
    fails = lambda code, word, *argv: check_fails(code, word, [REEFD, "--pool", w.pool, "--source", w.log.path, *argv])
    fails(64, "--alarm-hook: expected http://HOST/PATH", "--alarm-hook", "ftp://user:word@host/x")
    fails(64, "--alarm-hook: expected http://HOST/PATH", "--alarm-hook", "http:///x")
    fails(64, "--alarm-hook: expected http://HOST/PATH", "--alarm-hook", "")
    with open(f"{w.pool}/alarm-hook.json", "w") as file:
        file.write('{"next": 0}')
    fails(65, "alarm-hook.json does not say which alarms were delivered", "--alarm-hook", "http://127.0.0.1:1/x")
    os.unlink(f"{w.pool}/alarm-hook.json")
    shown = subprocess.run([REEFD, "--pool", w.pool, "--source", w.log.path, "--alarm-hook",
                            "https://user:word@host:9093/secret?token=1", "--check"], capture_output=True, text=True)
    assert shown.returncode == 0 and '"https://host:9093/***"' in shown.stdout, shown
    assert "word" not in shown.stdout and "secret" not in shown.stdout
    plain = f"{w.directory}/plain"
    subprocess.run([REEF, "init", plain, "--net-share", "0"], check=True, stdout=subprocess.DEVNULL)
    check_fails(64, "watches no lines", [REEFD, "--pool", plain, "--source", w.log.path, "--alarm-exec", "cat"])
    check_fails(64, "watches no lines", [REEF, "watch", w.log.path, "--pool", plain])
    check_fails(64, "--since goes with --replay", [REEF, "watch", w.log.path, "--since", "1h"])
    check_fails(64, "above 0", [REEF, "watch", w.log.path, "--pool", w.pool, "--budget", "0"])
    check_fails(64, "--pool does not go with --replay", [REEF, "watch", "--replay", w.log.path, "--pool", "x"])
    check_fails(64, "--replay needs the paths", [REEF, "watch", "--replay"])
    check_fails(64, "--exec and --hook go with the paths", [REEF, "watch", "--exec", "cat", "--pool", w.pool])
    check_fails(64, "standard input (-) stands alone", [REEF, "watch", "-", w.log.path, "--pool", w.pool])
    check_fails(66, "no file /nowhere/x", [REEF, "watch", "/nowhere/x", "--pool", w.pool])
    check_fails(64, "is no file and no directory", [REEF, "watch", "/dev/null", "--pool", w.pool])
    check_fails(66, "", [REEF, "watch", "--pool", f"{w.directory}/none"])
    w.release()


def check_fails(code, word, argv):
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=DEADLINE_S)
    assert done.returncode == code and word in done.stderr, (argv, done.returncode, done.stderr)


# ---- reef watch -----------------------------------------------------------------------------------------------------

class Watch:
    def __init__(self, w, *argv, **options):
        self.out, self.err = f"{w.directory}/watch.out", f"{w.directory}/watch.err"
        with open(self.out, "a") as out, open(self.err, "a") as err:
            self.process = start([REEF, "watch", *argv], stdout=out, stderr=err, **options)

    def shown(self):
        with open(self.out) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]


def daemons(pool):
    return processes("--pool", pool, "--commit-seconds")


def reef_watch_follows_what_is_written():
    w = World("watch")
    shutil.rmtree(w.pool)  # it makes its own
    logs = f"{w.directory}/logs"
    os.mkdir(logs)
    first = Log(f"{logs}/first.log")
    first.usual(4000)
    shutil.copy(first.path, f"{logs}/first.log.1")  # rotated: read with it
    with open(f"{logs}/wtmp", "wb") as file:
        file.write(b"\0" * 400)  # no text
    r = Receiver()
    watch = Watch(w, logs, "--pool", w.pool, "--json", "--hook", r.url, "--budget", "9/day", "--learn-until-quiet",
                  "50m", "--forget-after", "20d")
    until("a daemon", lambda: daemons(w.pool))
    first.fault(5)
    began = time.monotonic()
    until("an incident", lambda: [i for i in watch.shown() if "ff volume" in i["title"]])
    assert time.monotonic() - began < DEADLINE_S
    until("an alarm", lambda: begun(r))
    # A new log of the directory is followed too.
    second = Log(f"{logs}/second.log")
    second.usual(4400)  # later than the gap
    second.fault(6)
    until("an incident of the new log",
          lambda: [i for i in watch.shown() if i["events"][0]["source"].endswith("second.log")])
    sources = [s["name"] for s in w.status()["sources"]]
    assert sorted(os.path.basename(s) for s in sources) == ["first.log", "second.log"], sources
    # A second one shows the same, and follows nothing itself.
    other = World("other")
    viewer = Watch(other, "--pool", w.pool, "--json")
    time.sleep(1)
    check_fails(75, "reefd ended with 75", [REEF, "watch", logs, "--pool", w.pool])
    first.seconds = second.seconds + 200
    first.fault(8)
    until("the viewer has it", viewer.shown)
    assert end(viewer.process) == 0 and daemons(w.pool)
    assert end(watch.process) == 0, "a signal ends it"
    assert not daemons(w.pool), "and the daemon with it"
    # Killed, it takes its daemon along, which commits before it ends.
    watch = Watch(w, logs, "--pool", w.pool, "--json")
    until("a daemon", lambda: daemons(w.pool))
    end(watch.process, signal.SIGKILL)
    until("no daemon", lambda: not daemons(w.pool))
    assert subprocess.run([REEF, "verify", w.pool], stdout=subprocess.DEVNULL).returncode == 0
    timeline = json.loads(subprocess.run([REEF, "timeline", w.pool, "--json"], capture_output=True).stdout)
    changes = [e for e in timeline["events"] if e["event"] == "watch_changed"]
    assert [(e["budget"], e["quiet_s"], e["forget_days"]) for e in changes] == [
        (9, 3600, 30), (9, 3000, 30), (9, 3000, 20)], timeline
    r.stop()
    other.release()
    w.release()


def reef_watch_follows_the_journal_beside_logs():
    w = World("journal")
    shutil.rmtree(w.pool)
    folder, seconds = f"{w.directory}/journal", int(time.time()) - 7200
    os.mkdir(folder)
    remote = start(["/lib/systemd/systemd-journal-remote", "-o", f"{folder}/x.journal", "-"], stdin=subprocess.PIPE,
                   stderr=subprocess.DEVNULL)

    def add(message, count=1):
        nonlocal seconds
        for _ in range(count):
            seconds += 1
            remote.stdin.write(f"__REALTIME_TIMESTAMP={seconds * 1000000}\n_BOOT_ID={'a' * 32}\n"
                               f"SYSLOG_IDENTIFIER=disks\n_PID=71\nPRIORITY=4\nMESSAGE={message}\n\n".encode())
        remote.stdin.flush()

    add("read a block of 4096 bytes in 12 ms", 4000)
    source = f"journal:dir={folder}&priority=warning"
    watch = Watch(w, source, w.log.path, "--pool", w.pool, "--json")
    until("a daemon", lambda: daemons(w.pool))
    until("all is read", lambda: w.status()["sources"][0]["cursor"] >= 4000 * 70)
    add("FATAL gg volume is gone", 3)
    shown = until("an incident", lambda: [i for i in watch.shown() if "gg volume" in i["title"]])
    assert shown[0]["events"][0]["source"] == source, shown
    assert [s["name"] for s in w.status()["sources"]] == [source, f"follow:{w.log.path}"]
    assert end(watch.process) == 0
    remote.stdin.close()
    assert remote.wait() == 0
    check_fails(64, "does not know 'unti'", [REEF, "watch", "journal:unti=x", "--pool", w.pool])
    check_fails(64, "journalctl -o short-iso", [REEF, "watch", "--replay", source])
    w.release()


def reef_watch_reads_standard_input_to_its_end():
    w = World("input")
    shutil.rmtree(w.pool)
    w.log.fault(9)
    w.log.pass_by()
    with open(w.log.path) as lines:
        done = subprocess.run([REEF, "watch", "-", "--pool", w.pool], stdin=lines, capture_output=True, text=True,
                              timeout=DEADLINE_S)
    assert done.returncode == 0 and "FATAL jj volume" in done.stdout, (done.returncode, done.stdout, done.stderr)
    assert max(len(line) for line in done.stdout.split("\n")) <= 80, done.stdout
    w.release()


def main():
    tests = [a_receiver_hears_of_the_beginning_and_the_end_once, what_rings_while_a_receiver_is_away_waits_for_it,
             failures_are_tried_again_and_refusals_are_not, a_receiver_that_hangs_keeps_nobody, kills_lose_nothing,
             history_is_not_alarmed, events_have_incidents_as_they_ring, alertmanager_passes_it_on, a_command_has_the_incident_on_its_input,
             a_command_that_fails_is_run_again, mistakes_are_named, reef_watch_follows_what_is_written,
             reef_watch_follows_the_journal_beside_logs, reef_watch_reads_standard_input_to_its_end]
    for test in tests:
        if len(sys.argv) > 3 and sys.argv[3] != test.__name__:
            continue
        began = time.monotonic()
        test()
        print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)


try:
    main()
finally:
    for process in STARTED:
        if process.poll() is None:
            process.kill()
