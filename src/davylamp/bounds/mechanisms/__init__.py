"""Releases with known laws: samplers, exact trade-off curves and exact extraction rates.

Each mechanism names the claim that it satisfies and gives the exact curve of every neighbouring pair, in both orders.
Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Lemma 4.4, Lemma 5.2.
"""

from davylamp.bounds.mechanisms.bits import BernoulliStaircase, RandomisedResponse
from davylamp.bounds.mechanisms.counts import GeometricCount, LaplaceCount
from davylamp.bounds.mechanisms.lists import SubsetRelease, list_success, top_list
from davylamp.bounds.mechanisms.pairs import Mechanism, neyman_pearson_curve

__all__ = [
    "BernoulliStaircase",
    "GeometricCount",
    "LaplaceCount",
    "Mechanism",
    "RandomisedResponse",
    "SubsetRelease",
    "list_success",
    "neyman_pearson_curve",
    "top_list",
]
