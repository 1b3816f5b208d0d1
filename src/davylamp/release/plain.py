"""Next-token rows of any release that gives conditionals; loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from davylamp.release.base import Release


class PlainPrefix:
    """The same rows of a release that cannot do better than read prefix and continuation whole."""

    def __init__(self, release: Release, prefix: Sequence[int]) -> None:
        """Take a release and the tokens of a prefix."""
        self._release, self._prefix = release, tuple(prefix)

    def rows(self, paths: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token after prefix and path, shape (paths, vocabulary).

        Raises:
            PrefixError: prefix and path are longer than the context, or an answer is not finite.
        """
        return self._release.conditionals([(*self._prefix, *path) for path in paths])
