"""Clients that mean no good, against HTTP on its port and its socket. Each lives until the daemon closes its connection.

A client that was closed comes back after a moment, for as long as the storm lasts. After it nobody comes back, and
nobody lets go by himself either: how long the last one stays is the daemon's doing. One that reads nothing may not
see that it was closed, because what it did not read comes first; so the end is measured at the daemon's descriptors,
and then release() lets go. Runs in a process of its own, so that measuring beside it is not slowed down by it.
"""

import asyncio
import multiprocessing
import os
import random
import select
import socket
import time

COME_BACK_SECONDS = 0.5
DRIP_SECONDS = 0.3
LOOK_SECONDS = 0.2  # how often one that does not read looks whether it was closed

HEAD = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\n"


class Closed(Exception):
    pass


class Connection:
    """A socket that knows when the other side is gone, also while nothing of it is read."""

    def __init__(self, sock):
        self.socket = sock
        self.watch = select.poll()
        self.watch.register(sock, select.POLLRDHUP)

    def check(self):
        if self.watch.poll(0):
            raise Closed

    async def send(self, data):
        view = memoryview(data)
        while view:
            self.check()
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:  # the daemon takes no more for now
                await asyncio.sleep(LOOK_SECONDS)
            except OSError:
                raise Closed from None
            else:
                await asyncio.sleep(0)

    async def hold(self):
        """Stay, and read nothing."""
        while True:
            self.check()
            await asyncio.sleep(LOOK_SECONDS)

    async def read_to_the_end(self):
        loop = asyncio.get_running_loop()
        while True:
            try:
                if not await loop.sock_recv(self.socket, 65536):
                    raise Closed
            except OSError:
                raise Closed from None

    async def drip(self, data):
        """A byte now and then, for ever."""
        while True:
            for i in range(len(data)):
                await self.send(data[i : i + 1])
                await asyncio.sleep(DRIP_SECONDS)


# ---- HTTP: what they do ------------------------------------------------------------------------------


async def http_slow_header(c):
    await c.send(HEAD)
    await c.drip(b"X-Slow: 1\r\n")


async def http_slow_body(c):
    await c.send(HEAD + b"Content-Length: 1000000\r\n\r\n")
    await c.drip(b"slow ")


async def http_silent(c):
    await c.hold()


async def http_half_request(c):
    await c.send(HEAD + b"Content-Length: 100\r\n\r\nhalf")
    await c.hold()


async def http_half_closed(c):
    await c.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
    c.socket.shutdown(socket.SHUT_WR)
    await c.read_to_the_end()


async def http_random(c):
    await c.send(os.urandom(4096))
    await c.read_to_the_end()


async def http_long_header(c):
    await c.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100000)
    await c.read_to_the_end()


async def http_long_body(c):
    await c.send(HEAD + b"Content-Length: 4000000000\r\n\r\n" + b"x" * 100000)
    await c.hold()


async def http_long_chunk(c):
    await c.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n")
    for _ in range(64):
        await c.send(b"x" * 65536)
    await c.hold()


async def http_bare_cr(c):
    await c.send(b"GET /metrics HTTP/1.1\rHost: localhost\rX: y\r\rGET /livez HTTP/1.1\r\n\rX\r: y\r\n\r\n")
    await c.hold()


async def http_pipelining(c):
    await c.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
    await c.hold()


async def http_never_reads(c):
    while True:
        await c.send(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.01)


HTTP = [
    http_slow_header, http_slow_body, http_silent, http_half_request, http_half_closed, http_random,
    http_long_header, http_long_body, http_long_chunk, http_bare_cr, http_pipelining, http_never_reads,
]  # fmt: skip

# ---- all of them at once -----------------------------------------------------------------------------


class Storm:
    def __init__(self, address, path, count):
        self.address, self.path, self.count = address, path, count
        self.over = False
        self.connections = 0
        self.lives = {}  # kind: the longest, in seconds

    async def connect(self, family, where):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if family == socket.AF_INET:
            # A small window, so that one that does not read is felt soon.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await asyncio.get_running_loop().sock_connect(sock, where)
        except OSError:
            sock.close()
            return None
        return sock

    async def live(self, act, family, where):
        sock = await self.connect(family, where)
        if sock is None:
            return
        self.connections += 1
        began = time.monotonic()
        try:
            await act(Connection(sock))
        except (Closed, OSError):
            pass
        finally:
            sock.close()
        lived = time.monotonic() - began
        self.lives[act.__name__] = max(self.lives.get(act.__name__, 0), lived)

    async def client(self, act, family, where):
        await asyncio.sleep(random.random() * COME_BACK_SECONDS)
        while not self.over:
            await self.live(act, family, where)
            if not self.over:
                await asyncio.sleep(COME_BACK_SECONDS)

    async def main(self, seconds, pipe):
        tasks = []
        for i in range(self.count):
            tasks.append(asyncio.create_task(self.client(HTTP[i % len(HTTP)], socket.AF_INET, self.address)))
            tasks.append(asyncio.create_task(self.client(HTTP[i % len(HTTP)], socket.AF_UNIX, str(self.path))))
        await asyncio.sleep(seconds)
        self.over = True
        while not pipe.poll():
            await asyncio.sleep(LOOK_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pipe.send({"connections": self.connections, "lives": self.lives})


def _process(address, path, count, seconds, pipe):
    asyncio.run(Storm(address, path, count).main(seconds, pipe))


class Process:
    """`count` clients on each side for so many seconds; then they wait to be closed, until release()."""

    def __init__(self, address, path, count, seconds):
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_process, args=(address, path, count, seconds, other), daemon=True)
        self.process.start()

    def release(self):
        """What they saw: connections, and by kind the longest that one lived, in seconds."""
        self.pipe.send("release")
        seen = self.pipe.recv()
        self.process.join()
        return seen
