"""The files that a comparison trains on: slices of texts, and all domains of a stream mixed.

Made once below the output directory, always the same from the same files. Vector specs pass through.
"""

import hashlib
import os
import random

from config import Domain

RECORD_BYTES = 1024  # of a piece of text in the mixed stream, up to the end of its line


def write_once(path, make):
    """Content is complete or the file is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(make())
        os.replace(part, path)
    return path


def beginning(path, limit):
    """At most `limit` bytes, up to the end of a line where there is one."""
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) <= limit:
        return content
    content = content[:limit]
    return content[: content.rfind(b"\n") + 1] or content


def records(content):
    """Pieces of about RECORD_BYTES that end where lines do."""
    at, found = 0, []
    while at < len(content):
        end = content.find(b"\n", min(at + RECORD_BYTES, len(content)) - 1) + 1
        # A text without lines is cut where the piece is full.
        if end <= 0 or end > at + 4 * RECORD_BYTES:
            end = min(at + RECORD_BYTES, len(content))
        found.append(content[at:end])
        at = end
    return found


def mixed_windows(texts, window, seed):
    """Windows of all texts, each of `window` bytes and the one that follows it, so that a step sees many texts.

    For `reef init --strategy joint --cut-windows true`. Every byte of a text but its first is a target once. The windows
    of a text are in a random order and evenly spread over the whole stream, whatever its length is beside the others'.
    """
    draw, placed = random.Random(seed), []
    for number, text in enumerate(texts):
        starts = list(range(0, len(text) - window, window))
        draw.shuffle(starts)
        for i, at in enumerate(starts):
            placed.append(((i + draw.random()) / len(starts), number, at))
    placed.sort()
    return [texts[number][at : at + window + 1] for _, number, at in placed]


class Files:
    def __init__(self, directory):
        self.directory, self.hashes = directory, {}

    def content(self, stream):
        """A hash of all that the stream is read from: a file may be replaced by one of the same name and size."""
        if stream.name not in self.hashes:
            whole = hashlib.sha256()
            for path in stream.files:
                with open(path, "rb") as file:
                    while piece := file.read(1 << 20):
                        whole.update(piece)
                whole.update(str(os.path.getsize(path)).encode())
            self.hashes[stream.name] = whole.hexdigest()[:16]
        return self.hashes[stream.name]

    def slice(self, path, limit):
        if not limit or os.path.getsize(path) <= limit:
            return path
        # The size and the time tell a file that was replaced.
        state = os.stat(path)
        name = f"{path.parent.name}-{path.stem}.{limit}.{state.st_size}-{state.st_mtime_ns:x}{path.suffix}"
        return write_once(self.directory / name, lambda: beginning(path, limit))

    def domain(self, stream, domain):
        """The domain with what is trained on and held out cut to the stream's limits."""
        if stream.kind != "text":
            return domain
        return Domain(
            domain.name,
            self.slice(domain.train, stream.limits.get("train_bytes")),
            self.slice(domain.held, stream.limits.get("eval_bytes")),
        )

    def tuning_domain(self, stream, domain, tune):
        """The same for choosing from a grid: another held-out text, and limits of [tune] where it has any."""
        return Domain(
            domain.name,
            self.slice(domain.train, tune["train_bytes"] or stream.limits.get("train_bytes")),
            self.slice(domain.tuning, tune["eval_bytes"] or stream.limits.get("eval_bytes")),
        )

    def returned(self, stream):
        return self.slice(stream.returns, stream.limits.get("return_bytes"))

    def joint(self, stream, domains, seed, window=None):
        """All domains in one file, in pieces or with `window` in windows; of images a spec that does it."""
        if stream.kind != "text":
            return stream.joint.format(seed=seed)

        # In the order of names, so that the mixed stream does not depend on the order of domains.
        ordered = sorted(domains, key=lambda domain: domain.name)
        states = "-".join(f"{os.path.getsize(d.train):x}" for d in ordered)
        how = f"windows{window}" if window else "mixed"

        def mix():
            texts = [domain.train.read_bytes() for domain in ordered]
            if window:
                return b"".join(mixed_windows(texts, window, seed))
            pieces = [piece for text in texts for piece in records(text)]
            random.Random(seed).shuffle(pieces)
            return b"".join(pieces)

        path = self.directory / f"{stream.name}.{how}-{seed}.{states}.txt"
        made_from, content = path.with_suffix(".from"), self.content(stream)
        if not made_from.exists() or made_from.read_text() != content:
            path.unlink(missing_ok=True)
        write_once(path, mix)
        made_from.write_text(content)
        return path
