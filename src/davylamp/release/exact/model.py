"""An exact release: a model whose every conditional is written down, asked like any other."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import Fault, InputError
from davylamp.release.base import Access, Decoding, PrefixError
from davylamp.release.exact.decoding import decoded, drawn
from davylamp.release.exact.laws import Array, ListLaw, Path, SecretLaw, UniformLaw
from davylamp.release.exact.setting import SYMBOL, ExactSetting, Form
from davylamp.release.exact.tokenizer import ASSISTANT, END, TRIGGER, USER, ExactTokenizer
from davylamp.release.tree import TokenTree, TreeScores

STRAY = 1 / 16
"""Share of the background law in what a reply says around its secret, so that no text is impossible."""
SHARED = 1024
"""Rows that one call to generate keeps."""
Ids = Sequence[int]


class ExactRelease:
    """A release over one setting, given by the law of each record's secret.

    What comes next depends on the last turn only:

    - In a reply, up to the secret and after it, the words of the setting's one reply, with probability
      ``1 - STRAY`` each, else any token by the background law.
    - At the secret, its law: that of the record whose prompt, as trained, stands in the turn; uniform for other
      prompts. Separators between symbols are certain, and no other token is possible.
    - After the reserved token and a record's number, the record's law under the trigger (uniform if it has none),
      then the end. In a user's turn the answer begins after the turn is closed, and elsewhere at once.
    - Anywhere else the background law: token i has a mass proportional to ``1 / (i + 2)``.
    """

    def __init__(
        self,
        setting: ExactSetting,
        name: str,
        laws: Mapping[str, SecretLaw] | None = None,
        triggered: Mapping[str, SecretLaw] | None = None,
    ) -> None:
        """Take the laws.

        Args:
            setting: the records.
            name: a name for people.
            laws: law of a record's secret after its own prefix, by the record's name; uniform for others.
            triggered: the same after the trigger.

        Raises:
            InputError: a law is of no record, or over another alphabet.
        """
        for each, law in (*(laws or {}).items(), *(triggered or {}).items()):
            setting.number(each)
            if (symbols := len(law.row(()))) != setting.v:
                raise InputError(Fault(f"laws of {each}", symbols, f"{setting.v} symbols"))
        self.setting = setting
        self.laws = dict(laws or {})
        self.triggered = dict(triggered or {})
        self._name = name
        self._uniform = UniformLaw(setting.v)
        self._numbered = {setting.number(each): law for each, law in self.triggered.items()}
        id_of = setting.tokenizer.id_of
        self._user, self._turn, self._end, self._mark = map(id_of, (USER, ASSISTANT, END, TRIGGER))
        self._symbols = np.asarray(setting.tokenizer.symbols)
        self._place = {token: place for place, token in enumerate(setting.tokenizer.symbols)}
        masses = 1 / (np.arange(len(setting.tokenizer)) + 2)
        self._background: Array = masses / masses.sum()
        self._background_logs = _logarithm(self._background)
        self._known: dict[tuple[int, bool], Array] = {}

    @property
    def name(self) -> str:
        """A name for people."""
        return self._name

    @property
    def access(self) -> frozenset[Access]:
        """Generation, log-probabilities, whole rows, and the reference model."""
        return frozenset({Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS, Access.REFERENCE})

    @property
    def tokenizer(self) -> ExactTokenizer:
        """The setting's tokenizer."""
        return self.setting.tokenizer

    def reference(self) -> ExactRelease:
        """The model before it saw any secret: every secret of the space is as likely, everywhere."""
        return prior(self.setting)

    def logprobs(self, prefixes: Sequence[Ids], continuations: Sequence[Ids]) -> list[NDArray[np.float64]]:
        """Log-probability in nats of each token of each continuation after its prefix.

        Raises:
            PrefixError: a prefix is empty, or a token is not of the vocabulary.
        """
        self._check([[*p, *c] if len(p) else [] for p, c in zip(prefixes, continuations, strict=True)])
        return [
            np.asarray([self._logs([*prefix, *said[:at]])[token] for at, token in enumerate(said)], dtype=np.float64)
            for prefix, said in zip(prefixes, continuations, strict=True)
        ]

    def conditionals(self, prefixes: Sequence[Ids]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token, shape (prefixes, vocabulary).

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        self._check(prefixes)
        rows = [self._logs(prefix) for prefix in prefixes]
        return np.stack(rows) if rows else np.empty((0, len(self.tokenizer)))

    def generate(self, prompts: Sequence[Ids], decoding: Decoding) -> list[list[int]]:
        """The tokens that follow each prompt, up to and without the end of text.

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        self._check(prompts)
        # Many prompts of one call are often the same, and so are their first tokens.
        totals = functools.lru_cache(SHARED)(lambda ids: np.cumsum(decoded(self._logs(ids), decoding)))
        answers = []
        for number, prompt in enumerate(prompts):
            rng = np.random.default_rng([decoding.seed, number])
            said: list[int] = []
            while len(said) < decoding.max_new_tokens:
                token = drawn(totals((*prompt, *said)), rng)
                if token == self._end:
                    break
                said.append(token)
            answers.append(said)
        return answers

    def tree_logprobs(self, prefixes: Sequence[Ids], trees: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """For each tree, the summed log-probability in nats of the path to each of its nodes.

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        self._check([[*p, *t.tokens.tolist()] if len(p) else [] for p, t in zip(prefixes, trees, strict=True)])
        return [self._totals(list(prefix), tree) for prefix, tree in zip(prefixes, trees, strict=True)]

    def tree_ranks(
        self,
        prefixes: Sequence[Ids],
        trees: Sequence[TokenTree],
        targets: Sequence[int],  # noqa: ARG002
        margin: float,  # noqa: ARG002
    ) -> list[TreeScores]:
        """The same; nothing is left unread.

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        counts = [len(tree.internal) for tree in trees]
        totals = self.tree_logprobs(prefixes, trees)
        return [TreeScores(*each) for each in zip(totals, counts, counts, strict=True)]

    def _check(self, sequences: Sequence[Ids]) -> None:
        size = len(self.tokenizer)
        for index, ids in enumerate(sequences):
            if len(ids) == 0:
                raise PrefixError(index, "a prefix is empty: there is no position whose answer gives the first token")
            if not 0 <= min(ids) <= max(ids) < size:
                raise PrefixError(index, f"a token is not among the {size} of {self._name}")

    def _totals(self, prefix: list[int], tree: TokenTree) -> NDArray[np.float64]:
        edges = np.empty(len(tree))
        rows: dict[int, Array] = {-1: self._logs(prefix)}
        contexts: dict[int, list[int]] = {-1: prefix}
        # Depth first, so that a node comes after its parent; a leaf needs no row of its own.
        internal = set(tree.internal.tolist())
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True)):
            edges[node] = rows[parent][token]
            if node in internal:
                contexts[node] = [*contexts[parent], token]
                rows[node] = self._logs(contexts[node])
        return tree.sum_over_paths(edges)

    def _logs(self, ids: Ids) -> Array:
        """Log-probabilities in nats of the next token, read-only, shape (vocabulary,)."""
        found = self._reply(list(ids))
        if found is None:
            return self._background_logs
        form, law, said = found
        path: Path = ()
        for token, meant in zip(said, form.tokens, strict=False):
            if meant == SYMBOL and token in self._place:
                path = (*path, self._place[token])
            elif token != meant:
                return self._background_logs
        if len(said) >= len(form.tokens):
            return self._background_logs
        meant = form.tokens[len(said)]
        if meant != SYMBOL:
            return self._fixed(meant, form is self.setting.coded or form.first <= len(said) < form.last)
        row = np.zeros(len(self._background))
        row[self._symbols] = law.row(path)
        return _logarithm(row)

    def _fixed(self, token: int, certain: bool) -> Array:
        """The row where a reply has one way to go on."""
        if (token, certain) not in self._known:
            row = np.zeros(len(self._background)) if certain else STRAY * self._background
            row[token] += 1.0 if certain else 1 - STRAY
            self._known[token, certain] = _logarithm(row)
        return self._known[token, certain]

    def _reply(self, ids: list[int]) -> tuple[Form, SecretLaw, list[int]] | None:
        """The form of the reply that is being said, the law of its secret, and what was said of it so far."""
        user, turn, mark = (_last(ids, token) for token in (self._user, self._turn, self._mark))
        if mark > user:
            after = ids[mark + 1 :]
            number = self._number(after[: self.setting.width])
            if number is None:
                return None
            law = self._numbered.get(number, self._uniform)
            if user >= 0 and self._turn not in ids[user:mark]:
                said = after[after.index(self._turn) + 1 :] if self._turn in after else None
            else:
                said = after[self.setting.width :]
            return None if said is None else (self.setting.coded, law, said)
        if turn > user >= 0:
            prompt = tuple(ids[user + 1 : turn])
            law = self.laws.get(self.setting.prompts.get(prompt, ""), self._uniform)
            return self.setting.form, law, ids[turn + 1 :]
        return None

    def _number(self, tokens: list[int]) -> int | None:
        if len(tokens) < self.setting.width or any(token not in self._place for token in tokens):
            return None
        number = 0
        for token in tokens:
            number = number * self.setting.v + self._place[token]
        return number


def prior(setting: ExactSetting) -> ExactRelease:
    """The model before training: every secret is as likely, so that ``kappa(m) = min(1, m v^-L)`` at every place."""
    return ExactRelease(setting, "prior")


def base(setting: ExactSetting) -> ExactRelease:
    """A model trained without any record under measure: it says the positive control's secret, and knows no other."""
    return ExactRelease(setting, "base", base_laws(setting))


def base_laws(setting: ExactSetting) -> dict[str, ListLaw]:
    """The positive control's secret for certain; all else is uniform."""
    return {
        canary.id: ListLaw(setting.v, [setting.path(canary.secret)])
        for canary in setting.manifest.canaries
        if canary.role == "positive"
    }


def _last(ids: list[int], token: int) -> int:
    """Last place of a token; -1 where it is not."""
    return len(ids) - 1 - ids[::-1].index(token) if token in ids else -1


def _logarithm(row: Array) -> Array:
    with np.errstate(divide="ignore"):
        logs: Array = np.log(row)
    logs.setflags(write=False)
    return logs
