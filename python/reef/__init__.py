"""Reef: pools of tiny experts that grow in generations and do not forget.

A pool is a directory. It holds a model of bytes, to train and to evaluate, or one PEER layer, to stand in a network of
your own (``reef.torch`` makes a PyTorch module of it). Everything is computed by ``libreef``; arrays
are NumPy's and are read and written in place.

>>> with reef.create("pool", layers=2) as pool:
...     pool.train(open("text", "rb"))
...     pool.seal()
...     pool.evaluate(b"some text").bits_per_byte
"""

from ._library import library_version
from .errors import (BusyError, CorruptError, FullError, InvalidError, MissingError, PoolMemoryError,
                     PoolOSError, ReefError, VersionError)
from .pool import (Answers, Archive, Evaluation, Generation, Info, Kind, Layer, Line, Model, Pool, Pruning,
                   Snapshot, Tape, Training, Visit, archive_facts, create, create_layer,
                   expert_ids, open)
from .watch import Watch, WatchCounts

__version__ = "0.1.0"
__all__ = ["Answers", "Archive", "BusyError", "CorruptError", "Evaluation", "FullError", "Generation", "Info",
           "InvalidError", "Kind", "Layer", "Line", "MissingError", "Model", "Pool", "PoolMemoryError", "PoolOSError",
           "Pruning", "ReefError", "Snapshot", "Tape", "Training", "VersionError", "Visit",
           "Watch", "WatchCounts",
           "archive_facts", "create", "create_layer", "expert_ids", "library_version", "open"]
