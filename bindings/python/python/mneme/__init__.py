"""Named stores and arrays that processes share without copying.

``attach(name)`` opens the store that a server or another program has made, ``create(name)`` and
``open_or_create(name)`` make one, ``Store(capacity)`` is a store in this process alone.
``Segment`` is named memory with numpy arrays in it.

Keys are bytes-like objects or ``str``, whose UTF-8 is the key; values are bytes-like objects and
come back as ``bytes``. Each refusal is a subclass of ``Error``.
"""

import atexit as _atexit

from . import _mneme
from ._mneme import (
    Closed,
    Conflict,
    Damaged,
    Error,
    Exists,
    Forked,
    Full,
    Hash,
    Internal,
    InUse,
    InvalidArgument,
    List,
    Nested,
    NotFound,
    NotPermitted,
    Poisoned,
    ReadOnly,
    Section,
    Segment,
    Set,
    SortedSet,
    Stale,
    Stalled,
    Store,
    Transaction,
    Unavailable,
    __version__,
    attach,
    create,
    default_registry,
    open_or_create,
)

__all__ = [
    "Closed",
    "Conflict",
    "Damaged",
    "Error",
    "Exists",
    "Forked",
    "Full",
    "Hash",
    "InUse",
    "Internal",
    "InvalidArgument",
    "List",
    "Nested",
    "NotFound",
    "NotPermitted",
    "Poisoned",
    "ReadOnly",
    "Section",
    "Segment",
    "Set",
    "SortedSet",
    "Stale",
    "Stalled",
    "Store",
    "Transaction",
    "Unavailable",
    "__version__",
    "attach",
    "create",
    "default_registry",
    "open_or_create",
]

_atexit.register(_mneme._close_all)


def _attach_again(name, writable, registry, number):
    store = attach(name, writable=writable, registry=registry)
    return store.database(number) if number else store


def _open_again(name, writable, registry):
    return Segment.open(name, writable=writable, registry=registry)
