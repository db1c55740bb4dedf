"""Many kinds in one stream: are they told apart, do they go on when they come back, and what do texts cost beside a pool
that read one kind alone and is asked about that kind only.

All TRAIN are learned as one stream, in a random order. Then three quarters of each HELD are learned in another order.
Before and after that the last quarters are read, and pieces of them in a random order: as one text, and each by itself.
"""

import random
import shutil

HELD_BYTES = 65536
PIECES_BYTES = 150000  # in all
BEFORE, BEHIND = 4096, 8192  # a kind may begin so far before its text, and so far behind it


class Kind:
    def __init__(self, name, train, held, limit):
        self.name, self.train = name, train.read_bytes()[:limit]
        held = held.read_bytes()[:HELD_BYTES]
        self.back, self.last = held[: len(held) // 4 * 3], held[len(held) // 4 * 3 :]
        self.begins, self.late, self.learner, self.pieces, self.used = 0, None, None, [], 0
        self.own = self.bits = self.later = 0.0

    def result(self):
        return {"name": self.name, "begins_at": self.begins, "found_bytes_later": self.late, "own_bits_per_byte": self.own,
                "bits_per_byte": self.bits, "later_bits_per_byte": self.later}


class Files:
    """Texts that commands read."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text)
        return path

    def all(self, name, texts):
        return [self.write(f"{name}.{i}", text) for i, text in enumerate(texts)]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def draw_pieces(kinds, size, draw):
    """(kind, piece) in a random order, no two of one kind in a row: each piece once."""
    pieces, last = [], None
    while (len(pieces) + 1) * size <= PIECES_BYTES:
        left = [kind for kind in kinds if kind is not last and len(kind.last) - kind.used >= size]
        if not left:
            break
        last = draw.choice(left)
        pieces.append((last, last.last[last.used : last.used + size]))
        last.pieces.append(pieces[-1][1])
        last.used += size
    return pieces


def begun(visits):
    """Where each kind of the pool began."""
    first = {}
    for visit in visits:
        first.setdefault(visit["kind"], visit["from"])
    return first


def find_changes(kinds, visits):
    """How many kinds began where a text does, the first one not counted, and how many elsewhere."""
    elsewhere = 0
    for start in begun(visits).values():
        near = [kind for kind in kinds if kind.late is None and -BEFORE <= start - kind.begins <= BEHIND]
        if near:
            near[0].late = start - near[0].begins
        else:
            elsewhere += 1
    return sum(kind.late is not None for kind in kinds[1:]), elsewhere


def learned(visits, begin, end):
    """Bytes between two places of the stream by the kind of the pool that learned them."""
    found = {}
    for visit in visits:
        count = min(visit["to"], end) - max(visit["from"], begin)
        if visit["visits"] == 1 and count > 0:
            found[visit["kind"]] = found.get(visit["kind"], 0) + count
    return found


def read_own(kind, make, files):
    """A pool that learned this kind alone. Returns its seconds, and bits a byte of pieces, each by itself."""
    pool = make("own", boundaries="given")
    pool.train(files.write("own", kind.train))
    texts = [kind.last, *([b"".join(kind.pieces)] if kind.pieces else []), *kind.pieces]
    bits = pool.bits(files.all("own", texts))
    kind.own = bits[0]
    shutil.rmtree(pool.path)
    return pool.seconds, bits[1:2], bits[2:]


def measure(pairs, limit, piece, seed, folder, make):
    """pairs: (name, train, held). make(name, **options): a new pool. folder: for files, does not exist yet."""
    draw, files = random.Random(seed), Files(folder)
    kinds = [Kind(*pair, limit) for pair in draw.sample(pairs, len(pairs))]
    at = 0
    for kind in kinds:
        kind.begins, at = at, at + len(kind.train)
    pool = make("pool", boundaries="contexts")
    pool.train(files.write("stream", b"".join(kind.train for kind in kinds)))
    seconds, disk, visits = pool.seconds, pool.disk(), pool.visits()
    found, elsewhere = find_changes(kinds, visits)
    for kind in kinds:
        by = learned(visits, kind.begins, kind.begins + len(kind.train))
        kind.learner = max(by, key=by.get) if by else None

    pieces = draw_pieces(kinds, piece, draw)
    of_kinds = [read_own(kind, make, files) for kind in kinds]
    last = files.all("last", [kind.last for kind in kinds])
    for kind, bits in zip(kinds, pool.bits(last)):
        kind.bits = bits
    in_one, *alone = pool.bits([files.write("pieces", b"".join(text for _, text in pieces)),
                                *files.all("piece", [text for _, text in pieces])])

    back = draw.sample(kinds, len(kinds))
    pool.train(files.write("back", b"".join(kind.back for kind in back)))
    after, before = pool.visits(), set(begun(visits))
    same = strange = 0
    for kind in back:
        by = learned(after, at, at + len(kind.back))
        at += len(kind.back)
        same += by.get(kind.learner, 0)
        strange += sum(count for one, count in by.items() if one not in before)
    for kind, bits in zip(kinds, pool.bits(last)):
        kind.later = bits
    shutil.rmtree(folder)
    return {
        "seed": seed,
        "stream_bytes": sum(len(kind.train) for kind in kinds),
        "changes": len(kinds) - 1,
        "found": found,
        "invented": elsewhere,
        "back_bytes": sum(len(kind.back) for kind in kinds),
        "strange_bytes": strange,
        "same_bytes": same,
        "pool_bytes": disk,
        "means": {"own_bits_per_byte": mean(kind.own for kind in kinds), "bits_per_byte": mean(kind.bits for kind in kinds),
                  "later_bits_per_byte": mean(kind.later for kind in kinds),
                  "forgetting_max": max(kind.later - kind.bits for kind in kinds)},
        # Known: of a kind's pieces one after the other. Each by itself: both sides begin with an empty context.
        "pieces": {"piece_bytes": piece, "bytes": len(pieces) * piece,
                   "own_bits_per_byte": sum(known[0] * len(kind.pieces) for kind, (_, known, _) in zip(kinds, of_kinds) if known)
                   / len(pieces), "bits_per_byte": in_one,
                   "alone_own_bits_per_byte": mean(bits for _, _, each in of_kinds for bits in each),
                   "alone_bits_per_byte": mean(alone)},
        "seconds": {"learn": seconds, "own_learn": sum(one[0] for one in of_kinds)},
        "kinds": [kind.result() for kind in kinds],
    }
