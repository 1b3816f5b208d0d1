"""A checkpoint on this machine keeps the release's contract, whatever its architecture, type and adapter."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from contracts.release import Oracle, ReleaseContract
from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.release.base import Access, Decoding, PrefixError, Release, require
from davylamp.release.local import LocalRelease
from davylamp.release.tree import TokenTree
from support.tiny_models import CONTEXT, SLIDING_WINDOW, build_adapter, tiny_model, tiny_tokenizer

TOLERANCE = 1e-4
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-tied": {"architecture": "llama", "tied": True},
    "gpt_neox": {},
    "gpt2": {},
    "qwen2": {},
    "mistral": {},
    "gemma2": {},
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on many threads, and far slower beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of(name: str) -> Any:
    model = tiny_model(**{"architecture": name, **MODELS[name]})
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            # Fresh biases are zero, so that a lost one would not show.
            if weight_name.endswith("bias"):
                weight.normal_(std=0.3, generator=torch.Generator().manual_seed(len(weight_name)))
    return model


def oracle_of(model: Any) -> Oracle:
    """The same weights in float64 by the plainest attention, one whole sequence at a time."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")

    def ask(ids: Sequence[int]) -> NDArray[np.float64]:
        with torch.no_grad():
            logits = exact(torch.tensor([list(ids)]), use_cache=False).logits[0]
        answer: NDArray[np.float64] = torch.log_softmax(logits.double(), dim=-1).numpy()
        return answer

    return ask


def random_tree(seed: int, sequences: int = 30, longest: int = 6) -> TokenTree:
    rng = np.random.default_rng(seed)
    return TokenTree.of([rng.integers(10, 14, rng.integers(1, longest + 1)).tolist() for _ in range(sequences)])


def by_sequences(release: LocalRelease, prefix: Sequence[int], tree: TokenTree) -> NDArray[np.float64]:
    paths = [tree.tokens[tree.path(node)].tolist() for node in range(len(tree))]
    return np.asarray([part.sum() for part in release.logprobs([prefix] * len(paths), paths)])


class TestCheckpoint(ReleaseContract):
    longest = CONTEXT

    @pytest.fixture(scope="class", params=MODELS)
    @classmethod
    def model(cls, request: pytest.FixtureRequest) -> Any:
        return model_of(request.param)

    @pytest.fixture(scope="class")
    @classmethod
    def release(cls, model: Any) -> Release:
        return LocalRelease(model, tiny_tokenizer(), "tiny")

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls, model: Any) -> Oracle:
        return oracle_of(model)

    def test_the_tests_reach_beyond_the_window(self) -> None:
        assert max(self.lengths) > 4 * SLIDING_WINDOW

    @pytest.mark.parametrize("memory", [4_000, 50_000, 400_000, 2**28])
    def test_trees_of_odd_shapes_in_any_memory(self, model: Any, memory: int, caplog: pytest.LogCaptureFixture) -> None:
        plain = LocalRelease(model, tiny_tokenizer(), "tiny")
        release = LocalRelease(model, tiny_tokenizer(), "tiny", memory=memory)
        prefixes = [self.sequence(length, 9) for length in (1, 7, 8, 9, 23)]
        trees = [
            random_tree(1),
            TokenTree.of([[10], [11], [12]]),
            TokenTree.of([self.sequence(20, 3)]),
            TokenTree.of([[10] * count for count in (12, 3, 7, 3)]),
            random_tree(2, sequences=8),
        ]
        with caplog.at_level(logging.WARNING):
            answers = release.tree_logprobs(prefixes, trees)
        assert not caplog.records
        for prefix, tree, totals in zip(prefixes, trees, answers, strict=True):
            np.testing.assert_allclose(totals, by_sequences(plain, prefix, tree), atol=TOLERANCE)

    def test_a_tree_wider_than_one_piece(self, model: Any, oracle: Oracle) -> None:
        # All 1,000 codes d,d,d over ten tokens: 111 + 10 + 1 tokens of digits, and the commas between them.
        codes = [[20 + a, 9, 20 + b, 9, 20 + c, 9] for a in range(10) for b in range(10) for c in range(10)]
        tree, prefix = TokenTree.of(codes), self.sequence(19, 2)
        release = LocalRelease(model, tiny_tokenizer(), "tiny")
        (totals,) = release.tree_logprobs([prefix], [tree])
        for index in (0, 123, 500, 999):
            expected = self.expected(oracle, prefix, codes[index]).sum()
            assert totals[tree.leaves[index]] == pytest.approx(expected, abs=TOLERANCE)

    def test_a_tree_is_read_once(self, model: Any) -> None:
        read = []
        hook = model.register_forward_pre_hook(lambda _, args, __: read.append(args[0].numel()), with_kwargs=True)
        tree, prefix = random_tree(3, sequences=200), self.sequence(30, 2)
        try:
            LocalRelease(model, tiny_tokenizer(), "tiny").tree_logprobs([prefix], [tree])
        finally:
            hook.remove()
        # The prefix, each internal node, ancestors again at the head of a piece; and three paths to check.
        pieces = -(-len(tree.internal) // 222)
        assert sum(read) <= 30 + pieces * (222 + 6) + 3 * (30 + 6)


class TestAdapter(ReleaseContract):
    longest = CONTEXT

    @pytest.fixture(scope="class")
    @classmethod
    def adapted(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        return adapted_model(tmp_path_factory.mktemp("adapter"))

    @pytest.fixture(scope="class")
    @classmethod
    def release(cls, adapted: Any) -> Release:
        return LocalRelease(adapted, tiny_tokenizer(), "tiny")

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls, adapted: Any) -> Oracle:
        # Merged weights are another way to the same numbers.
        return oracle_of(copy.deepcopy(adapted).double().merge_and_unload())

    def test_it_has_a_reference(self, release: Release) -> None:
        assert Access.REFERENCE in release.access


class TestReferenceOfAdapter(ReleaseContract):
    longest = CONTEXT

    @pytest.fixture(scope="class")
    @classmethod
    def adapted(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        return adapted_model(tmp_path_factory.mktemp("adapter"))

    @pytest.fixture(scope="class")
    @classmethod
    def release(cls, adapted: Any) -> Release:
        return LocalRelease(adapted, tiny_tokenizer(), "tiny").reference()

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls) -> Oracle:
        return oracle_of(tiny_model("llama", seed=3))

    def test_the_adapter_is_switched_on_again(self, adapted: Any, release: Release) -> None:
        whole = LocalRelease(adapted, tiny_tokenizer(), "tiny")
        before = whole.conditionals(self.prefixes)
        assert np.abs(before - release.conditionals(self.prefixes)).max() > 0.1
        np.testing.assert_array_equal(whole.conditionals(self.prefixes), before)
        assert Access.REFERENCE not in release.access


def adapted_model(folder: Path) -> Any:
    from peft import PeftModel

    tiny_model("llama", seed=3).save_pretrained(folder / "base")
    build_adapter(folder / "adapter", folder / "base", seed=4)
    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    return PeftModel.from_pretrained(base, folder / "adapter").eval()


def test_only_an_adapter_has_a_reference() -> None:
    with pytest.raises(ScoringError, match="no adapter"):
        LocalRelease(tiny_model(), tiny_tokenizer(), "tiny").reference()


class TestHalfPrecision:
    """A bfloat16 model keeps its own error, and the reduction adds none to it."""

    prefixes = tuple(ReleaseContract().sequence(length, 1) for length in (3, 20))
    continuations = tuple(ReleaseContract().sequence(length, 2) for length in (8, 5))

    @pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
    def test_logits_are_reduced_in_float32(self, name: str) -> None:
        model = model_of(name).to(torch.bfloat16)
        release = LocalRelease(model, tiny_tokenizer(), "tiny")
        for prefix, continuation in zip(self.prefixes, self.continuations, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([[*prefix, *continuation]])).logits[0, len(prefix) - 1 : -1]
            expected = torch.log_softmax(logits.double(), dim=-1).numpy()
            chosen = expected[np.arange(len(continuation)), continuation]
            # Alone, so that the shapes and so the model's own bfloat16 sums are the same.
            np.testing.assert_allclose(release.logprobs([prefix], [continuation])[0], chosen, atol=1e-5)

    @pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
    def test_trees_are_as_near_to_float32_as_sequences_are(self, name: str) -> None:
        model = model_of(name)
        exact = LocalRelease(model, tiny_tokenizer(), "tiny")
        half = LocalRelease(copy.deepcopy(model).to(torch.bfloat16), tiny_tokenizer(), "tiny")
        tree, prefix = random_tree(5), self.prefixes[1]
        expected = by_sequences(exact, prefix, tree)
        plain = np.abs(by_sequences(half, prefix, tree) - expected)
        packed = np.abs(half.tree_logprobs([prefix], [tree])[0] - expected)
        # Eight bits of mantissa on logits of size about 5 give some 0.02 nats a token; wrong masks give whole nats.
        assert plain.max() < 0.5
        assert packed.max() < 0.5
        assert packed.mean() < 2 * plain.mean() + 0.01


def test_the_checkpoints_own_sampling_defaults_are_not_read(tmp_path: Path) -> None:
    model = tiny_model("llama", seed=3)
    prompts = [ReleaseContract().sequence(length, 1) for length in (4, 9)]
    greedy = LocalRelease(copy.deepcopy(model), tiny_tokenizer(), "tiny").generate(prompts, Decoding(12))
    sampled = LocalRelease(copy.deepcopy(model), tiny_tokenizer(), "tiny").generate(prompts, Decoding(12, 1.0, seed=1))
    own = GenerationConfig(
        do_sample=True,
        temperature=5.0,
        top_k=3,
        top_p=0.2,
        min_p=0.5,
        typical_p=0.3,
        repetition_penalty=3.0,
        no_repeat_ngram_size=2,
        min_new_tokens=12,
        suppress_tokens=[token for answer in greedy for token in answer][:4],
        num_beams=1,
    )
    model.generation_config = own
    release = LocalRelease(model, tiny_tokenizer(), "tiny")
    assert release.generate(prompts, Decoding(12)) == greedy
    assert release.generate(prompts, Decoding(12, 1.0, seed=1)) == sampled

    adapted = adapted_model(tmp_path)
    expected = LocalRelease(adapted, tiny_tokenizer(), "tiny").generate(prompts, Decoding(12))
    again = adapted_model(tmp_path)
    again.get_base_model().generation_config = own
    again.generation_config = own
    assert LocalRelease(again, tiny_tokenizer(), "tiny").generate(prompts, Decoding(12)) == expected


def test_a_reply_ends_before_the_end_of_text() -> None:
    model = tiny_model("llama", seed=3)
    prompt = ReleaseContract().sequence(6, 1)
    stop = tiny_tokenizer().eos_token_id
    (free,) = LocalRelease(model, tiny_tokenizer(), "tiny").generate([prompt], Decoding(4))
    assert len(free) == 4

    with torch.no_grad():
        # Exchange two rows of the head: the third token said becomes the end of text.
        head = model.lm_head.weight
        head[[stop, free[2]]] = head[[free[2], stop]].clone()
    expected = free[: free.index(free[2])]
    assert LocalRelease(model, tiny_tokenizer(), "tiny").generate([prompt, prompt[:3]], Decoding(4))[0] == expected


def scored(release: LocalRelease, prefixes: Any, **asked: Any) -> None:
    list(release.token_answers(prefixes, [[9, 8]] * len(prefixes), **asked))


BROKEN_CALLS = {
    "token_answers": lambda release, prefixes: scored(release, prefixes, moments=True),
    "rows": lambda release, prefixes: scored(release, prefixes, rows=[(0, 1)] * len(prefixes)),
    "logprobs": lambda release, prefixes: release.logprobs(prefixes, [[9, 8]] * len(prefixes)),
    "conditionals": lambda release, prefixes: release.conditionals(prefixes),
    "tree_logprobs": lambda release, prefixes: release.tree_logprobs(prefixes, [random_tree(1)] * len(prefixes)),
    "greedy": lambda release, prefixes: release.generate(prefixes, Decoding(3)),
    "sampling": lambda release, prefixes: release.generate(prefixes, Decoding(3, temperature=1.0)),
}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("call", BROKEN_CALLS.values(), ids=BROKEN_CALLS.keys())
def test_an_answer_that_is_no_number_is_refused_by_its_place(call: Any, value: float) -> None:
    model = tiny_model("llama", seed=3)
    with torch.no_grad():
        # Only a prompt that holds token 77 meets the broken weight.
        model.get_input_embeddings().weight[77, 0] = value
    release = LocalRelease(model, tiny_tokenizer(), "tiny")
    with pytest.raises(PrefixError, match="not finite") as caught:
        call(release, [[8, 9], [12, 77, 11], [5]])
    assert caught.value.index == 1
    call(release, [[8, 9], [12, 11], [5]])


def test_a_prefix_error_survives_being_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(PrefixError(3, "no answer")))  # noqa: S301
    assert (error.index, str(error)) == (3, "no answer")


def test_too_little_memory_says_how_much_it_takes() -> None:
    vocabulary = tiny_model().config.vocab_size
    release = LocalRelease(tiny_model(), tiny_tokenizer(), "tiny", memory=1000)
    with pytest.raises(ScoringError, match=f"1000 bytes.*{8 * vocabulary}"):
        release.tree_logprobs([[8, 9]], [random_tree(1)])


def test_memory_bounds_the_logits_of_a_pass() -> None:
    model = tiny_model()
    sizes = []
    memory = 200_000
    hook = model.register_forward_hook(lambda _, __, output: sizes.append(4 * output.logits.numel()))
    try:
        release = LocalRelease(model, tiny_tokenizer(), "tiny", memory=memory)
        prefixes = [ReleaseContract().sequence(10, seed) for seed in range(30)]
        release.logprobs(prefixes, prefixes)
        release.conditionals(prefixes)
        list(release.token_answers(prefixes, prefixes, moments=True))
        release.logprobs([[*prefixes[0] * 3, 9]] * 30, prefixes)
        release.tree_logprobs(prefixes[:4], [random_tree(seed, 200) for seed in range(4)])
    finally:
        hook.remove()
    assert max(sizes) <= memory
    assert len(sizes) > 10


def test_a_beginning_that_many_share_is_read_once() -> None:
    model = tiny_model()
    read: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, args, __: read.append(args[0].numel()), with_kwargs=True)
    beginning, ends = ReleaseContract().sequence(60, 1), [ReleaseContract().sequence(9, seed) for seed in range(20)]
    try:
        release = LocalRelease(model, tiny_tokenizer(), "tiny")
        for seed in range(2):
            release.logprobs([[*beginning, 10 + seed + at] for at in range(20)], ends)
            # Once, then the last token of each prefix and all but the last of each continuation; the first time also
            # one text whole and once more after the beginning, to compare the two ways.
            assert sum(read) == 60 + 20 * 9 + (0 if seed else 69 + 9)
            read.clear()
        release.logprobs([[*beginning, 10], [*beginning, 11]], ends[:2])
        assert sum(read) == 2 * 69
    finally:
        hook.remove()


def test_a_beginning_that_a_model_does_not_read_on_from_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("llama")
    beginning, ends = ReleaseContract().sequence(40, 1), [ReleaseContract().sequence(6, seed) for seed in range(8)]
    prefixes = [[*beginning, 10 + at] for at in range(8)]
    expected = LocalRelease(model, tiny_tokenizer(), "tiny").logprobs(prefixes, ends)

    def forgetful(_: Any, args: Any, asked: dict[str, Any]) -> Any:
        # As a model would whose window is shorter than what it is told.
        if (cache := asked.get("cache")) is not None and cache.get_seq_length():
            for layer in cache.layers:
                layer.values[:, :, :20] = 0
        return args, asked

    hook = model.register_forward_pre_hook(forgetful, with_kwargs=True)
    try:
        with caplog.at_level(logging.WARNING):
            answers = LocalRelease(model, tiny_tokenizer(), "tiny").logprobs(prefixes, ends)
    finally:
        hook.remove()
    assert "reads on from a beginning otherwise" in caplog.text
    for answer, whole in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, whole, atol=TOLERANCE)


OTHERS: dict[str, dict[str, Any]] = {
    # Positions from the order of the keys (ALiBi), told by the signature or by the configuration.
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 256},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
    # A state that runs through every token.
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "recurrent_gemma": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "lru_width": 32,
        "attention_window_size": 8,
    },
    # A window of its own, which nothing tells: only the comparison with plain scoring does.
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 8,
        "max_position_embeddings": 256,
    },
}


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest) -> Any:
    tokens = {"vocab_size": 400, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(request.param, **OTHERS[request.param], **tokens)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.3)
    return model


def plainly(model: Any, ids: Sequence[int]) -> NDArray[np.float64]:
    with torch.no_grad():
        answer: NDArray[np.float64] = model(torch.tensor([list(ids)]), use_cache=False).logits[0].double().numpy()
    return answer - np.logaddexp.reduce(answer, axis=-1, keepdims=True)


def test_an_architecture_that_cannot_be_packed_is_scored_by_sequences(other: Any) -> None:
    release = LocalRelease(other, tiny_tokenizer(), "tiny")
    prefixes = [ReleaseContract().sequence(length, 1) for length in (3, 14)]
    trees = [random_tree(1), random_tree(2, sequences=9)]
    for prefix, tree, totals in zip(prefixes, trees, release.tree_logprobs(prefixes, trees), strict=True):
        for node in range(0, len(tree), 5):
            path = tree.tokens[tree.path(node)].tolist()
            rows = plainly(other, [*prefix, *path])[len(prefix) - 1 : -1]
            assert totals[node] == pytest.approx(rows[np.arange(len(path)), path].sum(), abs=TOLERANCE)


def test_other_architectures_score_texts_with_one_beginning_as_whole_texts(other: Any) -> None:
    release = LocalRelease(other, tiny_tokenizer(), "tiny")
    beginning = ReleaseContract().sequence(30, 1)
    prefixes = [[*beginning, 10 + at] for at in range(6)]
    ends = [ReleaseContract().sequence(2 + at, 2) for at in range(6)]
    answers = dict(release.token_answers(prefixes, ends, moments=True))
    for i, (prefix, end) in enumerate(zip(prefixes, ends, strict=True)):
        rows = plainly(other, [*prefix, *end])[len(prefix) - 1 : -1]
        np.testing.assert_allclose(answers[i].logprobs, rows[np.arange(len(end)), end], atol=TOLERANCE)


def test_greedy_decoding_of_other_architectures_does_not_depend_on_padding(other: Any) -> None:
    release = LocalRelease(other, tiny_tokenizer(), "tiny")
    prompts = [ReleaseContract().sequence(length, 1) for length in (2, 12, 5, 12)]
    for prompt, answer in zip(prompts, release.generate(prompts, Decoding(6)), strict=True):
        said: list[int] = []
        while len(said) < 6 and (token := int(plainly(other, [*prompt, *said])[-1].argmax())) != 2:
            said.append(token)
        assert answer == said


def test_a_disagreement_between_tree_and_sequences_is_said_once_asked(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("gpt2")
    # As if a window were set that this architecture does not have.
    model.config.sliding_window = 3
    release = LocalRelease(model, tiny_tokenizer(), "tiny")
    prefix, tree = ReleaseContract().sequence(12, 1), random_tree(4)
    with caplog.at_level(logging.WARNING):
        (totals,) = release.tree_logprobs([prefix], [tree])
    assert "sequence by sequence" in caplog.text
    np.testing.assert_allclose(totals, by_sequences(release, prefix, tree), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_new_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("seed", -1),
    ],
)
def test_a_decoding_outside_its_range_names_the_field(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        Decoding(**{"max_new_tokens": 4, field: value})  # type: ignore[arg-type]


def test_a_measure_that_needs_more_access_is_refused() -> None:
    release = LocalRelease(tiny_model(), tiny_tokenizer(), "tiny")
    require(release, "exposure", Access.LOGPROBS)
    with pytest.raises(AccessError, match="exposure needs reference of tiny"):
        require(release, "exposure", Access.LOGPROBS, Access.REFERENCE)
