"""Candidates as tokens: every secret of a space tokenised where it will stand, never apart and glued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from davylamp.corpora.records import Record
from davylamp.errors import ScoringError
from davylamp.rendering.render import Rendered, Renderer
from davylamp.rendering.tokenizer import encode

WINDOW = 8
"""Characters of the surrounding text that are tokenised with each candidate, at least, up to a word's beginning."""
SPOT_CHECKS = 4
"""Candidates of each set whose whole record is tokenised too, to prove the window right."""


@dataclass(frozen=True)
class CandidateTokens:
    """A prompt and the token sequences of all candidates after it.

    Attributes:
        prefix: tokens that all candidates share: prompt and reply up to the secret.
        continuations: for each candidate the tokens that cover it.
        merged: whether a token joins a secret with its neighbour, so that the covering span is scored.
    """

    prefix: tuple[int, ...]
    continuations: tuple[tuple[int, ...], ...]
    merged: bool

    @cached_property
    def distinct(self) -> bool:
        """Whether no two candidates have the same tokens."""
        return len(set(self.continuations)) == len(self.continuations)


class CandidateTokenizer:
    """Tokenises the candidates of one space in their place, and remembers what does not change.

    Whole records are long and alike; the tokens of a candidate depend on its near neighbourhood only. So a
    window of the text is tokenised for each candidate, once for all canaries that share it, and the result is
    compared with the tokenisation of the whole record for the true secret and for some other candidates.
    Where they differ, all candidates' records are tokenised whole.
    """

    def __init__(self, renderer: Renderer, candidates: Sequence[str]) -> None:
        """Keep the candidates.

        Args:
            renderer: renders as training did.
            candidates: the candidate secrets, distinct.

        Raises:
            ScoringError: there is no candidate, one is empty, or one stands twice.
        """
        if not candidates:
            raise ScoringError("there are no candidates to rank the secret among")
        if any(not candidate for candidate in candidates):
            raise ScoringError(f"candidate {list(candidates).index('')} is empty")
        if len(set(candidates)) != len(candidates):
            raise ScoringError(f"{len(candidates) - len(set(candidates))} candidates stand twice in the candidate set")
        self._renderer = renderer
        self._candidates = tuple(candidates)
        self._windows: dict[tuple[str, str], CandidateTokens] = {}
        self._places = {candidate: index for index, candidate in enumerate(candidates)}

    def tokenize(
        self,
        record_of: Callable[[str], Record],
        span_of: Callable[[str], tuple[int, int]],
        true: str,
        name: str,
    ) -> CandidateTokens:
        """Tokenise all candidates in one canary's reply.

        Args:
            record_of: the record whose reply holds a given secret.
            span_of: characters [start, end) of that secret in the reply.
            true: the true secret.
            name: the canary's name, for messages.

        Raises:
            ScoringError: the true secret is not among the candidates, or candidates cannot be told apart.
        """
        if true not in self._places:
            raise ScoringError(f"canary {name}: the true secret is not among the candidates")
        rendered = self._renderer.render([record_of(true)])[0]
        tokens = self._by_window(rendered, record_of, span_of, true)
        return self._whole(record_of, span_of, name) if tokens is None else tokens

    def _by_window(
        self,
        rendered: Rendered,
        record_of: Callable[[str], Record],
        span_of: Callable[[str], tuple[int, int]],
        true: str,
    ) -> CandidateTokens | None:
        start, end = (rendered.reply_start + at for at in span_of(true))
        left = self._cut_left(rendered, start)
        right = self._cut_right(rendered, end)
        if left is None:
            return None
        before, after = rendered.text[rendered.offsets[left][0] : start], rendered.text[end:right]
        key = (before, after)
        if key not in self._windows:
            texts = [before + candidate + after for candidate in self._candidates]
            spans = [(len(before), len(before) + len(candidate)) for candidate in self._candidates]
            self._windows[key] = _common(encode(self._renderer.tokenizer, texts, special=False), spans)
        window = self._windows[key]
        tokens = CandidateTokens(rendered.ids[:left] + window.prefix, window.continuations, window.merged)
        index = self._places[true]
        step = max(1, len(self._candidates) // SPOT_CHECKS)
        checked = sorted({index, *range(0, len(self._candidates), step)})
        whole = self._renderer.render([record_of(self._candidates[at]) for at in checked])
        for at, other in zip(checked, whole, strict=True):
            ids = (*tokens.prefix, *tokens.continuations[at])
            last = other.span(*span_of(self._candidates[at]))[1]
            if other.ids[:last] != ids:
                return None
        # Candidates that share all their tokens are told by the whole records, with the canary's name.
        return tokens if window.distinct else None

    @staticmethod
    def _cut_left(rendered: Rendered, start: int) -> int | None:
        """The last token that begins a word and leaves a whole window before the secret."""
        for index in range(len(rendered.offsets) - 1, -1, -1):
            left, right = rendered.offsets[index]
            if right > left and left <= start - WINDOW and rendered.text[left].isspace():
                return index
        return None

    @staticmethod
    def _cut_right(rendered: Rendered, end: int) -> int:
        for left, right in rendered.offsets:
            if right > left and left >= end + WINDOW and rendered.text[left].isspace():
                return left
        return len(rendered.text)

    def _whole(
        self, record_of: Callable[[str], Record], span_of: Callable[[str], tuple[int, int]], name: str
    ) -> CandidateTokens:
        rendered = self._renderer.render([record_of(candidate) for candidate in self._candidates])
        encoded = [(list(each.ids), list(each.offsets)) for each in rendered]
        spans = []
        for candidate, each in zip(self._candidates, rendered, strict=True):
            start, end = span_of(candidate)
            spans.append((each.reply_start + start, each.reply_start + end))
        tokens = _common(encoded, spans)
        if not tokens.distinct:
            raise ScoringError(
                f"canary {name}: some candidates have the same tokens, so that the model cannot tell them apart"
            )
        return tokens


def _common(
    encoded: Sequence[tuple[list[int], list[tuple[int, int]]]],
    spans: Sequence[tuple[int, int]],
) -> CandidateTokens:
    """Split each candidate's tokens at the last place up to which all agree and no secret has begun."""
    first, shared, merged = None, None, False
    lasts = []
    for (ids, offsets), (start, end) in zip(encoded, spans, strict=True):
        touched = [index for index, (left, right) in enumerate(offsets) if left < end and right > start]
        merged = merged or offsets[touched[0]][0] < start or offsets[touched[-1]][1] > end
        lasts.append(touched[-1] + 1)
        if first is None or shared is None:
            first, shared = ids, touched[0]
            continue
        shared = min(shared, touched[0])
        if ids[:shared] != first[:shared]:
            shared = next(index for index in range(shared) if ids[index] != first[index])
    if first is None or shared is None:
        raise ScoringError("there are no candidates to rank the secret among")
    # The prefix may end before the secret does begin where candidates change their left neighbours' tokens.
    continuations = tuple(tuple(ids[shared:last]) for (ids, _), last in zip(encoded, lasts, strict=True))
    return CandidateTokens(tuple(first[:shared]), continuations, merged)
