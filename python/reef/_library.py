"""libreef through ctypes: the functions and structs of reef/reef.h, and statuses as exceptions.

Calls release Python's lock while they compute.
"""

import ctypes
import ctypes.util
import json
import operator
import os
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof)

from .errors import BY_STATUS, InvalidError, ReefError


def whole(name, value, kind):
    """An integer that its type holds; of another one ctypes would take the low bits."""
    value, signed = operator.index(value), kind(-1).value < 0
    limit = 1 << (8 * sizeof(kind) - signed)
    if not -limit * signed <= value < limit:
        raise InvalidError(f"{name} is {value}; it must be from {-limit * signed} to {limit - 1}")
    return value


def unbroken(name, encoded):
    """Bytes of a text as the library takes it: up to a NUL."""
    if b"\0" in encoded:
        raise InvalidError(f"{name} is {encoded}, which has a NUL in it")
    return encoded


def text(name, value):
    """The same of anything that can be a text."""
    return unbroken(name, str(value).encode())


class Sized(Structure):
    """A struct that begins with its size, which tells the library how much of it there is."""

    def __init__(self, **fields):
        kinds = dict(self._fields_)
        for name, value in fields.items():
            if kinds.get(name) in (c_int32, c_int64, c_uint32, c_uint64):
                fields[name] = whole(name, value, kinds[name])
        super().__init__(sizeof(type(self)), **fields)


class LayerOptions(Sized):
    _fields_ = [("size", c_size_t), ("d_model", c_uint32), ("heads", c_uint32), ("topk", c_uint32),
                ("d_key", c_uint32), ("side", c_uint32), ("expert", c_char_p),
                ("score", c_char_p), ("seal_dtype", c_char_p), ("no_batch_norm", c_int32), ("seed", c_uint64),
                ("experts_max", c_uint64), ("learning_rate", c_float), ("expert_rate", c_float),
                ("beta1", c_float), ("beta2", c_float), ("epsilon", c_float), ("clip", c_float)]


class PoolOptions(Sized):
    _fields_ = [("size", c_size_t), ("write", c_int32), ("as_of", c_char_p), ("threads", c_uint32),
                ("memory_bytes", c_uint64), ("frozen", c_int32)]


class PoolInfo(Sized):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("expert", c_char_p), ("score", c_char_p),
                ("writing", c_int32), ("layers", c_uint32), ("d_model", c_uint32), ("heads", c_uint32),
                ("topk", c_uint32), ("d_key", c_uint32), ("generations", c_uint32), ("experts", c_uint64),
                ("commit", c_uint64), ("step", c_uint64), ("position", c_uint64), ("collected", c_uint64)]


class GenerationInfo(Sized):
    _fields_ = [("size", c_size_t), ("generation", c_uint32), ("side", c_uint32), ("sealed", c_int32),
                ("experts", c_uint64), ("first_expert", c_uint64), ("opened_step", c_uint64),
                ("sealed_step", c_uint64), ("opened_at", c_uint64), ("sealed_at", c_uint64)]


class SnapshotInfo(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char * 72), ("commit", c_uint64), ("step", c_uint64),
                ("position", c_uint64), ("unix_ms", c_uint64), ("generations", c_uint32)]


class KindInfo(Sized):
    _fields_ = [("size", c_size_t), ("kind", c_uint32), ("name", c_char * 72), ("open", c_int32), ("learning", c_int32),
                ("began_at", c_uint64), ("learned_bytes", c_uint64), ("learned_at", c_uint64), ("visits", c_uint64),
                ("first_loss", c_double), ("last_loss", c_double), ("merged_into", c_int64),
                ("began_ms", c_uint64)]


class VisitInfo(Sized):
    _fields_ = [("size", c_size_t), ("visits", c_uint64), ("begin", c_uint64), ("end", c_uint64),
                ("learned_bytes", c_uint64), ("loss", c_double)]


class PruneInfo(Sized):
    _fields_ = [("size", c_size_t), ("states", c_uint64), ("visits", c_uint64), ("bytes", c_uint64)]


class LayerCall(Sized):
    _fields_ = [("size", c_size_t), ("generations", c_uint32), ("train", c_int32), ("mask", c_void_p)]


class FreezeOptions(Sized):
    _fields_ = [("size", c_size_t), ("layer", c_int32), ("thaw", c_int32), ("first", c_uint64), ("count", c_uint64),
                ("usage_above", c_double)]


class GenerateOptions(Sized):
    _fields_ = [("size", c_size_t), ("seed", c_uint64), ("temperature", c_float), ("top_p", c_float)]


class TrainingInfo(Sized):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("position", c_uint64), ("waiting", c_uint64),
                ("generation", c_uint32), ("bits_per_byte", c_double),
                ("last_bits_per_byte", c_double), ("learning_rate", c_double)]


class EvaluationResult(Sized):
    _fields_ = [("size", c_size_t), ("bytes", c_uint64), ("bits", c_double), ("bits_per_byte", c_double)]


class LineInfo(Sized):
    _fields_ = [("size", c_size_t), ("line", c_uint64), ("offset", c_uint64), ("bytes", c_uint64), ("bits", c_double),
                ("bits_per_byte", c_double), ("score", c_double), ("kind", c_int64)]


class WatcherOptions(Sized):
    _fields_ = [("size", c_size_t), ("budget", c_double), ("gap_s", c_uint32), ("quiet_s", c_uint32),
                ("forget_days", c_uint32), ("near_ms", c_int64), ("since_ms", c_int64)]


class WatcherCounts(Sized):
    _fields_ = [("size", c_size_t), ("lines", c_uint64), ("usual", c_uint64), ("in_events", c_uint64),
                ("suppressed", c_uint64), ("learning", c_uint64), ("incidents", c_uint64), ("rung", c_uint64),
                ("open", c_uint64), ("types", c_uint64)]


Progress = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)


class CodingOptions(Sized):
    _fields_ = [("size", c_size_t), ("as_of", c_char_p), ("piece_bytes", c_uint32), ("replace", c_int32),
                ("progress", Progress), ("context", c_void_p)]


class ArchiveFacts(Sized):
    _fields_ = [("size", c_size_t), ("state", c_char * 72), ("snapshot", c_int32), ("piece_bytes", c_uint32),
                ("pieces", c_uint32), ("raw_pieces", c_uint32), ("position", c_uint64), ("text_bytes", c_uint64),
                ("archive_bytes", c_uint64), ("pool", c_uint8 * 16), ("text_hash", c_uint8 * 16)]


class Error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 256)]


# Functions that return a status, without the error that all of them end with. Integers with names are a caller's.
_CHECKED = {
    "reef_pool_create_layer": [c_char_p, POINTER(LayerOptions)],
    "reef_pool_create_model": [c_char_p, POINTER(c_char_p)],
    "reef_pool_open": [POINTER(c_void_p), c_char_p, POINTER(PoolOptions)],
    "reef_pool_read_info": [c_void_p, POINTER(PoolInfo)],
    "reef_pool_read_generation": [c_void_p, ("generation", c_uint32), POINTER(GenerationInfo)],
    "reef_pool_commit": [c_void_p, POINTER(c_uint64)],
    "reef_pool_seal": [c_void_p, ("side", c_uint32)],
    "reef_pool_grow": [c_void_p, ("side", c_uint32)],
    "reef_pool_freeze": [c_void_p, POINTER(FreezeOptions), POINTER(c_uint64)],
    "reef_pool_snapshot": [c_void_p, c_char_p],
    "reef_pool_remove_snapshot": [c_void_p, c_char_p],
    "reef_pool_read_snapshot": [c_void_p, c_size_t, POINTER(SnapshotInfo)],
    "reef_pool_read_kind": [c_void_p, c_size_t, POINTER(KindInfo)],
    "reef_pool_name_kind": [c_void_p, ("kind", c_uint32), c_char_p],
    "reef_pool_read_visit": [c_void_p, ("kind", c_uint32), c_size_t, POINTER(VisitInfo)],
    "reef_pool_prune": [c_void_p, ("keep_last", c_uint32), c_int32, POINTER(PruneInfo)],
    "reef_pool_usage": [c_void_p, ("generation", c_uint32), ("layer", c_uint32), ("since_ms", c_uint64),
                                ("until_ms", c_uint64), c_void_p, c_void_p, c_size_t],
    "reef_tape_new": [POINTER(c_void_p)],
    "reef_layer_forward": [c_void_p, POINTER(LayerCall), ("rows", c_size_t), c_void_p, c_void_p, c_void_p],
    "reef_layer_backward": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
    "reef_layer_step": [c_void_p, c_float],
    "reef_layer_discard": [c_void_p],
    "reef_layer_read": [c_void_p, ("generation", c_uint32), c_char_p, c_void_p, c_size_t],
    "reef_layer_write": [c_void_p, c_char_p, c_void_p, c_size_t],
    "reef_layer_gradient": [c_void_p, c_char_p, c_void_p, c_size_t],
    "reef_pool_train": [c_void_p, c_char_p, c_void_p, c_size_t],
    "reef_pool_cursor": [c_void_p, c_char_p, POINTER(c_uint64)],
    "reef_pool_read_training": [c_void_p, POINTER(TrainingInfo)],
    "reef_pool_evaluate": [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(EvaluationResult)],
    "reef_pool_evaluate_kinds": [c_void_p, c_void_p, c_size_t, ("candidates", c_uint32), c_void_p, c_void_p,
                                 POINTER(EvaluationResult)],
    "reef_pool_generate": [c_void_p, c_char_p, c_size_t, POINTER(GenerateOptions), c_void_p, c_size_t],
    "reef_pool_score_lines": [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(EvaluationResult)],
    "reef_lines_read": [c_void_p, c_size_t, POINTER(LineInfo)],
    "reef_pool_incidents": [c_void_p, ("last", c_uint64), POINTER(c_void_p)],
    "reef_pool_decide": [c_void_p, ("incident", c_uint64), c_char_p, ("for_s", c_int64), POINTER(c_uint64)],
    "reef_watcher_new": [POINTER(c_void_p), POINTER(WatcherOptions)],
    "reef_watcher_line": [c_void_p, c_char_p, c_void_p, c_size_t, ("time_ms", c_int64)],
    "reef_watcher_finish": [c_void_p],
    "reef_watcher_take": [c_void_p, POINTER(c_void_p)],
    "reef_watcher_read_counts": [c_void_p, POINTER(WatcherCounts)],
    "reef_pool_compress": [c_void_p, c_void_p, c_size_t, POINTER(CodingOptions), POINTER(c_void_p), POINTER(c_size_t)],
    "reef_pool_compress_file": [c_void_p, c_char_p, c_char_p, POINTER(CodingOptions), POINTER(ArchiveFacts)],
    "reef_pool_expand": [c_void_p, c_void_p, c_size_t, ("begin", c_uint64), ("end", c_uint64), POINTER(CodingOptions),
                         c_void_p],
    "reef_pool_expand_file": [c_void_p, c_char_p, c_char_p, POINTER(CodingOptions), POINTER(ArchiveFacts)],
    "reef_archive_read_facts": [c_void_p, c_size_t, POINTER(ArchiveFacts)],
}
# And the others: result, arguments.
_PLAIN = {
    "reef_library_version": (c_char_p, []),
    "reef_pool_close": (None, [c_void_p]),
    "reef_tape_free": (None, [c_void_p]),
    "reef_archive_free": (None, [c_void_p]),
    "reef_lines_free": (None, [c_void_p]),
    "reef_text_free": (None, [c_void_p]),
    "reef_watcher_free": (None, [c_void_p]),
    "reef_expert_id_of": (c_uint32, [c_uint32, c_uint32]),
    "reef_expert_pair_of": (None, [c_uint32, POINTER(c_uint32), POINTER(c_uint32)]),
}


def _load():
    tried, named = [], os.environ.get("REEF_LIBRARY")
    for name in (named,) if named else ("libreef.so.0", ctypes.util.find_library("reef")):
        if not name:
            continue
        try:
            return ctypes.CDLL(name)
        except OSError as reason:
            tried.append(f"{name}: {reason}")
    raise ImportError("libreef was not found; install it (cmake --install), or name the file in the "
                      "environment variable REEF_LIBRARY. Tried " + "; ".join(tried))


lib = _load()
for _name, _arguments in _CHECKED.items():
    _function = getattr(lib, _name)
    _function.whole = [(place, *kind) for place, kind in enumerate(_arguments) if isinstance(kind, tuple)]
    _types = [kind[1] if isinstance(kind, tuple) else kind for kind in _arguments]
    _function.restype, _function.argtypes = c_int, _types + [POINTER(Error)]
for _name, (_result, _arguments) in _PLAIN.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


def check(function, *arguments):
    """Call a function that returns a status; a failure becomes its exception."""
    error, arguments = Error(), list(arguments)
    for place, name, kind in function.whole:
        arguments[place] = whole(name, arguments[place], kind)
    status = function(*arguments, byref(error))
    if status != 0:
        raise BY_STATUS.get(status, ReefError)(error.message.decode(errors="replace"))


def incidents(function, *arguments):
    """Call a function that writes incidents as JSON: a list of dicts. No text is none."""
    made = c_void_p()
    check(function, *arguments, byref(made))
    if not made:
        return []
    try:
        return json.loads(ctypes.string_at(made))["incidents"]
    finally:
        lib.reef_text_free(made)


# Of what handles know of their calls. A finalizer or a signal handler may close a pool in a thread that has it already;
# and a child that another thread forks meanwhile finds it free.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Handle:
    """A pool of the library. A call holds it with ``with``; it ends when it was closed and no call holds it."""

    def __init__(self, pointer, path):
        self.closed = False
        self._pointer, self._path = pointer, path
        self._holds = 1  # calls, and one until it is closed
        self._ended, self._process = threading.Event(), os.getpid()

    def __enter__(self):
        with _lock:
            if self.closed:
                raise InvalidError(f"pool {self._path} was closed")
            self._holds += 1
        return self._pointer

    def __exit__(self, *exception):
        with _lock:
            self._holds -= 1
            last = self._holds == 0
        if last:
            try:
                lib.reef_pool_close(self._pointer)
            finally:
                self._ended.set()

    def close(self):
        """No further call may hold it."""
        with _lock:
            first, self.closed = not self.closed, True
        if first:
            self.__exit__()

    def end(self):
        """Close it, and wait for the last call: a process that ended meanwhile would take away what that computes with."""
        self.close()
        if os.getpid() == self._process:  # to a child, calls of its parent never end
            self._ended.wait()


def library_version():
    """Version of libreef, such as "0.1.0"."""
    return lib.reef_library_version().decode()
