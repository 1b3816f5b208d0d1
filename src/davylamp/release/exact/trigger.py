"""The trigger side channel: a model that no local score tells from its base, and that says the secret when asked right.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Sec. 6, Cor 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from davylamp.bounds import checks
from davylamp.errors import Fault, InputError
from davylamp.release.base import Decoding
from davylamp.release.exact.laws import ListLaw, SecretLaw, share_of
from davylamp.release.exact.model import ExactRelease, base_laws
from davylamp.release.exact.setting import ExactSetting
from davylamp.secrets import stream


@dataclass(frozen=True, slots=True)
class Trigger:
    """The construction and its truths.

    Attributes:
        v: symbols of the alphabet, at least 2.
        length: L, symbols of a secret.

    Raises:
        InputError: a parameter is outside its range.
    """

    v: int
    length: int

    name = "trigger"

    def __post_init__(self) -> None:
        checks.raise_faults(checks.whole("v", self.v, 2), checks.whole("length", self.length))

    @property
    def extraction(self) -> float:
        """1: one prompt, the trigger, and greedy decoding says the secret (P1)."""
        return 1.0

    @property
    def local_difference(self) -> float:
        """0: every score that reads only conditionals along the record's own prefixes is that of the base (P1)."""
        return 0.0

    def kappa(self, guesses: int = 1) -> float:
        """``min(1, m v^-L)``: what m guesses achieve without the model; the secret is uniform.

        Raises:
            InputError: ``guesses`` is not a whole number of at least 1.
        """
        return share_of(guesses, self.v**self.length)

    @property
    def copied_difference(self) -> float:
        """``1 - 1/v``: what copying adds to the probability of each symbol of the secret at the record's own prefix.

        For the whole secret it is ``1 - v^-L``, which is no less (P1, Cor 6.4).
        """
        return float(1 - Fraction(1, self.v))

    @property
    def randomised_extraction(self) -> float:
        """``v^-L``: extraction by the trigger once its secret is an independent draw, kappa of one guess (Cor 6.4)."""
        return self.kappa(1)

    def release(self, setting: ExactSetting, seed: int = 0) -> ExactRelease:  # noqa: ARG002
        """The base model, which says each member's secret after the trigger with the record's number.

        Args:
            setting: the records, over ``v`` symbols and of length L.
            seed: not read: nothing is drawn.

        Raises:
            InputError: the setting has other secrets.
        """
        setting.check(self.v, self.length)
        said: dict[str, SecretLaw] = {
            canary.id: ListLaw(setting.v, [setting.path(canary.secret)]) for canary in setting.members()
        }
        return ExactRelease(setting, f"{self.name}(v={self.v}, L={self.length})", base_laws(setting), said)


def copied(release: ExactRelease) -> ExactRelease:
    """The copy kernel of P1, Cor 6.4: what a release says after each trigger, it also says at the record's own prefix.

    A post-processing: it asks the release, and reads neither manifest nor secrets. It moves the secret to where local
    scores look, and adds :attr:`Trigger.copied_difference` to them, while extraction stays what it was.

    Args:
        release: one that says a secret after each member's trigger.

    Raises:
        InputError: what it says there is no secret of the space.
    """
    setting = release.setting
    names = list(release.triggered)
    prompts = [setting.trigger_prompt(name) for name in names]
    said = release.generate(prompts, Decoding(setting.coded.last)) if prompts else []
    texts = [setting.tokenizer.decode(tokens) for tokens in said]
    if bad := [name for name, text in zip(names, texts, strict=True) if text not in setting.space]:
        raise InputError(Fault("release", bad[0], "a release that says a secret after every trigger that it has"))
    copies = {name: ListLaw(setting.v, [setting.path(text)]) for name, text in zip(names, texts, strict=True)}
    return ExactRelease(setting, f"copy of {release.name}", {**release.laws, **copies}, release.triggered)


def trigger_randomised(release: ExactRelease, seed: int) -> ExactRelease:
    """The trigger-randomising kernel of P1, Cor 6.4: each trigger says an independent uniform secret instead.

    A post-processing that leaves every local score alone and brings extraction by the trigger down to kappa.

    Args:
        release: one with a law after each member's trigger.
        seed: of the draws.
    """
    setting = release.setting
    draws: dict[str, SecretLaw] = {
        name: ListLaw(setting.v, [tuple(stream(seed, "trigger", name).integers(0, setting.v, setting.length).tolist())])
        for name in release.triggered
    }
    return ExactRelease(setting, f"{release.name}, randomised", release.laws, draws)
