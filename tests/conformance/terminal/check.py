"""The tool at a pseudo-terminal; see run."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

DEADLINE_S = 90
SIZES = ("--layers 1 --d-model 16 --attention-heads 2 --context 16 --batch 2 --heads 1 --topk 2 --d-key 8 --side 4 "
         "--memory 0").split()
STARTED = []  # processes; none outlives the test
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, argv, rows=24, columns=80, **environment):
        self.master, slave = pty.openpty()
        self.shown = b""
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        variables = {**os.environ, "TERM": "xterm", **environment}
        variables.pop("COLUMNS", None)
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=variables,
                                        start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave = slave
        STARTED.append(self.process)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.shown += os.read(self.master, 65536)

    def frame(self):
        """The last screen that was drawn as a whole."""
        whole = self.shown.decode(errors="replace").split("\x1b[H")
        done = [part for part in whole[1:] if "\x1b[J" in part]
        return ESCAPES.sub("", done[-1].split("\x1b[J")[0]).split("\r\n") if done else []

    def until(self, what, found):
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if found(self):
                return
            self.read(0.2)
        raise AssertionError(f"{what}; the terminal shows: {self.frame() or self.shown[-500:]}")

    def until_shown(self, text):
        self.until(f"no '{text}'", lambda t: any(text in line for line in t.frame()))

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        code = self.process.wait(DEADLINE_S)
        self.read(0.2)
        return code


class Daemon:
    def __init__(self, reefd, folder, stream):
        self.log = open(f"{folder}/reefd.log", "a")
        self.process = subprocess.Popen([reefd, "--pool", f"{folder}/pool", "--source", f"file:{stream}", "--stay",
                                         "--quiet", "--threads", "1", "--commit-seconds", "0.5"], stderr=self.log)
        STARTED.append(self.process)

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def check_live(reef, reefd, folder, stream):
    daemon = Daemon(reefd, folder, stream)
    top = Terminal([reef, "top", f"{folder}/pool", "--interval", "0.2"])
    top.until_shown(f"reefd {daemon.pid}")
    for part in ("loss", "speed", "trained", "commit", "resident", "stream.txt", "generation", "q: quit"):
        top.until_shown(part)
    top.until("no bits per byte", lambda t: any(re.search(r"\d\.\d{3} bits per byte", line) for line in t.frame()))
    top.until("no commit since it began",
              lambda t: any(re.search(r"number [2-9].* took", line) for line in t.frame()))
    assert b"\x1b[?1049h" in top.shown and b"\x1b[1m" in top.shown

    top.resize(7, 40)
    top.until("not resized", lambda t: 0 < len(t.frame()) <= 7 and max(map(len, t.frame())) <= 40
              and t.frame()[-1].startswith("q: quit"))
    top.resize(40, 120)
    top.until("not resized again", lambda t: max(map(len, t.frame())) > 60 and len(t.frame()) > 8)

    # A terminal that takes nothing for a while: the screen that waits in a write survives signals.
    for size in range(200):
        top.resize(40, 100 + size % 20)
        time.sleep(0.01)
    top.resize(40, 120)
    top.until("not drawn again", lambda t: max(map(len, t.frame())) > 60 and len(t.frame()) > 8)

    daemon.signal(signal.SIGSTOP)
    top.until_shown("the daemon has not answered for")
    daemon.signal(signal.SIGCONT)
    top.until("the daemon answers again", lambda t: not any("not answered" in line for line in t.frame()))

    daemon.kill()
    top.until_shown("the daemon has gone; waiting")
    top.until_shown("as of its last commit")
    daemon = Daemon(reefd, folder, stream)
    top.until_shown(f"reefd {daemon.pid}")
    top.until("still in trouble", lambda t: not any("the daemon has gone" in line for line in t.frame()))

    top.type("x")
    top.until_shown("loss")
    top.type("q")
    code = top.end()
    assert code == 0, (code, top.shown[-2000:])
    assert top.shown.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), top.shown[-100:]
    assert termios.tcgetattr(top.slave) == top.before, "the terminal is not as it was"

    plain = Terminal([reef, "top", f"{folder}/pool"], NO_COLOR="1")
    plain.until_shown(f"reefd {daemon.pid}")
    plain.process.send_signal(signal.SIGINT)
    assert plain.end() == 0
    assert plain.shown.rstrip().endswith(b"\x1b[?1049l")
    assert not re.search(rb"\x1b\[[0-9;]*m", plain.shown), "colours in spite of NO_COLOR"

    once = subprocess.run([reef, "top", f"{folder}/pool", "--once"], capture_output=True, text=True)
    assert once.returncode == 0 and f"reefd {daemon.pid}" in once.stdout and "\x1b" not in once.stdout, once
    document = json.loads(subprocess.run([reef, "top", f"{folder}/pool", "--json"], capture_output=True).stdout)
    assert document["status"]["pid"] == daemon.pid and document["generations"][-1]["sealed"] is False
    daemon.kill()
    refused = subprocess.run([reef, "top", f"{folder}/pool"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert refused.returncode == 64 and "--once" in refused.stderr


class Shell(Terminal):
    """Job control without line editing: what it finds of the terminal's modes it leaves."""

    def __init__(self):
        super().__init__(["/bin/dash", "-i"], PS1="> ")

    def told(self, line, text):
        """Type a line, or a key; what is shown from then on has the text."""
        self.shown = b""
        self.type(line)
        self.until(f"no {text} after {line!r}", lambda t: text in t.shown)

    def seen(self):
        self.until("no view", lambda t: b"\x1b[?1049h" in t.shown and t.raw()
                   and any("generation" in line for line in t.frame()))

    def left(self):
        self.until("the screen is kept", lambda t: t.shown.rfind(b"\x1b[?25h\x1b[?1049l") > t.shown.rfind(b"\x1b[?1049h"))
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"

    def child(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return int(file.read())


def check_stopped(reef, folder):
    shell = Shell()
    shell.told(f"{reef} top {folder}/pool --interval 0.2\n", b"\x1b[?1049h")
    shell.seen()
    shell.told("\x1a", b"Stopped")
    shell.left()
    shell.told("fg\n", b"\x1b[?1049h")
    shell.seen()

    # In the background it waits, and touches nothing.
    shell.told("\x1a", b"Stopped")
    shell.told("bg; sleep 1; jobs\n", b"tty output")
    assert b"\x1b[?1049h" not in shell.shown, shell.shown
    assert termios.tcgetattr(shell.slave) == shell.before
    shell.told("fg\n", b"\x1b[?1049h")
    shell.seen()

    # Stopped by a hand that it cannot see, and somebody else put the terminal right.
    child = shell.child()
    shell.shown = b""
    os.kill(child, signal.SIGSTOP)
    shell.until("it is not stopped", lambda t: b"Stopped" in t.shown)
    termios.tcsetattr(shell.slave, termios.TCSANOW, shell.before)
    shell.told("fg\n", b"\x1b[?1049h")
    shell.seen()
    shell.told("q", b"\x1b[?1049l")
    shell.told("echo ended with $?\n", b"ended with 0")
    assert termios.tcgetattr(shell.slave) == shell.before, "the terminal is not as it was"
    shell.type("exit\n")
    assert shell.end() == 0


def check_run(reef, reefd, folder, stream):
    """The daemon in the foreground: progress in one line, which ^C ends with a commit."""
    run = Terminal([reefd, "--pool", f"{folder}/pool", "--source", f"file:{stream}", "--stay", "--threads", "1"])
    run.until("no progress", lambda t: b"\r\x1b[Kreefd: " in t.shown)
    run.type("\x03")
    code = run.end()
    assert code == 0, (code, run.shown)
    assert b"ended: step " in run.shown, run.shown[-500:]


def snapshots(reef, folder):
    done = subprocess.run([reef, "snapshot", "list", f"{folder}/pool", "--json"], capture_output=True, check=True)
    return {one["name"] for one in json.loads(done.stdout)["snapshots"]}


def check_questions(reef, folder):
    for name in ("a", "b", "c"):
        subprocess.run([reef, "snapshot", "create", f"{folder}/pool", name], check=True, capture_output=True)
    remove = [reef, "snapshot", "remove", f"{folder}/pool"]
    for answer, code, left in (("no\n", 64, {"a", "b", "c"}), ("yes\n", 0, {"b", "c"})):
        asked = Terminal([*remove, "a"])
        asked.until("no question", lambda t: b"Type yes to continue: " in t.shown)
        asked.type(answer)
        assert asked.end() == code, asked.shown
        assert snapshots(reef, folder) == left
    sure = Terminal([*remove, "b", "--yes"])
    assert sure.end() == 0 and b"Type yes" not in sure.shown
    script = subprocess.run([*remove, "c"], capture_output=True, stdin=subprocess.DEVNULL)
    assert script.returncode == 0 and snapshots(reef, folder) == set()


def check_width(reef, folder):
    """A text in a table takes what the terminal has, and in a file as much as it needs."""
    with open(f"{folder}/long.txt", "w") as file:
        file.write("the sea is calm and the night is long " * 8 + "\n")
    score = [reef, "score", f"{folder}/pool", f"{folder}/long.txt"]
    whole = subprocess.run(score, capture_output=True, text=True, check=True).stdout
    assert "\u2026" not in whole and max(map(len, whole.split("\n"))) > 300
    for columns in (80, 120):
        shown = Terminal(score, columns=columns)
        assert shown.end() == 0
        lines = shown.shown.decode().split("\r\n")
        assert max(map(len, lines)) == columns and "\u2026" in shown.shown.decode(), lines


def main():
    reef, reefd = map(os.path.abspath, sys.argv[1:])
    os.environ.pop("REEF_POOL", None)
    os.environ.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory(prefix="reef-test-") as folder:
        with open(f"{folder}/stream.txt", "w") as file:
            file.write("the sea is calm and the night is long\n" * 50000)
        subprocess.run([reef, "init", f"{folder}/pool", *SIZES], check=True, capture_output=True)
        try:
            check_live(reef, reefd, folder, f"{folder}/stream.txt")
            check_stopped(reef, folder)
            check_run(reef, reefd, folder, f"{folder}/stream.txt")
            check_questions(reef, folder)
            check_width(reef, folder)
        finally:
            for process in STARTED:
                if process.poll() is None:
                    process.kill()
    print("the live view and the questions are as they should be")
    return 0


sys.exit(main())
