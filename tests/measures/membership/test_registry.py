"""A score is one function and one docstring; what does not fit is named at once."""

import subprocess
import sys

import numpy as np
import pytest

from davylamp.errors import InputError, ScoringError
from davylamp.measures.membership import Evidence, MembershipSettings, registry, score


@pytest.fixture
def forget():
    """Names that a test registers."""
    names = []
    yield names
    for name in names:
        registry.unregister(name)


def fitting(evidence):
    """The probability of the last token.

    Higher = more likely a member, as it is for every score.

    Cannot see: any token but the last.
    """
    return float(np.exp(evidence.logprobs[-1]))


def test_a_function_and_its_docstring_are_enough(forget):
    assert score("last", unit="probability")(fitting) is fitting
    forget.append("last")
    found = registry.find("last")
    assert found.summary == "The probability of the last token."
    assert found.sign.startswith("Higher = more likely a member")
    assert found.blind == "any token but the last."
    assert (found.unit, found.costly, found.needs) == ("probability", False, frozenset())
    assert "last" in registry.names()
    assert found in MembershipSettings().chosen(reference=False)
    assert MembershipSettings(scores=("last",)).chosen(reference=False) == (found,)


def test_every_built_in_score_says_what_it_is_its_sign_and_what_it_cannot_see():
    for name in registry.names():
        found = registry.find(name)
        assert found.summary.endswith(".")
        assert "higher = more likely a member" in found.sign.lower()
        assert found.blind


def test_what_does_not_fit_is_named_all_at_once():
    def silent(evidence):
        """A score."""

    with pytest.raises(InputError) as caught:
        score("a-b", needs=("logits",))(silent)
    said = str(caught.value)
    assert "name is 'a-b'" in said
    assert "needs is 'logits'; allowed: of logprobs, moments, reference" in said
    assert "a paragraph that says that higher means more likely a member, and why" in said
    assert "Cannot see" in said
    for name in ("loss", "x_secret", "", "1st"):
        with pytest.raises(InputError, match="name is"):
            score(name)(fitting)
    with pytest.raises(InputError, match="one of gradient_norm, loss, lowercase"):
        registry.unregister("nothing")
    with pytest.raises(InputError, match=r"score is 'los'; allowed: one of gradient_norm, loss"):
        registry.find("los")


def test_a_score_reads_what_it_named_and_nothing_else():
    evidence = Evidence("c0001", "record", 0.2, {"logprobs": np.zeros(2), "text": "ab"})
    assert evidence.only(frozenset({"text"})).text == "ab"
    with pytest.raises(ScoringError, match="canary c0001: a score reads 'text', but its needs name only logprobs"):
        _ = evidence.only(frozenset()).text


def test_costly_scores_are_taken_where_they_are_asked_for():
    usual = {each.name for each in MembershipSettings().chosen(reference=True)}
    assert usual == {"loss", "perplexity", "zlib", "reference", "min_k", "min_k_plus_plus", "lowercase", "recall"}
    assert "reference" not in {each.name for each in MembershipSettings().chosen(reference=False)}
    asked = MembershipSettings(scores=("gradient_norm", "neighbourhood"))
    assert [each.name for each in asked.chosen(reference=False)] == ["gradient_norm", "neighbourhood"]
    assert MembershipSettings(scores=("reference",)).wants_reference
    assert not MembershipSettings().wants_reference


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"scores": ("los",)}, "score is 'los'"),
        ({"scores": ()}, "name at least one"),
        ({"k": 0}, "k"),
        ({"fprs": (0.01, 0.01)}, "one stands twice"),
        ({"fprs": (0.0,)}, "greater than 0"),
        ({"spans": ("reply",)}, "record"),
        ({"shots": 0}, "shots"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, fault):
    with pytest.raises(ValueError, match=fault):
        MembershipSettings(**settings)


PACKAGE = '''
from davylamp.measures.membership import score

@score({name!r})
def first(evidence):
    """The first token's log-probability.

    Higher = more likely a member.

    Cannot see: all else.
    """
    return float(evidence.logprobs[0])
'''


@pytest.mark.parametrize(
    ("name", "entry", "said"),
    [
        ("first", "first = lamp_scores:first", "The first token's log-probability."),
        ("other", "first = lamp_scores:first", "a function that registers under the entry point's name"),
        ("first", "first = lamp_scores:second", "what can be imported"),
    ],
)
def test_an_installed_package_gives_scores_by_an_entry_point(tmp_path, name, entry, said):
    (tmp_path / "lamp_scores.py").write_text(PACKAGE.format(name=name), "utf-8")
    info = tmp_path / "lamp_scores-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp-scores\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[davylamp.scores]\n{entry}\n", "utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from davylamp.measures.membership import registry\n"
        "assert 'first' in registry.names() and 'lamp_scores' not in sys.modules\n"
        "try:\n    print(registry.find('first').summary)\n"
        "except registry.InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
