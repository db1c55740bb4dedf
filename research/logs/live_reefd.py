"""A real reefd in a directory of its own: started, asked over its socket, killed by its pid."""

import json
import pathlib
import signal
import socket
import subprocess
import time

WAIT_S = 120


class Reefd:
    def __init__(self, program, pool, arguments):
        self.arguments = [program, "--pool", str(pool), "--quiet", *arguments]
        self.path = str(pathlib.Path(pool) / "reefd.sock")
        self.process = None

    def start(self):
        """How many seconds it took until it answered."""
        began = time.monotonic()
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL)
        while time.monotonic() < began + WAIT_S:
            if self.process.poll() is not None:
                raise RuntimeError(f"reefd ended with {self.process.returncode}")
            try:
                self.status()
                return time.monotonic() - began
            except OSError:
                time.sleep(0.005)
        raise RuntimeError(f"reefd did not answer for {WAIT_S} s")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(WAIT_S) != 0:
            raise RuntimeError(f"reefd ended with {self.process.returncode}")

    def memory(self):
        """VmHWM, RssAnon and so on, in kB."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        pairs = (line.partition(":")[::2] for line in lines)
        return {name: int(value.split()[0]) for name, value in pairs if "kB" in value}

    def ask(self, route, body=b""):
        """A document. Raises OSError when nobody answers."""
        head = f"{'POST' if body else 'GET'} {route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = b""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(self.path)
            connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while some := connection.recv(1 << 16):
                answer += some
        first, _, body = answer.partition(b"\r\n\r\n")
        if not first:
            raise OSError("no answer")
        if first.split()[1] != b"200":
            raise RuntimeError(f"{route}: {answer.decode()}")
        return json.loads(body)

    def status(self):
        return self.ask("/v1/status")

    def command(self, name):
        return self.ask("/v1/command", json.dumps({"command": name}).encode())
