"""Exact releases: small finite models whose true answers are known in closed form, asked like any other release.

Each construction of P1 (*Memorization Is Not Extraction*, arXiv 2608.27782) is a value with its parameters, its truths
and ``release(setting, seed)``. Loads no torch.
"""

from davylamp.release.exact.camouflage import Camouflage, CamouflageTree
from davylamp.release.exact.laws import ListLaw, SecretLaw, UniformLaw
from davylamp.release.exact.mechanisms import MembershipBinary, RandomisedResponseCanary, SubsetCanary
from davylamp.release.exact.model import ExactRelease, base, prior
from davylamp.release.exact.setting import ExactSetting
from davylamp.release.exact.tokenizer import ExactTokenizer
from davylamp.release.exact.trigger import Trigger, copied, trigger_randomised

CONSTRUCTIONS = {
    kind.name: kind for kind in (Camouflage, Trigger, MembershipBinary, RandomisedResponseCanary, SubsetCanary)
}
"""The constructions by name."""

__all__ = [
    "CONSTRUCTIONS",
    "Camouflage",
    "CamouflageTree",
    "ExactRelease",
    "ExactSetting",
    "ExactTokenizer",
    "ListLaw",
    "MembershipBinary",
    "RandomisedResponseCanary",
    "SecretLaw",
    "SubsetCanary",
    "Trigger",
    "UniformLaw",
    "base",
    "copied",
    "prior",
    "trigger_randomised",
]
