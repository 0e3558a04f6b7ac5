"""What a release publishes of its training without holding it: steps that can be asked for, records that cannot.

Steps are computed again from the training set whenever they are asked for, so something must keep that set. It is kept
in this module, under a number, and an object that is handed to an attack holds the number alone: no attribute, closure
or frame that can be reached from it leads to a record. It is freed with the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from lostwax.types.games import Step

_numbers = count()
_histories: dict[int, Callable[[], Iterator[Step]]] = {}
_under_way: dict[int, Iterator[Step]] = {}


@final
class SealedSteps:
    """`steps()` as before, and nothing to see inside. Copies are the object itself; it cannot be pickled."""

    __slots__ = ("_number",)

    def __init__(self, steps: Callable[[], Iterator[Step]]) -> None:
        self._number = next(_numbers)
        _histories[self._number] = steps

    def __call__(self) -> Iterator[Step]:
        """Every step, computed again."""
        return _Telling(_histories[self._number]())

    def __deepcopy__(self, memo: object) -> SealedSteps:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> str:
        raise TypeError(
            "release.steps: they are computed from the training set, which cannot leave this process. Keep "
            "list(release.steps()), or release.params alone."
        )

    def __del__(self) -> None:
        _histories.pop(self._number, None)


@final
class _Telling(Iterator["Step"]):
    """One pass over the steps: the generator, whose frame holds the training set, is kept under a number too."""

    __slots__ = ("_number",)

    def __init__(self, steps: Iterator[Step]) -> None:
        self._number = next(_numbers)
        _under_way[self._number] = iter(steps)

    def __next__(self) -> Step:
        return next(_under_way[self._number])

    def __del__(self) -> None:
        _under_way.pop(self._number, None)
