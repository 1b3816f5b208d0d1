"""What is asked of shadow models; loads no torch, so that an audit can be checked before one is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from davylamp.corpora.records import Corpus
from davylamp.measures.counterfactual import TRUNCATION
from davylamp.measures.shadow_scores import OFFLINE_A
from davylamp.training.shadow_runs import Executor
from davylamp.training.shadows import ShadowSpec

TOGETHER = 4
"""Small models that are trained at once where nothing else is said: eight were no faster a model than four."""


@dataclass(frozen=True, slots=True)
class ShadowRequest:
    """What is asked of the shadows.

    Attributes:
        spec: how many shadows, and the dose of twins.
        model: the model that training begins from; what ``training.json`` says if none.
        settings: training settings as key=value, over those of ``training.json``.
        chat_template: file of a chat template, where the tokenizer has none.
        audited: the checkpoint to attack; the folder's own ``model/`` if none and it is there.
        corpus: the file that was planted into, so that rows without a canary are its own.
        executor: ``local`` or ``ray``.
        address: address of a Ray cluster.
        jobs: shadows at a time; by default one a core for a small model, else one.
        threads: threads of torch of each; chosen by the model's size if none.
        together: small models that a process trains at once, where the settings allow it (the result is the same,
            whatever the number); 0 trains each as ``davylamp train`` does.
        keep_models: keep the trained models, not their signals alone.
        truncation: nats at which the log-loss is cut off.
        a: RMIA's ``a``.
    """

    spec: ShadowSpec = field(default_factory=ShadowSpec)
    model: str | None = None
    settings: tuple[str, ...] = ()
    chat_template: Path | None = None
    audited: str | None = None
    corpus: Corpus | None = None
    executor: Executor = "local"
    address: str | None = None
    jobs: int | None = None
    threads: int | None = None
    together: int = TOGETHER
    keep_models: bool = False
    truncation: float = TRUNCATION
    a: float = OFFLINE_A
