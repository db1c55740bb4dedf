"""Pools: models of bytes, and PEER layers on NumPy arrays."""

import collections.abc
import ctypes
import datetime
import os
import weakref
from dataclasses import dataclass

import numpy as np

from . import _library as _c
from .errors import InvalidError, MissingError


@dataclass(frozen=True)
class Info:
    """What a pool is. ``position`` counts the bytes of the stream that were dealt with, of a layer the rows."""

    model: str
    expert: str
    score: str
    writing: bool
    layers: int
    d_model: int
    heads: int
    topk: int
    d_key: int
    generations: int
    experts: int
    commit: int
    step: int
    position: int
    collected: int


@dataclass(frozen=True)
class Generation:
    """One generation; it has ``side * side`` experts in each layer."""

    generation: int
    side: int
    sealed: bool
    experts: int
    first_expert: int
    opened_step: int
    sealed_step: int
    opened_at: int
    sealed_at: int


@dataclass(frozen=True)
class Snapshot:
    """A named state that ``as_of`` takes."""

    name: str
    commit: int
    step: int
    position: int
    unix_ms: int
    generations: int


@dataclass(frozen=True)
class Kind:
    """A kind of text, with the number of the generation that it began with. ``name`` is "" where it has none, and
    ``merged_into`` the kind that it was merged into, or None.

    Losses are bits per byte of its first and its last visit, before they were learned; NaN where they are not known.
    ``began_ms`` is when it began, in ms since 1970; 0 where that is not known.
    """

    kind: int
    name: str
    open: bool
    learning: bool
    began_at: int
    learned_bytes: int
    learned_at: int
    visits: int
    first_loss: float
    last_loss: float
    merged_into: "int | None"
    began_ms: int


@dataclass(frozen=True)
class Visit:
    """What a kind learned of the stream, from position ``begin`` to before ``end``, without another kind in between.

    ``loss`` is in bits per byte, before they were learned. ``visits`` is 1, or more where of a kind's oldest visits only
    their sum is known.
    """

    visits: int
    begin: int
    end: int
    learned_bytes: int
    loss: float


@dataclass(frozen=True)
class Pruning:
    """What giving up old states does: how many states, visits of kinds, and bytes of their records."""

    states: int
    visits: int
    bytes: int


@dataclass(frozen=True)
class Training:
    """Where training stands. Losses are those before training on the bytes; NaN before the first batch."""

    step: int
    position: int
    waiting: int
    generation: int
    bits_per_byte: float
    last_bits_per_byte: float
    learning_rate: float


@dataclass(frozen=True)
class Evaluation:
    """Loss of a text; ``surprise`` has the bits of each byte where they were asked for."""

    bytes: int
    bits: float
    bits_per_byte: float
    surprise: object = None


@dataclass(frozen=True)
class Line:
    """What a line of a text costs: the figures of ``reef score``.

    ``line`` is its number from 1, ``offset`` where it begins in the text, ``bytes`` how many it has without its end;
    ``bits`` and ``bits_per_byte`` count its end. ``score`` is how unusual the line is. ``kind`` is the kind that was
    the likeliest for most of its bytes, or None where no kind of this pool knows the text: its first 4 kB cost what
    learning them from nothing does.
    """

    line: int
    offset: int
    bytes: int
    bits: float
    bits_per_byte: float
    score: float
    kind: "int | None"


@dataclass(frozen=True)
class Answers:
    """Which kinds answered a text: arrays of (bytes, candidates), the likeliest first. ``weights`` is how likely each
    was before the byte; where a byte has fewer candidates, ``kinds`` is -1 and the weight 0."""

    kinds: object
    weights: object

    @property
    def shares(self):
        """Share of the text by kind, the largest first: a dict. Exact where all candidates were asked for."""
        known = self.kinds >= 0
        sums = np.bincount(self.kinds[known], self.weights[known]) / max(1, len(self.kinds))
        return {int(kind): float(sums[kind]) for kind in np.argsort(-sums, kind="stable") if sums[kind] > 0}


@dataclass(frozen=True)
class Archive:
    """What an archive says of itself: the state it was made as of, and sizes."""

    state: str
    snapshot: bool
    piece_bytes: int
    pieces: int
    raw_pieces: int
    position: int
    text_bytes: int
    archive_bytes: int
    pool: bytes
    text_hash: bytes


def _plain(value):
    if isinstance(value, bytes):
        return value.decode()
    return value


def _fill(kind, struct, /, **converted):
    """A dataclass from the fields of a struct that it names."""
    values = {name: _plain(getattr(struct, name)) for name in kind.__dataclass_fields__
              if hasattr(struct, name)}
    return kind(**{**values, **converted})


def _path(path):
    return _c.unbroken("path", os.fsencode(path))


def _optional(name, text):
    return None if text is None else _c.text(name, text)


# ---- make and open -------------------------------------------------------------------------------


def create(path, *, threads=0, **settings):
    """Make a model of bytes in directory ``path``, and open it for writing.

    Settings are those of ``reef init`` by name, such as ``d_model=128``.
    """
    words = [_c.text(name, f"{name}={_setting(value)}") for name, value in settings.items()]
    array = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    opening = _c.PoolOptions(write=True, threads=threads)
    _c.check(_c.lib.reef_pool_create_model, _path(path), array)
    return _open(path, opening)


def _setting(value):
    return str(value).lower() if isinstance(value, bool) else value


def create_layer(path, d_model, *, heads=0, topk=0, d_key=0, side=0, expert=None, score=None,
                 seal_dtype=None, batch_norm=True, seed=0, experts_max=0, learning_rate=0.0, expert_rate=0.0,
                 beta1=0.0, beta2=0.0, epsilon=0.0, clip=0.0, threads=0):
    """Make a pool of one PEER layer, and open it for writing. What is zero or None is the default."""
    options = _c.LayerOptions(d_model=d_model, heads=heads, topk=topk, d_key=d_key, side=side,
                              expert=_optional("expert", expert), score=_optional("score", score),
                              seal_dtype=_optional("seal_dtype", seal_dtype), no_batch_norm=not batch_norm, seed=seed,
                              experts_max=experts_max, learning_rate=learning_rate, expert_rate=expert_rate,
                              beta1=beta1, beta2=beta2, epsilon=epsilon, clip=clip)
    opening = _c.PoolOptions(write=True, threads=threads)
    _c.check(_c.lib.reef_pool_create_layer, _path(path), ctypes.byref(options))
    return _open(path, opening)


_READINGS = {False: 0, True: 1, "alone": 2}


def open(path, *, write=False, as_of=None, threads=0, memory_bytes=0, frozen=False):
    """Open a pool: a ``Layer`` or a ``Model``, by what it holds.

    Read without ``write``, as of now, of a generation (``as_of=0``) or of a snapshot by name; the state stays as
    it is whatever a writer does. A writer sees what it trained.

    Context memories adapt to each text that is evaluated or continued, and forget it afterwards. With ``frozen``
    no count and no weight of theirs changes, but matches find what the text said before; with ``frozen="alone"``
    what was learned alone answers. Pools without them have nothing that adapts.
    """
    if frozen not in _READINGS:
        raise InvalidError(f"frozen is {frozen!r}; it must be False, True or 'alone'")
    return _open(path, _c.PoolOptions(write=bool(write), as_of=_optional("as_of", as_of), threads=threads,
                                      memory_bytes=memory_bytes, frozen=_READINGS[frozen]))


def _open(path, options):
    handle = ctypes.c_void_p()
    _c.check(_c.lib.reef_pool_open, ctypes.byref(handle), _path(path), ctypes.byref(options))
    info = _c.PoolInfo()
    try:
        _c.check(_c.lib.reef_pool_read_info, handle, ctypes.byref(info))
    except Exception:
        _c.lib.reef_pool_close(handle)
        raise
    return (Layer if info.model == b"layer" else Model)(handle, path, info)


class Pool:
    """What all kinds of pools have. A context manager; ``close`` forgets what was not committed.

    Threads may share one: their calls take turns.
    """

    def __init__(self, handle, path, info):
        self.path = path
        self.d_model = info.d_model
        self.writing = bool(info.writing)
        self._handle = _c.Handle(handle, path)
        weakref.finalize(self, self._handle.end)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"<reef.{type(self).__name__} {os.fspath(self.path)!r}{', closed' if self._handle.closed else ''}>"

    def _call(self, function, *arguments):
        with self._handle as pointer:
            _c.check(function, pointer, *arguments)

    def close(self):
        """Release the pool: no call can begin, and where others run in other threads, the last of them closes it."""
        self._handle.close()

    @property
    def info(self):
        """Sizes and counts, an ``Info``."""
        info = _c.PoolInfo()
        with self._handle as pointer:  # its texts are good as long
            _c.check(_c.lib.reef_pool_read_info, pointer, ctypes.byref(info))
            return _fill(Info, info, writing=bool(info.writing))

    @property
    def generations(self):
        """All generations, a list of ``Generation``; the last one is open unless the state is an earlier one."""
        found = []
        for number in range(self.info.generations):
            info = _c.GenerationInfo()
            self._call(_c.lib.reef_pool_read_generation, number, ctypes.byref(info))
            found.append(_fill(Generation, info, sealed=bool(info.sealed)))
        return found

    @property
    def snapshots(self):
        """All snapshots, a list of ``Snapshot`` in the order of names."""
        found = []
        while True:
            info = _c.SnapshotInfo()
            try:
                self._call(_c.lib.reef_pool_read_snapshot, len(found), ctypes.byref(info))
            except MissingError:
                return found
            found.append(_fill(Snapshot, info))

    @property
    def kinds(self):
        """The kinds of text that were found in the stream: a list of ``Kind``, by number. They are those of the state
        that was opened; of a writer, of the last commit."""
        found = []
        while True:
            info = _c.KindInfo()
            try:
                self._call(_c.lib.reef_pool_read_kind, len(found), ctypes.byref(info))
            except MissingError:
                return found
            found.append(_fill(Kind, info, open=bool(info.open), learning=bool(info.learning),
                               merged_into=None if info.merged_into < 0 else info.merged_into))

    def visits(self, kind):
        """When a kind, by its number, learned: a list of ``Visit``, the oldest first. Pools without context memories
        know none."""
        found = []
        while True:
            info = _c.VisitInfo()
            try:
                self._call(_c.lib.reef_pool_read_visit, kind, len(found), ctypes.byref(info))
            except MissingError:
                if all(known.kind != kind for known in self.kinds):
                    raise
                return found
            found.append(_fill(Visit, info))

    def prune(self, keep_last, dry_run=False):
        """Give up the states as of all generations but the newest ``keep_last``; what these and snapshots are read from
        stays. Commits. Returns a ``Pruning``; with ``dry_run`` it only says what it would do.
        """
        info = _c.PruneInfo()
        self._call(_c.lib.reef_pool_prune, keep_last, int(dry_run), ctypes.byref(info))
        return _fill(Pruning, info)

    def name_kind(self, kind, name):
        """Commit, and give a kind, by its number, a name; None: it has none any more."""
        self._call(_c.lib.reef_pool_name_kind, kind, None if name is None else _c.text("name", name))

    def commit(self):
        """Everything trained so far onto the disk. Returns the number of the commit."""
        number = ctypes.c_uint64()
        self._call(_c.lib.reef_pool_commit, ctypes.byref(number))
        return number.value

    def seal(self, side=0):
        """Seal the open generation for good, and open the next, of ``side`` (a layer's; 0: as configured)."""
        self._call(_c.lib.reef_pool_seal, side)

    def grow(self, side):
        """More experts for the open generation, to ``side * side``."""
        self._call(_c.lib.reef_pool_grow, side)

    def snapshot(self, name):
        """Commit, and keep the state under a name."""
        self._call(_c.lib.reef_pool_snapshot, _c.text("name", name))

    def remove_snapshot(self, name):
        """Commit, and give a snapshot up."""
        self._call(_c.lib.reef_pool_remove_snapshot, _c.text("name", name))

    def freeze(self, layer=None, first=0, count=0, usage_above=0.0):
        """Let experts of the open generation learn no more: ``count`` from ``first`` on (0: to the end), of one layer
        or of all, and with ``usage_above`` only those used more than that quantile. Commits. Returns how many changed.
        """
        return self._freeze(False, layer, first, count, usage_above)

    def thaw(self, layer=None, first=0, count=0, usage_above=0.0):
        """Let frozen experts of the open generation learn again; as ``freeze``."""
        return self._freeze(True, layer, first, count, usage_above)

    def _freeze(self, thaw, layer, first, count, usage_above):
        options = _c.FreezeOptions(layer=-1 if layer is None else layer, thaw=thaw, first=first, count=count,
                                   usage_above=usage_above)
        changed = ctypes.c_uint64()
        self._call(_c.lib.reef_pool_freeze, ctypes.byref(options), ctypes.byref(changed))
        return changed.value

    def usage(self, generation, layer=0, since=None, until=None):
        """How often each expert was chosen in training up to the last commit: (counts, scores), by local id.

        ``since`` and ``until`` (a ``datetime``, or seconds since 1970) count a range of time, in the commits, hours and
        days that usage over time is kept by; each that touches the range counts as a whole.
        """
        experts = self._generation(generation).experts
        counts, scores = np.zeros(experts, np.uint64), np.zeros(experts, np.float64)
        self._call(_c.lib.reef_pool_usage, generation, layer, _milliseconds(since), _milliseconds(until),
                   counts.ctypes.data, scores.ctypes.data, experts)
        return counts, scores

    def incidents(self, last=None):
        """Incidents that rang in the lines of a pool made with ``watch=True``: a list of dicts as of ``GET
        /v1/incidents``, in the order in which they began, as of the last commit. At most the ``last`` ones.
        """
        if last is not None and last < 1:
            raise InvalidError(f"last is {last}; it must be 1 or more, or None for all")
        with self._handle as pointer:
            return _c.incidents(_c.lib.reef_pool_incidents, pointer, last or 0)

    def decide(self, incident, decision, for_s=None):
        """Commit, and say what an incident is, by its number: its types of lines are "normal" and never ring again,
        "mute" for ``for_s`` seconds by the times of lines (a week), or a "fault", and ring each time. Returns how many
        types it is about.
        """
        if for_s is None:
            for_s = 7 * 86400 if decision == "mute" else 0
        types = ctypes.c_uint64()
        self._call(_c.lib.reef_pool_decide, incident, _c.text("decision", decision), for_s, ctypes.byref(types))
        return types.value

    def _generation(self, number):
        info = _c.GenerationInfo()
        self._call(_c.lib.reef_pool_read_generation, number, ctypes.byref(info))
        return info


def _milliseconds(when):
    if when is None:
        return 0
    seconds = when.timestamp() if isinstance(when, datetime.datetime) else float(when)
    return max(1, int(seconds * 1000))


# ---- models of bytes -----------------------------------------------------------------------------


class Model(Pool):
    """A pool with a model of bytes."""

    def cursor(self, source="python"):
        """How much of a source was taken, in bytes: where to read on."""
        taken = ctypes.c_uint64()
        self._call(_c.lib.reef_pool_cursor, _c.text("source", source), ctypes.byref(taken))
        return taken.value

    @property
    def training(self):
        """Where training stands, a ``Training``."""
        info = _c.TrainingInfo()
        self._call(_c.lib.reef_pool_read_training, ctypes.byref(info))
        return _fill(Training, info)

    def train(self, data, source="python"):
        """Train on bytes, or on an iterable of bytes such as an open file: the next ones of that source.

        How they are cut changes nothing. What is left of a batch waits for the next call. Returns ``training``.
        """
        if isinstance(data, str):
            raise TypeError("a model is trained on bytes; encode the text")
        if isinstance(data, (bytes, bytearray, memoryview)):
            data = (data,)
        if not isinstance(data, collections.abc.Iterable):
            raise TypeError(f"cannot train on {type(data).__name__}; give bytes, or an iterable of bytes")
        name = _c.text("source", source)
        for chunk in data:
            if not isinstance(chunk, (bytes, bytearray, memoryview)):
                raise TypeError(f"cannot train on a chunk that is {type(chunk).__name__}; give bytes")
            view = np.frombuffer(chunk, np.uint8)
            self._call(_c.lib.reef_pool_train, name, view.ctypes.data, view.size)
        return self.training

    def evaluate(self, text, surprise=False):
        """Loss of a text (bytes) as of the state that was opened, an ``Evaluation``. A writer commits first.
        """
        view = np.frombuffer(text, np.uint8)
        bits = np.empty(view.size, np.float32) if surprise else None
        result = _c.EvaluationResult()
        self._call(_c.lib.reef_pool_evaluate, view.ctypes.data, view.size,
                 None if bits is None else bits.ctypes.data, ctypes.byref(result))
        return _fill(Evaluation, result, surprise=None if bits is None else bits[: result.bytes + 1])

    def answers(self, text, candidates=8):
        """Which kinds answer a text (bytes) as of the state that was opened: ``Answers``. A writer commits first.

        Of each byte at most ``candidates`` (1 to 8) are told, the likeliest first. Only in pools with context memories.
        """
        view = np.frombuffer(text, np.uint8)
        kinds = np.full((view.size, max(0, candidates)), -1, np.int32)
        weights = np.zeros(kinds.shape, np.float32)
        self._call(_c.lib.reef_pool_evaluate_kinds, view.ctypes.data, view.size, candidates, kinds.ctypes.data,
                   weights.ctypes.data, None)
        return Answers(kinds, weights)

    def score_lines(self, text):
        """How surprising each line is as of the state that was opened: a list of ``Line``. A writer commits first.

        ``text`` is bytes, or an iterable of lines such as an open file: bytes each, to which a newline is added where
        the last byte is none. Opened with ``frozen="alone"`` they are judged as by ``reef score --frozen``.
        """
        view, made, found = np.frombuffer(_joined(text), np.uint8), ctypes.c_void_p(), []
        self._call(_c.lib.reef_pool_score_lines, view.ctypes.data, view.size, ctypes.byref(made), None)
        try:
            while True:
                info = _c.LineInfo()
                try:
                    _c.check(_c.lib.reef_lines_read, made, len(found), ctypes.byref(info))
                except MissingError:
                    return found
                found.append(_fill(Line, info, kind=None if info.kind < 0 else info.kind))
        finally:
            _c.lib.reef_lines_free(made)

    def generate(self, prompt=b"", count=100, *, seed=1, temperature=0.0, top_p=0.0):
        """Continue a text (bytes) by ``count`` bytes; by the most likely ones where the temperature is 0."""
        out = ctypes.create_string_buffer(count)
        options = _c.GenerateOptions(seed=seed, temperature=temperature, top_p=top_p)
        prompt = bytes(prompt)
        self._call(_c.lib.reef_pool_generate, prompt, len(prompt), ctypes.byref(options), out, count)
        return out.raw


    def compress(self, text, *, as_of=None, piece_bytes=0, progress=None):
        """Code a text (bytes) by what the context memories learned. Returns the archive, bytes.

        ``as_of`` is a sealed generation or a snapshot. None is what the pool was opened as of, or else the newest of
        them. ``progress(done, total)`` is called now and then; where it raises, the call ends with that. It must not
        use the pool.
        """
        view, archive, count = np.frombuffer(text, np.uint8), ctypes.c_void_p(), ctypes.c_size_t()
        with _Coding(progress, as_of, piece_bytes) as options:
            self._call(_c.lib.reef_pool_compress, view.ctypes.data, view.size, options, ctypes.byref(archive),
                       ctypes.byref(count))
        try:
            return ctypes.string_at(archive, count.value)
        finally:
            _c.lib.reef_archive_free(archive)

    def expand(self, archive, begin=0, end=None, *, progress=None):
        """Bytes ``begin`` to ``end`` (None: its end) of the text of an archive."""
        view = np.frombuffer(archive, np.uint8)
        size = archive_facts(view).text_bytes
        end = size if end is None else end
        # The library says what is wrong with a range, before it writes anything.
        text = ctypes.create_string_buffer(max(0, min(end, size) - begin))
        with _Coding(progress) as options:
            self._call(_c.lib.reef_pool_expand, view.ctypes.data, view.size, begin, end, options, text)
        return text.raw

    def compress_file(self, path, out, *, as_of=None, piece_bytes=0, replace=False, progress=None):
        """The same from file to file; one that exists is left unless ``replace``. Returns the ``Archive``."""
        return self._code_file(_c.lib.reef_pool_compress_file, path, out,
                               _Coding(progress, as_of, piece_bytes, replace))

    def expand_file(self, path, out, *, replace=False, progress=None):
        """An archive to the file that it was made of; as ``compress_file``."""
        return self._code_file(_c.lib.reef_pool_expand_file, path, out, _Coding(progress, replace=replace))

    def _code_file(self, function, path, out, coding):
        facts = _c.ArchiveFacts()
        with coding as options:
            self._call(function, _path(path), _path(out), options, ctypes.byref(facts))
        return _archive(facts)


def _joined(text):
    """A text of bytes, or of lines one after the other."""
    if isinstance(text, str):
        raise TypeError("lines are scored as bytes; encode the text")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return text
    if not isinstance(text, collections.abc.Iterable):
        raise TypeError(f"cannot score {type(text).__name__}; give bytes, or an iterable of lines")
    lines = []
    for line in text:
        if not isinstance(line, (bytes, bytearray, memoryview)):
            raise TypeError(f"cannot score a line that is {type(line).__name__}; give bytes")
        line = bytes(line)
        if b"\n" in line[:-1]:
            raise InvalidError(f"line {len(lines) + 1} has a newline within it; give one line each, or all as bytes")
        lines.append(line if line.endswith(b"\n") else line + b"\n")
    return b"".join(lines)


class _Coding:
    """Options of a call, for as long as it lasts. What a progress function raises comes out of the call."""

    def __init__(self, progress, as_of=None, piece_bytes=0, replace=False):
        self._told, self._raised = progress, None
        self._options = _c.CodingOptions(as_of=_optional("as_of", as_of), piece_bytes=piece_bytes,
                                         replace=bool(replace))
        if progress is not None:
            self._options.progress = _c.Progress(self._tell)

    def _tell(self, _, done, total):
        try:
            self._told(done, total)
        except BaseException as raised:
            self._raised = raised
        return self._raised is not None

    def __enter__(self):
        return ctypes.byref(self._options)

    def __exit__(self, *exception):
        if self._raised is not None:
            raise self._raised from None


def archive_facts(archive):
    """What an archive (bytes) says of itself, an ``Archive``; needs no pool."""
    view, facts = np.frombuffer(archive, np.uint8), _c.ArchiveFacts()
    _c.check(_c.lib.reef_archive_read_facts, view.ctypes.data, view.size, ctypes.byref(facts))
    return _archive(facts)


def _archive(facts):
    return _fill(Archive, facts, snapshot=bool(facts.snapshot), pool=bytes(facts.pool),
                 text_hash=bytes(facts.text_hash))


# ---- one layer -----------------------------------------------------------------------------------


class Tape:
    """What one forward leaves for its backward; its memory is kept for the next."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        self.rows = None  # of its last forward: libreef reads and writes as many in the backward
        _c.check(_c.lib.reef_tape_new, ctypes.byref(self.handle))
        # Not at the end of the process: a call of another thread may use it.
        weakref.finalize(self, _c.lib.reef_tape_free, self.handle).atexit = False


class Layer(Pool):
    """A pool of one PEER layer: forward and backward on float32 arrays of (rows, d_model), in place."""

    def forward(self, x, *, generations=0, mask=None, train=False, tape=None, out=None):
        """y at x: the sum of what the first ``generations`` (0: all) add, or of those that a ``mask`` of
        (generations, rows) lets take part. ``train`` lets the open one learn from the backward of ``tape``. ``out`` is
        written: it is memory of its own.
        """
        self._check("x", x)
        if out is None:
            out = np.empty_like(x)
        self._check("out", out, x.shape, apart_from={"x": x})
        self.forward_at(len(x), x.ctypes.data, out.ctypes.data, generations, self._mask(mask, generations, len(x)),
                        train, tape)
        return out

    def forward_at(self, rows, x, y, generations=0, mask=None, train=False, tape=None):
        """The same on addresses of float32 rows; nothing is checked but what the library checks."""
        call = _c.LayerCall(generations=generations, train=train, mask=None if mask is None else mask.ctypes.data)
        self._call(_c.lib.reef_layer_forward, ctypes.byref(call), rows, x, y,
                 None if tape is None else tape.handle)
        if tape is not None:
            tape.rows = rows

    def backward(self, tape, x, d_y, out=None):
        """d_x from d_y, with the x of the tape's forward. Gradients of one that trains wait for ``step``. ``out`` is
        written: it is memory of its own.
        """
        self._check("x", x)
        self._check("d_y", d_y, x.shape)
        if tape.rows is not None and len(x) != tape.rows:
            raise InvalidError(f"x has {len(x)} rows, but the tape's forward had {tape.rows}; give the x of that forward")
        if out is None:
            out = np.empty_like(x)
        self._check("out", out, x.shape, apart_from={"x": x, "d_y": d_y})
        self.backward_at(tape, x.ctypes.data, d_y.ctypes.data, out.ctypes.data)
        return out

    def backward_at(self, tape, x, d_y, d_x):
        """The same on addresses."""
        self._call(_c.lib.reef_layer_backward, tape.handle, x, d_y, d_x)

    def step(self, learning_rate=0.0):
        """One step of the pool's optimiser on what the backwards collected; 0: at the pool's own rate."""
        self._call(_c.lib.reef_layer_step, learning_rate)

    def discard(self):
        """Forget what the backwards collected."""
        self._call(_c.lib.reef_layer_discard)

    def read(self, name, generation=None):
        """A parameter of a generation (None: the last) as an array; names as in reef/reef.h, such as "w_down"."""
        number = self.info.generations - 1 if generation is None else generation
        out = np.empty(self._shape(name, number), np.float32)
        self._call(_c.lib.reef_layer_read, number, _c.text("name", name), out.ctypes.data, out.size)
        return out

    def write(self, name, values):
        """Set a parameter of the open generation; what the optimiser knows of it begins again."""
        values = self.fitting(name, values)
        self._call(_c.lib.reef_layer_write, _c.text("name", name), values.ctypes.data, values.size)

    def fitting(self, name, values):
        """Values as ``write`` takes them for a parameter of the open generation: float32 of its shape."""
        shape = self._shape(name, self.info.generations - 1)
        values = np.ascontiguousarray(values, np.float32)
        if values.shape != shape:
            raise InvalidError(f"{name} has shape {shape}, not {values.shape}")
        return values

    def gradient(self, name):
        """The gradient of a parameter of the open generation that waits for the step."""
        out = np.empty(self._shape(name, self.info.generations - 1), np.float32)
        self._call(_c.lib.reef_layer_gradient, _c.text("name", name), out.ctypes.data, out.size)
        return out

    def _shape(self, name, generation):
        info, found = self.info, self._generation(generation)
        width = info.heads * info.d_key
        if name in ("w_down", "w_up", "w_gate"):
            return (found.experts, info.d_model)
        if name in ("sub_keys_a", "sub_keys_b"):
            return (found.side, info.d_key // 2)
        return (info.d_model, width) if name == "w_query" else (width,)

    def _check(self, name, array, shape=None, apart_from=None):
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            raise TypeError(f"{name} is {_kind(array)}; give a NumPy array of float32")
        if array.ndim != 2 or array.shape[1] != self.d_model:
            raise InvalidError(f"{name} has shape {array.shape}; give (rows, {self.d_model})")
        if shape is not None and array.shape != shape:
            raise InvalidError(f"{name} has shape {array.shape}, but x has {shape}")
        if not array.flags.c_contiguous:
            raise InvalidError(f"{name} is not contiguous; numpy.ascontiguousarray makes a copy that is")
        if apart_from is None:
            return
        if not array.flags.writeable:
            raise InvalidError(f"{name} cannot be written to")
        for other, input in apart_from.items():
            if np.shares_memory(array, input):
                raise InvalidError(f"{name} shares memory with {other}, which is read while {name} is written")

    def _mask(self, mask, generations, rows):
        return None if mask is None else check_mask(mask, generations or self.info.generations, rows)


def check_mask(mask, generations, rows):
    """A mask as bytes of (generations, rows)."""
    mask = np.ascontiguousarray(mask)
    if mask.dtype == np.bool_:
        mask = mask.view(np.uint8)
    if mask.dtype != np.uint8 or mask.shape != (generations, rows):
        raise InvalidError(f"the mask is {_kind(mask)} of shape {mask.shape}; give bool or uint8 of "
                           f"({generations}, {rows}): a row of the mask for each generation")
    return mask


def _kind(value):
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def expert_ids(side):
    """Local ids of experts by their keys: element (i, j) is that of row i of sub_keys_a and row j of sub_keys_b.

    Ids go in shells, so that a grid grows without changing any.
    """
    i, j = np.mgrid[0:side, 0:side]
    shell = np.maximum(i, j)
    return (shell * shell + np.where(i == shell, shell + (shell - j), i)).astype(np.uint32)
