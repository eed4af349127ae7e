"""The smallest model that still shows a fault: delta debugging of nodes, outputs, values and dimensions.

    12 nodes … shows → 6 → 3 → 1        halves and their complements are tried, then smaller parts (Zeller, ddmin)
    [2, 3, 224, 224] → [1, 3, 1, 1]     sizes, then zeros and ones in place of values

An oracle says of each candidate whether the fault shows. Candidates come in an order that depends on the model only, so
the result does too, unless time ends the search. What is accepted is handed on at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from dlc.debug.onnx_cut import Case, tensor_values

Shows = Callable[[Case], bool]


class OutOfTimeError(Exception):
    """The budget is used up."""


def minimised(count: int, shows: Callable[[Sequence[int]], bool]) -> list[int]:
    """A subset of `range(count)` that still shows a fault, of which no single element can be left out."""
    kept = list(range(count))
    chunk = max(1, len(kept) // 2)
    while len(kept) > 1:
        parts = [kept[k : k + chunk] for k in range(0, len(kept), chunk)]
        smaller = next((p for p in parts if len(p) < len(kept) and shows(p)), None)
        if smaller is None:
            rests = ([k for k in kept if k not in p] for p in parts) if len(parts) > 2 else ()
            smaller = next((rest for rest in rests if rest and shows(rest)), None)
        if smaller is not None:
            kept = smaller
            chunk = max(1, min(chunk, len(kept) // 2))
        elif chunk == 1:
            break
        else:
            chunk //= 2
    return kept


@dataclass
class Reducer:
    """Makes a case smaller as long as the fault shows.

    Attributes:
        best: The smallest case so far.
        shows: The oracle.
        accepted: Handed every case that is smaller and shows the fault.
        tell: Told what is tried now.
        is_over: Whether time is up.
        tested: Candidates that the oracle judged.
    """

    best: Case
    shows: Shows
    accepted: Callable[[Case], object]
    tell: Callable[[str], object] = str
    is_over: Callable[[], bool] = lambda: False
    tested: int = 0
    _known: dict[bytes, bool] = field(default_factory=dict[bytes, bool])

    def run(self) -> bool:
        """Reduce until nothing gets smaller; False: time was up before."""
        try:
            while True:
                before = self.best.size
                self._nodes()
                self._outputs()
                self._dimensions()
                if self.best.size == before:
                    break
            self._values()
        except OutOfTimeError:
            return False
        return True

    def _try(self, case: Case | None, what: str) -> bool:
        """Whether a candidate shows the fault; it is then the best."""
        if case is None or not case.nodes or not case.outputs:
            return False
        if self.is_over():
            raise OutOfTimeError
        digest = sha256(case.to_bytes())
        for name, array in sorted(case.feeds.items()):
            digest.update(name.encode() + array.tobytes())
        key = digest.digest()
        if key not in self._known:
            self.tested += 1
            self.tell(f"candidate {self.tested}: {what}; best {len(self.best.nodes)} nodes")
            self._known[key] = self.shows(case)
        if self._known[key]:
            self.best = case
            self.accepted(case)
        return self._known[key]

    def _nodes(self) -> None:
        whole = self.best

        def shows(kept: Sequence[int]) -> bool:
            return self._try(whole.keeping(kept, lambda names: tensor_values(whole, names)), f"{len(kept)} nodes")

        minimised(len(whole.nodes), shows)

    def _outputs(self) -> None:
        whole = self.best

        def shows(kept: Sequence[int]) -> bool:
            return self._try(whole.with_outputs([whole.outputs[k] for k in kept]), f"{len(kept)} outputs")

        minimised(len(whole.outputs), shows)

    def _dimensions(self) -> None:
        for old in self.best.dimensions():
            for new in dict.fromkeys((1, 2, old // 2)):
                if new < old and self._try(self.best.with_dimension(old, new), f"dimension {old} as {new}"):
                    break

    def _values(self) -> None:
        for name in (*self.best.constants, *self.best.feeds):
            for value in (0.0, 1.0):
                if self._try(self.best.with_value(name, value), f"{name} of {value:g}"):
                    break
