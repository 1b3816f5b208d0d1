"""What is kept of the shadows of constructions, beside their scores."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ShadowMemorization(_Strict):
    """Counterfactual memorization at c: shadows with an instance less those without it, in mean over the instances.

    Attributes:
        score: ``h``, mean probability of a token, or ``loss``, one less the truncated loss; both in [0, 1].
        instances: planted ones and twins: coins fall for both.
        mean: of all of them; of pairs, *without* is with the other secret.
        error: its standard error, from the spread of the pairs of shadows.
        floor: what 95% of such means stay below where there is nothing but noise, sign aside.
    """

    score: str
    instances: int
    mean: float
    error: float
    floor: float


class ShadowNote(_Strict):
    """The shadows that LiRA rests on.

    Attributes:
        shadows: how many; each instance is in half of them. 0 where only gates were planted, which train nothing.
        background: ``corpus`` where the rows that instances left are the corpus's own, ``planted`` where they are
            other background rows of the planted file.
        keys: of their files in ``shadows/``.
        notes: what a reader must know.
    """

    shadows: int
    background: Literal["corpus", "planted"]
    keys: tuple[str, ...]
    notes: tuple[str, ...] = ()
