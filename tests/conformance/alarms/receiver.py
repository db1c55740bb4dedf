"""A receiver of web hooks that behaves as it is told to."""

import http.server
import json
import threading
import time


class Receiver:
    """On a free port, or on a given one."""

    def __init__(self, port=0):
        self.taken = []    # (key, body) of what was answered with 200
        self.attempts = 0
        self.answers = []  # codes for the next requests; then 200
        self.body = b"ok"
        self.hang_s = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.attempts += 1
                for _ in range(int(receiver.hang_s * 10)):
                    time.sleep(0.1)
                    if receiver.hang_s == 0:
                        break
                code = receiver.answers.pop(0) if receiver.answers else 200
                if code == 200:
                    receiver.taken.append((self.headers["Idempotency-Key"], body))
                try:
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(receiver.body)))
                    self.end_headers()
                    self.wfile.write(receiver.body)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook/secret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def states(self):
        """(incident, status) in the order in which they were taken."""
        return [(body["alerts"][0]["labels"]["incident"], body["status"]) for _, body in self.taken]
