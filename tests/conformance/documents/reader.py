"""Somebody who follows one page: types its commands in one folder, has further terminals for what does not end."""

import contextlib
import os
import pty
import random
import re
import select
import signal
import string
import subprocess
import threading
import time

DEADLINE_S = 120
DAEMON = r"(reefd|reef run) .*"  # the second becomes the first
LIVE = re.compile(rf"(^|[|] *){DAEMON}(push:|dir:|follow:|redis:|--stay|--config (?!.*--check))|tail .*-f .*[|] *{DAEMON}")
WATCH = re.compile(r"^reef (top (?!.*--once)|score .*--follow)")


# What builds, or changes the machine, is never run by chance: it wants an entry in table.py.
NEVER = re.compile(r"(^|[|&;(] *|sudo )(apt|apt-get|dpkg|cmake|systemctl|tools/(test|demo|fuzz|campaign)|tests/)\b")


class Failure(Exception):
    pass


class Reader:
    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment
        self.state = f"{folder}/.shell"
        self.terminals = []  # (what runs in it, its process, file with what it says)

    # ---- commands that end ----

    def run(self, text):
        if NEVER.search(text):
            raise Failure("this needs an entry in tests/conformance/documents/table.py")
        # Where one command left the shell (folder, variables) the next one begins.
        script = f"[ ! -e {self.state} ] || . {self.state}\n{text}\ncode=$?\n" \
                 f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} >{self.state}\nexit $code"
        with subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True) as process:
            try:
                said = process.communicate(timeout=DEADLINE_S)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said = f"not over in {DEADLINE_S} s: {process.communicate()[0]}"
        if process.returncode != 0:
            raise Failure(f"exit {process.returncode}: {said.strip()[-600:]}")

    # ---- commands that go on in a terminal of their own ----

    def start(self, text):
        """A daemon: it is there once it answers, and stays until its pool or port is wanted, or the page ends."""
        self.make_room(text)
        said = open(f"{self.folder}/.terminal-{len(self.terminals)}", "w+")
        script = f"[ ! -e {self.state} ] || . {self.state}\n{text.rstrip('& ')}"
        process = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=said, start_new_session=True)
        self.terminals.append((text, process, said))
        pool, end = self.pool_of(text), time.monotonic() + DEADLINE_S
        while not self.answers(pool):
            if process.poll() is not None or time.monotonic() > end:
                self.terminals.pop()
                self.finish(text, process, said)
                raise Failure(f"the daemon ended: {content(said)}")
            time.sleep(0.05)

    def answers(self, pool):
        return subprocess.run(["reef", "reload", pool, "--dry-run"], cwd=self.folder, env=self.environment,
                              capture_output=True).returncode == 0

    def pool_of(self, text):
        found = re.search(r"(?:--pool|reef run) (\S+)", text)
        if found:
            return found[1]
        config = re.search(r"--config (\S+)", text)[1]
        with open(os.path.join(self.folder, config)) as file:
            return re.search(r"^pool *= *(\S+)", file.read(), re.M)[1]

    def make_room(self, text):
        """What uses the same pool, or the same port, ends before."""
        mine = {self.pool_of(text), *re.findall(r"--http (\S+)", text)}
        for terminal in list(self.terminals):
            if mine & {self.pool_of(terminal[0]), *re.findall(r"--http (\S+)", terminal[0])}:
                self.terminals.remove(terminal)
                self.finish(*terminal)

    def finish(self, text, process, said):
        """As who keeps it running does: SIGTERM to reefd, then to what fed it; the shell waits for both, and has the daemon's exit code."""
        end = time.monotonic() + DEADLINE_S
        for to_end in ((lambda: members(process.pid, "reefd")), (lambda: members(process.pid) - {process.pid})):
            for pid in to_end():
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGTERM)
            while process.poll() is None and to_end():
                if time.monotonic() > end:
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.02)
        code, words = process.wait(DEADLINE_S), content(said)
        said.close()
        if code != 0 or "Sanitizer" in words:
            raise Failure(f"`{text}` ended with {code}: {words}")

    def end(self):
        failures = []
        for terminal in self.terminals:
            try:
                self.finish(*terminal)
            except Failure as failure:
                failures.append(str(failure))
        self.terminals = []
        return failures

    # ---- commands that are looked at ----

    def watch(self, text):
        """In a real terminal until something is shown, then q or ^C. What is followed grows meanwhile."""
        ours, theirs = pty.openpty()
        script = f"[ ! -e {self.state} ] || . {self.state}\nexec {text}"
        process = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=dict(self.environment, TERM="xterm"),
                                   stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        over = threading.Event()
        followed = text.split()[-1] if "--follow" in text else None
        writer = threading.Thread(target=self.grow, args=(followed, over))
        writer.start()
        shown, end = b"", time.monotonic() + DEADLINE_S
        try:
            while process.poll() is None and time.monotonic() < end:
                if select.select([ours], [], [], 0.2)[0]:
                    shown += os.read(ours, 65536)
                    if followed:
                        process.send_signal(signal.SIGINT)
                    else:
                        os.write(ours, b"q")
                    break
            code = self.wait_and_drain(process, ours, end)
        except OSError:  # nobody has the other side open any more
            code = process.wait(DEADLINE_S)
        finally:
            over.set()
            writer.join()
            os.close(ours)
        if code != 0 or not shown:
            raise Failure(f"exit {code}, and showed: {shown.decode(errors='replace')[-400:]}")

    @staticmethod
    def wait_and_drain(process, ours, end):
        while process.poll() is None:
            if time.monotonic() > end:
                process.kill()
            if select.select([ours], [], [], 0.1)[0]:
                os.read(ours, 65536)
        return process.returncode

    def grow(self, name, over):
        """Usual lines, and an unusual one: each time another, or the daemon that trains on them would learn it."""
        draw = random.Random(1)
        while name and not over.wait(0.3):
            with open(os.path.join(self.folder, name), "r+") as file:
                usual = file.readlines()[:20]
                file.writelines([*usual, "".join(draw.choices(string.punctuation + string.ascii_uppercase, k=50)) + "\n"])


def members(group, name=None):
    """Processes of a group that run, all or those of one program."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                program, rest = re.match(r"\d+ \((.*)\) (.*)", file.read(), re.S).groups()
        except OSError:
            continue
        if rest.split()[2] == str(group) and rest[0] != "Z" and name in (None, program):
            found.add(int(pid))
    return found


def content(file):
    file.flush()
    file.seek(0)
    return file.read().strip()[-600:]
