"""Loading the tokenizer and the model of a source: whole, causal, finite, and without remote code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from davylamp.errors import Fault, InputError, ModelError, TokenizerError
from davylamp.release.quiet import quiet
from davylamp.release.sources import ModelSource
from davylamp.rendering.render import TEMPLATE_ERRORS
from davylamp.rendering.tokenizer import TokenizerView

DType = Literal["float32", "bfloat16", "auto"]
DTYPES: tuple[DType, ...] = ("float32", "bfloat16", "auto")

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")
_OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_tokenizer(source: ModelSource, chat_template: Path | None = None) -> TokenizerView:
    """Load a source's tokenizer; an adapter without one of its own takes its base's.

    Args:
        source: from :func:`~davylamp.release.sources.resolve`.
        chat_template: file of a Jinja chat template, to be used instead of the tokenizer's own.

    Raises:
        ModelError: the source has no tokenizer.
        TokenizerError: there is no fast tokenizer, it is damaged, or the chat template cannot be read.
    """
    from transformers import AutoTokenizer

    folder = _tokenizer_folder(source)
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **_OFFLINE)
    except Exception as error:
        # The tokenizers library raises a bare Exception for a damaged file; another library's bug passes through.
        if type(error) is not Exception and not isinstance(error, OSError | ValueError | KeyError | ImportError):
            raise
        raise TokenizerError(f"the tokenizer of {source.name} cannot be loaded: {_reason(error)}") from error
    if not tokenizer.is_fast:
        raise TokenizerError(
            f"{source.name} has no fast tokenizer ({type(tokenizer).__name__}): davylamp needs the place of each "
            "token in the text, which only fast tokenizers (a tokenizer.json) give"
        )
    if chat_template is not None:
        _set_template(tokenizer, chat_template)
    view: TokenizerView = tokenizer
    return view


def load_model(
    source: ModelSource,
    dtype: DType = "float32",
    device: str | None = None,
    *,
    tokenizer: TokenizerView | None = None,
) -> Any:
    """Load a causal language model in evaluation mode.

    An unmerged adapter is loaded by peft with its base kept, so that ``disable_adapter()`` gives the reference.

    Args:
        source: from :func:`~davylamp.release.sources.resolve`.
        dtype: type of the weights in memory; ``auto`` is the one they are stored in.
        device: where to put it (``cpu``, ``cuda``, ``cuda:1``); a CUDA device if there is one, else the CPU.
        tokenizer: if given, it is checked that the model has an embedding for each of its tokens.

    Raises:
        ModelError: the model is an encoder or an encoder-decoder, damaged, not whole, not finite, needs remote
            code, or is smaller than the tokenizer.
        InputError: ``dtype`` is unknown, or ``device`` does not exist.
    """
    place = _device(device)
    if dtype not in DTYPES:
        raise InputError(Fault("dtype", dtype, ", ".join(DTYPES)))
    base = source.base or source
    _check_causal(base)
    model = _load_base(base, dtype)
    if source.base is not None:
        model = _load_adapter(model, source)
    _check_finite(model, source.name)
    if tokenizer is not None:
        _check_vocabulary(model, tokenizer, source.name)
    return model.to(place).eval()


def _tokenizer_folder(source: ModelSource) -> Path:
    folders = [source.path, source.base.path] if source.base else [source.path]
    for folder in folders:
        if any((folder / name).is_file() for name in _TOKENIZER_FILES):
            return folder
    raise ModelError(
        f"{source.name} has no tokenizer in {source.path}: copy its tokenizer.json and tokenizer_config.json there"
    )


def _set_template(tokenizer: Any, path: Path) -> None:
    from jinja2 import TemplateSyntaxError

    try:
        template = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenizerError(f"cannot read the chat template {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TokenizerError(f"the chat template {path} is not UTF-8 (byte {error.start})") from error
    if not template.strip():
        raise TokenizerError(f"the chat template {path} is empty")
    tokenizer.chat_template = template
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    except TemplateSyntaxError as error:
        raise TokenizerError(f"the chat template {path}, line {error.lineno}: {error.message}") from error
    except TEMPLATE_ERRORS:
        # A template may refuse this short conversation; rendering will say so of the real one.
        pass


def _check_causal(source: ModelSource) -> None:
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as known

    try:
        with quiet():
            config = AutoConfig.from_pretrained(source.path, **_OFFLINE)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the configuration of {source.name} cannot be used: {_reason(error)}") from error
    kind = config.model_type
    wants = "davylamp audits causal language models, which continue a text token by token"
    if config.is_encoder_decoder:
        raise ModelError(f"{source.name} is an encoder-decoder ({kind}); {wants}")
    masked = kind in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if masked and not getattr(config, "is_decoder", False):
        raise ModelError(f"{source.name} is an encoder ({kind}), which sees the text on both sides; {wants}")
    if kind not in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(f"{source.name} ({kind}) is no causal language model that transformers knows; {wants}")


def _load_base(source: ModelSource, dtype: DType) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    wanted = dtype if dtype == "auto" else getattr(torch, dtype)
    try:
        with quiet():
            model, info = AutoModelForCausalLM.from_pretrained(
                source.path, dtype=wanted, use_safetensors=True, output_loading_info=True, **_OFFLINE
            )
    except SafetensorError as error:
        raise ModelError(f"the weights of {source.name} are damaged ({_reason(error)}); copy them again") from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError, AttributeError) as error:
        raise ModelError(f"{source.name} cannot be loaded: {_reason(error)}") from error
    kind = type(model).__name__
    if missing := sorted(map(str, info["missing_keys"])):
        raise ModelError(f"{source.name} lacks {_some(missing)} of a {kind}; they would be random numbers")
    if mismatched := sorted(str(entry) for entry in info["mismatched_keys"]):
        raise ModelError(f"{source.name} has tensors of other shapes than its config.json says: {_some(mismatched)}")
    if unused := sorted(map(str, info["unexpected_keys"])):
        # What was learnt in them would not be audited, and a leak would go unseen.
        raise ModelError(f"{source.name} holds {_some(unused)} that a {kind} does not use; is an adapter not merged?")
    return model


def _load_adapter(model: Any, source: ModelSource) -> Any:
    from peft import PeftModel
    from safetensors import SafetensorError

    config = _adapter_config(source)
    try:
        with quiet():
            adapted = PeftModel.from_pretrained(model, str(source.path), config=config, use_safetensors=True)
    except SafetensorError as error:
        raise ModelError(
            f"the weights of the adapter {source.name} are damaged ({_reason(error)}); copy them again"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, ImportError) as error:
        raise ModelError(f"the adapter {source.name} does not fit its base: {_reason(error)}") from error
    _check_adapter_whole(adapted, source)
    return adapted


def _adapter_config(source: ModelSource) -> Any:
    from peft import PeftConfig

    try:
        config = PeftConfig.from_pretrained(str(source.path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the configuration of the adapter {source.name} cannot be used: {_reason(error)}") from error
    bias = getattr(config, "bias", "none")
    if config.is_prompt_learning or bias != "none":
        raise ModelError(
            f"the adapter {source.name} ({config.peft_type.value}, bias {bias!r}) cannot be switched off to give its "
            "base back: merge it, and audit the merged model with the base as --reference"
        )
    return config


def _check_adapter_whole(adapted: Any, source: ModelSource) -> None:
    """Peft only warns of tensors that it did not find or did not use; an audit must not go on without them."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    with safe_open(str(source.path / "adapter_model.safetensors"), framework="pt") as file:
        stored = set(file.keys())
    with quiet():
        loaded = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if missing := sorted(loaded - stored):
        raise ModelError(f"the adapter {source.name} lacks {_some(missing)}; they would be random numbers")
    if unused := sorted(stored - loaded):
        raise ModelError(f"the adapter {source.name} holds {_some(unused)}, which its base has no place for")


def _check_finite(model: Any, name: str) -> None:
    import torch

    for weight_name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise ModelError(f"{name} holds NaN or infinite weights ({weight_name}): its training went wrong")


def _check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    rows = int(model.get_input_embeddings().weight.shape[0])
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise ModelError(
            f"{name} has {rows} embeddings, but its tokenizer gives ids up to {highest}: this is another model's "
            "tokenizer, or the embeddings were not resized after tokens were added"
        )


def _device(device: str | None) -> Any:
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(Fault("device", device, f"a device of this machine ({_reason(error)})")) from error
    return place


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return json.dumps(names[:3])[1:-1] + more


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
