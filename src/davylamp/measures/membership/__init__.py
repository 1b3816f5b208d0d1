"""Membership scores: which there are, what they read, and the measure that takes them."""

from davylamp.measures.membership import scores  # noqa: F401 - registers the built-in ones
from davylamp.measures.membership.evidence import Evidence
from davylamp.measures.membership.registry import score
from davylamp.measures.membership.settings import MembershipSettings

__all__ = ["Evidence", "MembershipSettings", "score"]
