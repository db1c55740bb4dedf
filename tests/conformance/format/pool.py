"""A second reader of pools, written from docs/FORMAT.md and from none of the sources.

It opens a data file, takes every record apart, and compares all that the document says must agree: headers,
checksums, entries of sums, roots of generations, of copies and of the commit. What the document does not say it
cannot know: where this reader fails on a sound pool, the document is wrong or lacks something.
"""

import json
import struct

import lmdb
import xxhash

FORMAT_VERSION = 7
NAMES = (
    "meta tensors experts moments flags usage generations snapshots journal timeline series sums memory visits text blocks"
).split()
NUMBER = {name: number for number, name in enumerate(NAMES)}
SUMMED = set(NAMES) - {"journal", "series", "sums"}
PSEUDO = 0x80000000
HEADER = struct.Struct("<4sBBBBIIIIQQQ")
DTYPES = {0: "bytes", 1: "f32", 2: "u32", 3: "u64", 4: "json", 5: "int8"}


class Wrong(Exception):
    """Something in the file is not as the document says."""


def check(right, what):
    if not right:
        raise Wrong(what)


# -- keys: generation, layer, block, level, window, sequence and name, as far as a database has them --


def _name(key, at):
    end = key.index(b"\0", at)
    check(1 <= end - at <= 64, f"a name of {end - at} bytes")
    return key[at:end].decode("ascii"), end + 1


def _numbers(key, at, layout, names):
    check(len(key) == at + struct.calcsize(layout), f"a key of {len(key)} bytes")
    return dict(zip(names, struct.unpack_from(layout, key, at)))


def parse_key(database, key):
    if database in ("meta", "snapshots", "text"):
        name, at = _name(key, 0)
        return {"name": name, **_numbers(key, at, ">", ())}
    if database in ("tensors", "memory"):
        name, at = _name(key, 4)
        generation = struct.unpack_from(">I", key)[0]
        return {"name": name, "generation": generation, **_numbers(key, at, ">I", ("block",))}
    if database == "visits":
        name, at = _name(key, 8)
        generation, kind = struct.unpack_from(">II", key)
        return {"name": name, "generation": generation, "layer": kind, **_numbers(key, at, ">I", ("block",))}
    if database in ("experts", "flags"):
        return _numbers(key, 0, ">III", ("generation", "layer", "block"))
    if database == "moments":
        generation, kind = struct.unpack_from(">IB", key)
        check(kind in (0, 1), f"moments of kind {kind}")
        if kind == 0:
            return {"generation": generation, **_numbers(key, 5, ">II", ("layer", "block"))}
        name, at = _name(key, 5)
        return {"name": name, "generation": generation, **_numbers(key, at, ">I", ("block",))}
    if database == "usage":
        return _numbers(key, 0, ">IQIII", ("level", "window", "generation", "layer", "block"))
    if database == "generations":
        return _numbers(key, 0, ">I", ("generation",))
    if database in ("timeline", "blocks"):
        return _numbers(key, 0, ">Q", ("sequence",))
    name, at = _name(key, 0)
    if database == "journal":
        return {"name": name, **_numbers(key, at, ">Q", ("sequence",))}
    check(database == "series", f"database {database}")
    return {"name": name, **_numbers(key, at, ">IQ", ("level", "sequence"))}


# -- records --


class Record:
    """A record under its key: what its header says, and the payload."""

    def __init__(self, database, key, value):
        self.database, self.raw_key, self.key = database, key, parse_key(database, key)
        what = f"{database} {self.key}"
        check(len(value) >= HEADER.size, f"{what}: {len(value)} bytes")
        magic, schema, kind, dtype, zero, generation, layer, block, zero4, self.commit, size, checksum = (
            HEADER.unpack_from(value)
        )
        self.payload = value[HEADER.size :]
        check(magic == b"REEF" and schema == 1 and zero == 0 and zero4 == 0, f"{what}: its header")
        check(kind == NUMBER[database] and dtype in DTYPES, f"{what}: kind {kind}, dtype {dtype}")
        said = {"generation": generation, "layer": layer, "block": block}
        for field, number in said.items():
            check(number == self.key.get(field, 0), f"{what}: its header says {field} {number}")
        check(size == len(self.payload) <= 2**30, f"{what}: {len(self.payload)} bytes, not {size}")
        self.dtype = DTYPES[dtype]
        self.content = xxhash.xxh3_128_digest(bytes((kind, dtype)) + key + self.payload)
        sum64 = xxhash.xxh3_64_intdigest(value[:40] + key + self.content)
        check(sum64 == checksum, f"{what}: its checksum is {sum64:016x}, not {checksum:016x}")

    def json(self):
        check(self.dtype == "json", f"{self.database} {self.key} is no JSON")
        return json.loads(self.payload)

    def floats(self):
        check(self.dtype == "f32", f"{self.database} {self.key} is {self.dtype}")
        return struct.unpack(f"<{len(self.payload) // 4}f", self.payload)


# -- the pool --

GENERATION = struct.Struct("<IIQIIQQQQ16s")
SNAPSHOT = struct.Struct("<QQQQ16sIIIII")
COMMIT = struct.Struct("<QQQQQ16s")


class Pool:
    """All records of a data file, by database and key, with their entries of sums."""

    def __init__(self, directory):
        environment = lmdb.open(directory, readonly=True, lock=False, max_dbs=len(NAMES) + 1)
        with environment.begin() as transaction:
            self.names = sorted(bytes(name).decode() for name, _ in transaction.cursor())
            raw = {
                name: [
                    (bytes(key), bytes(value))
                    for key, value in transaction.cursor(
                        environment.open_db(name.encode(), txn=transaction, create=False)
                    )
                ]
                for name in NAMES
            }
        environment.close()
        self.sums = {key: (struct.unpack("<Q16s", value)) for key, value in raw.pop("sums")}
        self.records = {
            name: {key: Record(name, key, value) for key, value in entries} for name, entries in raw.items()
        }
        self._compare_sums()
        self._check_blocks()
        self.format = struct.unpack("<I", self.meta("format").payload)[0]
        check(self.format == FORMAT_VERSION, f"format {self.format}, this reader knows {FORMAT_VERSION}")
        check(self.names == sorted(NAMES), f"databases {self.names}")
        number, step, stream, clock, written, root = COMMIT.unpack(self.meta("commit").payload)
        self.commit = {"number": number, "step": step, "stream_bytes": stream, "root": root.hex()}
        self.configuration = self.meta("config").json()
        self.generations, self.copies = {}, {}
        for record in self.records["generations"].values():
            one = dict(
                zip(
                    "parent side first_id dtype sealed opened_step sealed_step opened_at sealed_at root".split(),
                    GENERATION.unpack(record.payload),
                )
            )
            number = record.key["generation"]
            (self.copies if number >= PSEUDO else self.generations)[number] = one
        check(sorted(self.generations) == list(range(len(self.generations))), "numbers of generations")
        self.snapshots = {r.key["name"]: self._snapshot(r) for r in self.records["snapshots"].values()}

    def _compare_sums(self):
        wanted = set()
        for name in SUMMED:
            for key, record in self.records[name].items():
                entry = self.sums.get(bytes((NUMBER[name],)) + key)
                check(entry == (record.commit, record.content), f"{name} {record.key}: its entry of sums is {entry}")
                wanted.add(bytes((NUMBER[name],)) + key)
        check(wanted == set(self.sums), "sums has entries without a record")

    def _check_blocks(self):
        """Text has the name of its bytes; what lists name is there, and all that is there is named."""
        texts, numbers = set(), set()
        for database in ("memory", "visits"):
            for record in self.records[database].values():
                words = [record.payload[at : at + 16] for at in range(0, len(record.payload), 16)]
                if record.key["name"] == "text blocks":
                    texts.update(word.hex() for word in words)
                elif record.key["name"] in ("slices", "log"):
                    numbers.update(struct.unpack("<QQ", word)[1] for word in words)
        for record in self.records["text"].values():
            check(xxhash.xxh3_128_hexdigest(record.payload) == record.key["name"], f"text {record.key}")
            check(len(record.payload) == 131072, f"text {record.key}")
        check(texts == {r.key["name"] for r in self.records["text"].values()}, "blocks of text and their names")
        check(numbers - {0} == {r.key["sequence"] for r in self.records["blocks"].values()}, "blocks and their numbers")

    def _snapshot(self, record):
        size = len(record.payload)
        check(size == SNAPSHOT.size, f"a snapshot of {size} bytes")
        fields = "commit step stream_bytes unix_ms root sealed open copy shared kept".split()
        return dict(zip(fields, SNAPSHOT.unpack(record.payload)))

    def meta(self, name):
        return self.records["meta"][name.encode() + b"\0"]

    def find(self, database, generation, **fields):
        """The records of a generation, in the order of their keys."""
        return [
            record
            for _, record in sorted(self.records[database].items())
            if record.key.get("generation") == generation
            and all(record.key.get(field) == value for field, value in fields.items())
        ]

    # -- roots --

    def _entries(self, hash128, database, wanted):
        for key, record in sorted(self.records[database].items()):
            if wanted(record.key):
                hash128.update(bytes((NUMBER[database],)) + key + record.content)

    def generation_root(self, number):
        hash128 = xxhash.xxh3_128()
        for database in ("tensors", "experts", "flags") + (("memory",) if number < PSEUDO else ()):
            self._entries(
                hash128,
                database,
                lambda key: key["generation"] == number and (database != "memory" or key["name"] == "mark"),
            )
        return hash128.digest()

    def root(self):
        hash128 = xxhash.xxh3_128(struct.pack("<QQ", self.commit["step"], self.commit["stream_bytes"]))
        unsealed = {number for number, one in self.generations.items() if not one["sealed"]}
        for database in ("tensors", "experts", "moments", "flags"):
            self._entries(hash128, database, lambda key: key["generation"] in unsealed)
        self._entries(hash128, "usage", lambda key: key["level"] == 0 and key["window"] == 0)
        self._entries(hash128, "generations", lambda key: key["generation"] < PSEUDO)
        return hash128.hexdigest()

    def snapshot_root(self, snapshot):
        """The root hash of the commit a snapshot is of, from its copies under the numbers they were made from."""
        check(snapshot["shared"] == snapshot["sealed"], "this reader needs one that shares what is sealed")
        entries = []

        def add(database, key, record):
            content = xxhash.xxh3_128_digest(
                bytes((NUMBER[database], list(DTYPES.values()).index(record.dtype))) + key + record.payload
            )
            entries.append(bytes((NUMBER[database],)) + key + content)

        copy, number = snapshot["copy"], struct.pack(">I", snapshot["open"])
        for database in ("tensors", "experts", "moments", "flags"):
            for record in self.find(database, copy):
                name = record.key.get("name", "") if database == "moments" else ""
                block = struct.pack(">I", record.key["block"])
                if name.startswith("snapshot.usage."):
                    layer = struct.pack(">I", int(name.rpartition(".")[2]))
                    add("usage", bytes(12) + number + layer + block, record)
                else:
                    add(database, number + record.raw_key[4:], record)
        for key, record in self.records["usage"].items(): # of sealed generations it is the pool's
            if record.key["level"] == 0 and record.key["generation"] < snapshot["sealed"]:
                add("usage", key, record)
        for g in range(snapshot["sealed"]):
            add("generations", struct.pack(">I", g), self.find("generations", g)[0])
        opened = self.find("generations", copy)[0]
        opened.payload = opened.payload[:56] + bytes(16) # an open one has no root
        add("generations", number, opened)
        state = xxhash.xxh3_128(struct.pack("<QQ", snapshot["step"], snapshot["stream_bytes"]))
        for entry in sorted(entries):
            state.update(entry)
        return state.digest()

    def check_roots(self):
        for number, one in {**self.generations, **self.copies}.items():
            if one["sealed"] or number >= PSEUDO:
                root = self.generation_root(number)
                check(root == one["root"], f"generation {number}: its root is {root.hex()}, not {one['root'].hex()}")
            else:
                check(one["root"] == bytes(16), f"generation {number} is open and has a root")
        root = self.root()
        check(root == self.commit["root"], f"the root hash is {root}, not {self.commit['root']}")

    # -- usage over time --

    def check_usage(self):
        """Sums over all windows never exceed the totals; returns how many windows there are."""
        sums, windows = {}, 0
        for record in self.records["usage"].values():
            if record.key["level"] == 0:
                continue
            windows += 1
            numbers, value, shift = [], 0, 0
            for byte in record.payload:
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    numbers.append(value)
                    value = shift = 0
            check(shift == 0 and len(numbers) % 3 == 2 and len(numbers) > 2, "a window is no list of uses")
            at = record.key["block"] * 65536
            for gap, count, score in zip(*(iter(numbers[2:]),) * 3):
                at += gap
                before = sums.get((record.key["generation"], record.key["layer"], at), (0, 0))
                sums[record.key["generation"], record.key["layer"], at] = before[0] + count, before[1] + score
                at += 1
        totals = {}
        for _, record in sorted(self.records["usage"].items()):
            if record.key["level"] == 0:
                values = struct.unpack(f"<{len(record.payload) // 8}Q", record.payload)
                place = record.key["generation"], record.key["layer"]
                totals.setdefault(place, []).extend(zip(values[::2], values[1::2]))
        for (generation, layer, expert), (count, score) in sums.items():
            total = totals[generation, layer][expert]
            check(count <= total[0] and score <= total[1], f"expert {expert} was used more in windows than in all")
        return windows

    # -- payloads --

    def _block(self, side, layer, block):
        """How many experts a block has."""
        experts, rows = side * side, self.block_rows(layer)
        return min(rows, experts - block * rows)

    def check_payloads(self):
        """Sizes of a language model's records, and the members that every event has."""
        c = self.configuration
        side = {number: one["side"] for number, one in {**self.generations, **self.copies}.items()}
        for database in ("experts", "flags", "usage", "moments"):
            for record in self.records[database].values():
                key, size = record.key, len(record.payload)
                if "layer" not in key or key.get("level", 0) > 0:
                    continue
                rows = self._block(side[key["generation"]], key["layer"], key["block"])
                values = self.row_values(key["layer"])
                arrays = 3 if c["model"] == "lm" else 2
                wanted = {
                    "experts": rows * (4 + values if record.dtype == "int8" else 4 * values),
                    "flags": rows,
                    "usage": rows * 16,
                    "moments": rows * (arrays * values + 1) * 4,
                }[database]
                check(size == wanted, f"{database} {key}: {size} bytes, not {wanted}")
        for record in self.records["timeline"].values():
            members = {"event", "unix_ms", "step", "stream_bytes", "generation"}
            check(members <= set(record.json()), f"timeline {record.key}")
        for record in self.records["series"].values():
            points = list(struct.iter_unpack("<QQfI", record.payload))
            check(points and points[0][1] == record.key["sequence"], f"series {record.key}")

    # -- experts --

    def row_values(self, layer):
        c = self.configuration
        if (c["ffw"] * c["layers"])[layer] == "k":
            return c["d_model"]
        return c["d_model"] * (3 if c.get("expert") == "glu" else 2)

    def block_rows(self, layer):
        rows = 1
        while rows * 2 * self.row_values(layer) * 4 <= 131072:
            rows *= 2
        return rows

    def row(self, generation, layer, local):
        """An expert's values, whatever block they lie in."""
        values, rows = self.row_values(layer), self.block_rows(layer)
        record = self.find("experts", generation, layer=layer, block=local // rows)[0]
        if record.dtype == "int8":  # a scale, then the values
            at = local % rows * (4 + values)
            scale = struct.unpack_from("<f", record.payload, at)[0]
            return [scale * value for value in struct.unpack_from(f"<{values}b", record.payload, at + 4)]
        return record.floats()[local % rows * values :][:values]


def local_id(i, j):
    """The expert of sub-keys i and j within its generation and layer."""
    m = max(i, j)
    return m * m + (m + (m - j) if i == m else i)
