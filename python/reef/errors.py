"""What can go wrong: one exception for each status of the library, also of the kind that Python has for it, if any."""


class ReefError(Exception):
    """Any failure of the library; the text says what was tried, on what, and why it failed."""


class InvalidError(ReefError, ValueError):
    """What was asked for makes no sense."""


class MissingError(ReefError, LookupError):
    """There is no such pool, generation or snapshot."""


class CorruptError(ReefError):
    """The pool is damaged: ``reef verify`` says where."""


class VersionError(ReefError):
    """The pool is of another format."""


class FullError(ReefError):
    """The disk, or a bound of the pool."""


class BusyError(ReefError):
    """Another process writes the pool; try again."""


class PoolMemoryError(ReefError, MemoryError):
    """There is no memory for it."""


class PoolOSError(ReefError, OSError):
    """The system failed to read or write."""


BY_STATUS = {1: InvalidError, 2: MissingError, 3: CorruptError, 4: VersionError, 5: FullError, 6: BusyError,
             7: PoolMemoryError, 8: PoolOSError}
