"""GGUF files, converted once into folders of safetensors that transformers loads in a second."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from davylamp.errors import MissingExtraError, ModelError, StorageError
from davylamp.release.quiet import quiet
from davylamp.runs.files import sha256_file

# In the folder's name, so that a change of what is written makes old folders go unused.
_FORMAT = "f32-1"
_MAGIC = b"GGUF"


def converted(file: Path, cache: Path) -> tuple[Path, str]:
    """The folder of a GGUF file's model and tokenizer in float32, made on first use.

    The folder appears whole or not at all: it is filled under another name and then renamed. A second
    process waits for the first. What a killed one left behind is removed by the next.

    Args:
        file: the GGUF file.
        cache: folder of converted models; made if missing.

    Returns:
        The folder, and the SHA-256 of the GGUF file.

    Raises:
        ModelError: the file is damaged, or of an architecture that transformers does not read from GGUF.
        MissingExtraError: the package ``gguf`` is not installed.
        StorageError: the cache cannot be written.
    """
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{file} is not a GGUF file: it does not begin with {_MAGIC.decode()}")
    digest = sha256_file(file)
    target = cache / "gguf" / f"{file.stem}-{_FORMAT}-{digest[:16]}"
    if target.is_dir():
        return target, digest
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("gguf", "gguf", f"reading {file.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _waiting(target.with_name(f".{target.name}.lock"), file):
            if not target.is_dir():
                _make(file, target)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write the converted model into {target.parent}: {error.strerror or error}; nothing was left "
            "half-written. Free some space, or name another folder in DAVYLAMP_CACHE"
        ) from error
    return target, digest


class _waiting:  # noqa: N801 - reads as a verb where it is used
    """Holds the lock of one conversion, and says so when it has to wait for another process."""

    def __init__(self, path: Path, file: Path) -> None:
        self._lock = FileLock(path)
        self._file = file

    def __enter__(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            _say(f"waiting for another process that converts {self._file.name} ...")
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _make(file: Path, target: Path) -> None:
    prefix = f".{target.name}."
    # Under the lock nobody else writes here: such folders are what a killed conversion left.
    for left in target.parent.glob(f"{prefix}*.tmp"):
        shutil.rmtree(left, ignore_errors=True)
    _say(f"converting {file.name} to safetensors in float32, once; this can take a minute ...")
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=target.parent))
    try:
        _write(file, folder)
        size = 0
        for written in folder.iterdir():
            written.chmod(0o644)
            with written.open("rb") as stream:
                os.fsync(stream.fileno())
            size += written.stat().st_size
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _say(f"converted in {time.monotonic() - begun:.0f} s: {size / 2**20:.0f} MiB in {target}")


def _write(file: Path, folder: Path) -> None:
    """Write configuration, tokenizer and weights: the model itself refuses, since it counts as quantised."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    model, tokenizer = _load(file)
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:
        # A full disk is a bare Exception of the tokenizers library; another library's bug passes through.
        if type(error) is not Exception:
            raise
        raise OSError(str(error)) from error
    _drop_tokens_beyond(folder, int(model.get_input_embeddings().weight.shape[0]))
    config = {key: value for key, value in model.config.to_dict().items() if not key.startswith("_")}
    config.pop("quantization_config", None)
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n", encoding="utf-8")
    tensors: dict[str, Any] = {}
    seen: set[tuple[int, int]] = set()
    for name, tensor in model.state_dict().items():
        # A tied head shares its memory with the embedding: it is written once, and tied again when loaded.
        place = (tensor.data_ptr(), tensor.numel())
        if place not in seen:
            seen.add(place)
            tensors[name] = tensor.detach().contiguous()
    try:
        save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _drop_tokens_beyond(folder: Path, rows: int) -> None:
    """Remove tokens that the model has no embedding for.

    transformers adds ``<|endoftext|>`` to every GPT-2 tokenizer that it reads from GGUF, also where the file
    has no such token: its id would then be one past the last embedding.
    """
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    beyond = {token["content"] for token in table["added_tokens"] if token["id"] >= rows}
    if not beyond:
        return
    table["added_tokens"] = [token for token in table["added_tokens"] if token["content"] not in beyond]
    path.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
    config = json.loads(config_path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if not (isinstance(value, str) and value in beyond)}
    config_path.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _load(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    try:
        # transformers draws one bar here that no setting turns off.
        with quiet(), contextlib.redirect_stderr(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
            model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
    except (ValueError, LookupError, TypeError, RuntimeError, OSError, ImportError, struct.error) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"{file} cannot be read as a causal language model (damaged, or of an architecture that transformers "
            f"does not read from GGUF): {reason}"
        ) from error
    return model, tokenizer


def _say(text: str) -> None:
    sys.stderr.write(f"davylamp: {text}\n")
    sys.stderr.flush()
