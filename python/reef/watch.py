"""Lines of logs, judged without a pool: what is new in them, and what of that a person should hear of."""

import ctypes
import datetime
import threading
import weakref
from dataclasses import dataclass

from . import _library as _c
from .errors import InvalidError


@dataclass(frozen=True)
class WatchCounts:
    """What a watch has read: ``lines`` = ``usual`` + ``in_events`` + ``suppressed``. ``learning`` is how many of the
    usual ones came before their source was judged; ``open`` counts incidents that ring and have not ended."""

    lines: int
    usual: int
    in_events: int
    suppressed: int
    learning: int
    incidents: int
    rung: int
    open: int
    types: int


class Watch:
    """Judges lines as ``reef watch --replay`` does. A context manager; ``close`` ends it.

    ``budget`` is how many incidents a day may ring (5), ``gap_s`` how near events of one incident are (60),
    ``quiet_s`` after how long without anything new a source is judged (3600), ``forget_days`` after how long without
    it something is new again (30); 0 is the default. ``near`` (a ``datetime``, or seconds since 1970) is what times
    without a year are near to, the present where it is None. Until ``since`` lines are learned only.

    Threads may share one: their calls take turns.
    """

    def __init__(self, *, budget=0.0, gap_s=0, quiet_s=0, forget_days=0, near=None, since=None):
        options = _c.WatcherOptions(budget=budget, gap_s=gap_s, quiet_s=quiet_s, forget_days=forget_days,
                                    near_ms=_time("near", near), since_ms=_time("since", since))
        self._turn = threading.Lock()
        self._pointer = ctypes.c_void_p()
        _c.check(_c.lib.reef_watcher_new, ctypes.byref(self._pointer), ctypes.byref(options))
        self._free = weakref.finalize(self, _c.lib.reef_watcher_free, self._pointer)
        self._free.atexit = False  # a call of another thread may use it

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """No further call may use it; what was not taken is lost."""
        with self._turn:
            self._free()

    def line(self, line, source="python", time=None):
        """Judge the next line (bytes, with or without its newline) of a source, and learn it. Lines come in the order
        of their times, about. ``time`` is a ``datetime`` or seconds since 1970; None is that at the head of the line,
        or else as the line before it.

        Returns the incidents that began to ring ("state" is "open") or ended meanwhile: a list of dicts, as those of
        ``Pool.incidents``.
        """
        if not isinstance(line, (bytes, bytearray, memoryview)):
            raise TypeError(f"cannot judge a line that is {type(line).__name__}; give bytes")
        line, name, time_ms = bytes(line), _c.text("source", source), _time("time", time)
        with self._turn:
            self._check()
            _c.check(_c.lib.reef_watcher_line, self._pointer, name, line, len(line), time_ms)
            return _c.incidents(_c.lib.reef_watcher_take, self._pointer)

    def finish(self):
        """Nothing comes any more: what is open ends. Returns these incidents."""
        with self._turn:
            self._check()
            _c.check(_c.lib.reef_watcher_finish, self._pointer)
            return _c.incidents(_c.lib.reef_watcher_take, self._pointer)

    @property
    def counts(self):
        """What it has read, a ``WatchCounts``."""
        counts = _c.WatcherCounts()
        with self._turn:
            self._check()
            _c.check(_c.lib.reef_watcher_read_counts, self._pointer, ctypes.byref(counts))
        return WatchCounts(**{name: getattr(counts, name) for name in WatchCounts.__dataclass_fields__})

    def _check(self):
        if not self._free.alive:
            raise InvalidError("the watch was closed")


def _time(name, when):
    """Milliseconds since 1970; 0: not given."""
    if when is None:
        return 0
    seconds = when.timestamp() if isinstance(when, datetime.datetime) else float(when)
    if not 0 < seconds < 1e15:
        raise InvalidError(f"{name} is {when}; it must be after 1970")
    return max(1, round(seconds * 1000))
