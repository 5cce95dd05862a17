"""A trace of the model: its intermediate tensors by name.

With `trace=None` modules run their fast path. With a TensorTrace they run the readable path and
record each step under its own name: `trace["decoder.2.cross.weights"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor

from pellucid.errors import InputError

DEFAULT_MAX_BYTES = 256 * 2**20


class TraceFullError(InputError):
    """The trace would take more memory than it may."""


class TensorTrace(Mapping[str, Tensor]):
    """Recorded tensors by path, e.g. `encoder.0.self.weights`.

    Tensors are kept by reference, not copied, and count once, however many views of them are
    recorded. What follows from other tensors is kept as a function and computed on access.

    max_bytes: memory limit; recording more raises TraceFullError.
    only: record only the paths that match one of these patterns, e.g. `["*.cross.weights"]`.
    """

    def __init__(
        self, *, max_bytes: int = DEFAULT_MAX_BYTES, only: Sequence[str] | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self.only = only
        self._prefix = ""
        self._values: dict[str, Tensor | Callable[[], Tensor]] = {}
        self._storages: dict[int, int] = {}

    def at(self, name: str) -> TensorTrace:
        """Return the same trace for a part of the model: its names are prefixed with `name.`."""
        inner = object.__new__(TensorTrace)
        inner.__dict__.update(self.__dict__)
        inner._prefix = f"{self._prefix}{name}."
        return inner

    def record(self, name: str, value: Tensor | Callable[[], Tensor]) -> None:
        """Record a tensor, or a function that computes it from recorded tensors."""
        path = self._prefix + name
        if self.only is not None and not any(fnmatchcase(path, p) for p in self.only):
            return
        if isinstance(value, Tensor):
            value = value.detach()
            storage = value.untyped_storage()
            self._storages[storage.data_ptr()] = storage.nbytes()
            if self.bytes > self.max_bytes:
                raise TraceFullError(
                    f"the trace is full at {path!r} ({self.max_bytes / 2**20:.0f} MB): shorten "
                    "the sentence, raise max_bytes, or record less with only=['*.weights']"
                )
        self._values[path] = value

    @property
    def bytes(self) -> int:
        """Memory of the recorded tensors."""
        return sum(self._storages.values())

    def names(self, pattern: str = "*") -> list[str]:
        """Return the recorded paths that match a pattern, in the order of computation."""
        return [path for path in self if fnmatchcase(path, pattern)]

    def __getitem__(self, path: str) -> Tensor:
        value = self._values[self._prefix + path]
        return value if isinstance(value, Tensor) else value().detach()

    def __iter__(self) -> Iterator[str]:
        start = len(self._prefix)
        return (path[start:] for path in self._values if path.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"TensorTrace({len(self)} tensors, {self.bytes / 2**20:.1f} MB)"


def inside(trace: TensorTrace | None, name: str) -> TensorTrace | None:
    """Return `trace.at(name)`, or None without a trace."""
    return None if trace is None else trace.at(name)
