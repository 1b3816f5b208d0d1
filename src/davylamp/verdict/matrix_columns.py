"""The audits of the matrix, from what each asks and reads to what follows that it cannot see."""

from __future__ import annotations

from davylamp.verdict.matrix_model import MatrixColumn

OWN = "the record's own prefix"
_TRIGGER = "a secret behind a trigger, a paraphrase, or another record's prompt"

PREFIX = MatrixColumn(
    key="extraction",
    title="extraction at c",
    signal="share of the secrets that greedy decoding says after their own prefix c",
    access=("generate",),
    channel=OWN,
    local=True,
    knows=False,
    blind=f"Cannot see {_TRIGGER}; and takes what a guesser would say for a leak.",
)
LOSS = MatrixColumn(
    key="loss_mia",
    title="loss MIA, strongest",
    signal="2 AUC - 1 of the score with the largest AUC, members against twins",
    access=("logprobs", "reference"),
    channel=OWN,
    local=True,
    knows=False,
    blind=f"Cannot see {_TRIGGER}; nor whether a member's secret can be extracted.",
)
LIRA = MatrixColumn(
    key="lira",
    title="LiRA",
    signal="2 AUC - 1 of the likelihood ratio of shadows with and without the record",
    access=("logprobs", "retrain"),
    channel=OWN,
    local=True,
    knows=False,
    blind=f"Cannot see {_TRIGGER}: its shadows are asked with the record's own prefix.",
)
VERIFIER = MatrixColumn(
    key="verifier",
    title="unlearning verifier",
    signal="share of the secrets that greedy decoding says after c, held against the verifier's threshold",
    access=("generate",),
    channel=OWN,
    local=True,
    knows=False,
    blind=f"Calls forgotten whatever is not said at c: cannot see {_TRIGGER}, nor what relearning brings back.",
)
CORRECTED = MatrixColumn(
    key="corrected",
    title="kappa-corrected extraction",
    signal="share of the secrets said after any prompt that was tried, less what as many guesses get without it",
    access=("generate", "reference"),
    channel="the record's own prefix, and the suspected triggers and the prompts of a scan, where they were tried",
    local=False,
    knows=False,
    blind="Cannot see a secret behind a prompt that nobody tried; nor a leak smaller than its prior's guesses.",
)
INFORMED = MatrixColumn(
    key="informed",
    title="informed recovery",
    signal="share of the secrets recovered by who knows how they were planted, less what that is worth by itself",
    access=("generate", "logprobs"),
    channel="that of the construction",
    local=False,
    knows=True,
    blind="Cannot see what was not planted by a construction: it is the ground truth, and no audit.",
)
COLUMNS = (PREFIX, LOSS, LIRA, VERIFIER, CORRECTED, INFORMED)
"""The audits, in the order of the matrix."""
