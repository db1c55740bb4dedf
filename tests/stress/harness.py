"""What every campaign needs: a directory, pools, the real reefd with socket and HTTP, figures of its process."""

import http.client
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
AWAIT_SECONDS_MAX = 120  # a sanitized build on a busy machine takes its time to start and to end
ANSWER_SECONDS_MAX = 600  # an answer may wait for a commit

# A model that takes a training step in milliseconds: what is tried here is the daemon around it.
TINY = (
    "--layers 1 --d-model 16 --attention-heads 2 --context 16 --batch 2 --heads 2 --topk 2 "
    "--d-key 8 --side 4 --memory 0"
).split()
SMALL = (
    "--layers 2 --d-model 32 --attention-heads 2 --heads 2 --topk 8 --d-key 32 --side 32 "
    "--memory 0"
).split()
ONE_GENERATION = ["--boundaries", "given"]  # no seal in the middle of a comparison


class Problem(Exception):
    """Something that ends the campaign, said in one line."""


# ---- telling -----------------------------------------------------------------------------------------


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class Progress:
    """A line that is rewritten, on a terminal: how far, at what rate, how long still. Elsewhere one in `every` seconds.

    An earlier run had come to `first`.
    """

    def __init__(self, what, total, unit, first=0, every=None):
        self.what, self.total, self.unit, self.first = what, total, unit, first
        self.began = time.monotonic()
        self.shown = sys.stderr.isatty()
        self.every = 0.2 if self.shown else every
        self.told = 0 if self.shown else self.began

    def at(self, done, note=""):
        now = time.monotonic()
        if self.every is None or now - self.told < self.every:
            return
        self.told = now
        passed = max(now - self.began, 1e-9)
        rate = (done - self.first) / passed
        left = duration((self.total - done) / rate) if rate > 0 else "?"
        of = f"{done:.0f} of {self.total:.0f} {self.unit}"
        pace = "" if self.unit == "s" else f", {rate:.{1 if rate >= 1 else 3}f}/s"
        line = f"{self.what}: {of}{pace}, {left} left{note}"
        sys.stderr.write(f"\r\x1b[K{line}" if self.shown else line + "\n")
        sys.stderr.flush()

    def end(self):
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def wait_telling(what, seconds):
    """Sleep, with progress."""
    progress = Progress(what, seconds, "s")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        progress.at(seconds - left)
        time.sleep(min(left, 0.25))
    progress.end()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return None
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# ---- texts -------------------------------------------------------------------------------------------

SYLLABLES = ["ka", "lo", "mi", "ren", "tu", "sa", "vel", "o", "shi", "an"]


def make_text(size, seed):
    """Words that a model can learn something of, in lines."""
    draw = random.Random(seed)
    words = ["".join(draw.choice(SYLLABLES) for _ in range(draw.randint(1, 3))) for _ in range(997)]
    pieces, length = [], 0
    while length < size:
        piece = draw.choice(words) + (" " if draw.random() < 0.875 else ".\n")
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces).encode()[:size]


def write_repeated(path, size, seed):
    """A file of any size in little time: a megabyte of words again and again."""
    block = make_text(1 << 20, seed)
    with open(path, "wb") as file:
        for at in range(0, size, len(block)):
            file.write(block[: min(len(block), size - at)])


# ---- programs ----------------------------------------------------------------------------------------


def find_program(name, room, given):
    built = sorted(ROOT.glob(f"build/*/{room}/{name}"), key=lambda path: path.stat().st_mtime)
    path = given or (str(built[-1]) if built else shutil.which(name))
    if not path or not os.access(path, os.X_OK):
        raise Problem(f"there is no program {path or name}: build it, or give --{name} PATH")
    return str(pathlib.Path(path).resolve())


class World:
    """A directory and the programs under test. What was started ends with it, and the directory unless it was given."""

    def __init__(self, given):
        self.reefd = find_program("reefd", "daemon", given.reefd)
        self.reef = find_program("reef", "tools", given.reef)
        self.keeps = bool(getattr(given, "directory", None))
        self.directory = pathlib.Path(given.directory if self.keeps else tempfile.mkdtemp(prefix="reef-campaign-"))
        self.directory = self.directory.resolve()
        self.before = []  # in front of every command line
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token_file = self.directory / "campaign-token"
        if any(self.directory.iterdir()) and not self.token_file.exists():
            raise Problem(f"{self.directory} is not empty, and no campaign made it: choose another --directory")
        self.daemons = []
        self.token = secrets.token_hex(16)  # who sends it may push
        self.token_file.touch(0o600)
        self.token_file.write_text(self.token + "\n")
        self.words = self.say("--help") + self.say("--pool", self.directory / "none", "--source", "unknown:kind")

    def __enter__(self):
        return self

    def __exit__(self, *why):
        for daemon in self.daemons:
            daemon.kill()
        if not self.keeps:
            shutil.rmtree(self.directory, ignore_errors=True)

    def say(self, *words):
        command = [self.reefd, *map(str, words)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def knows(self, word):
        """Does this reefd have an option, or, by what it says of an unknown one, a kind of source?"""
        return word in self.words

    def tool(self, *words):
        command = [*self.before, self.reef, *map(str, words), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Problem(f"{' '.join(command)}\n  ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def push_headers(self, batch):
        return {"Authorization": f"Bearer {self.token}", "Reef-Batch-Id": batch, "Content-Type": "text/plain"}

    def make_pool(self, options, name="pool"):
        pool = self.directory / name
        shutil.rmtree(pool, ignore_errors=True)
        self.tool("init", pool, *options)
        return pool

    def start(self, pool, *words, stdin=subprocess.DEVNULL, await_socket=True):
        if "--http" in words:
            words += ("--http-token", self.token_file)
        daemon = Daemon(self, pool, words, stdin)
        self.daemons = [other for other in self.daemons if other.process.poll() is None] + [daemon]
        if await_socket:
            daemon.await_socket()
        return daemon


class Control(http.client.HTTPConnection):
    """One connection to the control socket."""

    def __init__(self, path, seconds=ANSWER_SECONDS_MAX):
        super().__init__("localhost", timeout=seconds)
        self.path = str(path)
        self.connect()

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.path)
        except OSError:
            self.sock.close()
            raise

    def post(self, what, route, body, **headers):
        try:
            self.request("POST", route, body, headers)
            answer = self.getresponse()
            document = json.loads(answer.read())
        except http.client.HTTPException as error:
            raise ConnectionError("the daemon closed the connection") from error
        if answer.status != 200:
            raise Problem(f"{what}: {document['error']['message']}")
        return document

    def ask(self, command, **arguments):
        return self.post(command, "/v1/command", json.dumps({"command": command, **arguments}))

    def push(self, source, batch, body):
        return self.post("push", f"/v1/ingest/{source}", body, **{"Reef-Batch-Id": batch})


class Daemon:
    def __init__(self, world, pool, words, stdin):
        self.pool, self.control = pool, None
        self.path = pathlib.Path(pool) / "reefd.sock"
        self.messages = world.directory / "messages"
        with open(self.messages, "ab") as messages:
            command = [*world.before, world.reefd, "--pool", str(pool), *map(str, words)]
            self.process = subprocess.Popen(command, stdin=stdin, stdout=messages, stderr=messages)
        self.pid = self.process.pid
        self.proc = pathlib.Path("/proc") / str(self.pid)

    def said(self):
        return self.messages.read_text(errors="replace").strip()[-2000:]

    def await_socket(self, step=0.01):
        deadline = time.monotonic() + AWAIT_SECONDS_MAX
        while self.control is None:
            try:
                self.control = Control(self.path)
            except OSError:  # not there yet, or left by one that was killed
                if self.process.poll() is not None:
                    raise Problem(f"reefd ended with {self.process.returncode}: {self.said()}") from None
                if time.monotonic() > deadline:
                    raise Problem(f"reefd opened no socket within {AWAIT_SECONDS_MAX} s: {self.said()}") from None
                time.sleep(step)

    def ask(self, command, **arguments):
        """On the connection that is kept, or a new one where it was silent for too long."""
        try:
            return self.control.ask(command, **arguments)
        except OSError:
            self.control.close()
            self.control = None
            self.await_socket()
            return self.control.ask(command, **arguments)

    def status(self):
        return self.ask("status")

    def address(self):
        """Host and port of HTTP."""
        host, _, port = self.status()["http"].removeprefix("http://").rpartition(":")
        return host, int(port)

    def kill(self):
        """False when it had ended by itself."""
        if self.control:
            self.control.close()
            self.control = None
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def stop(self, number=signal.SIGTERM):
        """Told to end, it ends with 0."""
        if self.control:
            self.control.close()
            self.control = None
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=ANSWER_SECONDS_MAX)
        if code:
            raise Problem(f"reefd ended with {code}: {self.said()}")
        return code

    # ---- what the kernel says of it

    def rss_bytes(self):
        return int((self.proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def private_bytes(self):
        """Memory of its own: without the pages of the pool's file, which are the system's to take back."""
        fields = dict(line.split(":") for line in (self.proc / "status").read_text().splitlines())
        return int(fields["RssAnon"].split()[0]) * 1024

    def connections(self):
        """Descriptors that are sockets; the ones that it listens on are among them."""
        return sum(where.startswith("socket:") for where in self.links())

    def links(self):
        for entry in os.scandir(self.proc / "fd"):
            try:
                yield os.readlink(entry.path)
            except FileNotFoundError:  # closed meanwhile
                pass

    def schedule(self):
        """By thread: seconds that it ran, and that it was ready but waited for a core."""
        threads = {}
        for task in (self.proc / "task").iterdir():
            try:
                ran, waited, _ = map(int, (task / "schedstat").read_text().split())
            except OSError:  # ended meanwhile
                continue
            threads[int(task.name)] = ran / 1e9, waited / 1e9
        return threads

    def descriptors(self):
        return len(os.listdir(self.proc / "fd"))


def get(address, path, seconds=30):
    """Status and body of one request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


# ---- training, measured ------------------------------------------------------------------------------


class Pace:
    """Bytes trained a second between two looks: of the clock, and of the time that the trainer did not wait for a core.

    The second is what tells a daemon that is held up from a machine that has other things to do.
    """

    def __init__(self, daemon):
        self.daemon = daemon
        self.trainer = None
        self.again()

    def look(self):
        """Time, bytes, seconds that the trainer waited for a core."""
        waited = self.daemon.schedule().get(self.trainer, (0, 0))[1]
        return time.monotonic(), self.daemon.status()["stream_bytes"], waited

    def again(self):
        self.before = self.look()

    def settle(self):
        """The trainer is the thread that has worked most; and from here on it is measured."""
        threads = self.daemon.schedule()
        self.trainer = max(threads, key=lambda thread: threads[thread][0])
        self.again()

    def rate(self):
        before, self.before = self.before, self.look()
        seconds, trained, waited = (now - then for now, then in zip(self.before, before))
        return trained / seconds, trained / max(seconds - waited, 1e-9)


def share_of_idle(idle, loaded, which):
    """Median over the rounds of the rate under load by the mean of the idle rates around it."""
    rounds = [load[which] / ((idle[i][which] + idle[i + 1][which]) / 2) for i, load in enumerate(loaded)]
    return median(rounds)
