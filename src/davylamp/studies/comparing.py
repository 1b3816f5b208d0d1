"""The step that compares the landscapes of several runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from davylamp.errors import Fault, InputError
from davylamp.measures.landscape.model import FILE, Landscape, is_file_of
from davylamp.report.html import render_comparison
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_checks import Named
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Frontier, is_comparison
from davylamp.verdict.frontier_model import FILE as FRONTIER

PAGE = "compare.html"
"""The page, unless another place is named."""


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What shall be compared, and how.

    Attributes:
        x: the horizontal axis.
        y: the vertical one.
        doses: pool canaries of these doses only; all if none.
        confidence: of every interval.
        out: where the result goes; ``frontier.json`` here if none.
    """

    x: str = CAPABILITY
    y: str = PRIVACY
    doses: tuple[int, ...] | None = None
    confidence: float = 0.95
    out: Path | None = None


def compare_step(places: Sequence[Path], request: CompareRequest) -> tuple[Frontier, Path, Path]:
    """Compare the landscapes of runs; writes the result, and a page beside it.

    Args:
        places: run folders, folders that hold several, or landscape files.
        request: how.

    Returns:
        The comparison, and where its data and its page are.

    Raises:
        InputError: a place holds no landscape, the runs are not comparable (all faults are named), or the result would
            take the place of its page, of a landscape or of a folder.
        RunFolderError: a landscape is damaged.
        StorageError: a file cannot be written.
    """
    data = Path(FRONTIER) if request.out is None else files.file_named("--out", request.out, FRONTIER)
    if data.suffix == ".html" or is_file_of(data):
        # The page would take the data's place, or the data that of what is compared.
        raise InputError(Fault("--out", str(data), f"a file such as {FRONTIER}; its page is written beside it"))
    if data.exists() and not is_comparison(data):
        raise InputError(Fault("--out", str(data), "a new file, or a comparison to replace: this is none"))
    found = frontier(landscapes(places), request.x, request.y, request.doses, request.confidence)
    page = data.with_suffix(".html") if request.out is not None else data.with_name(PAGE)
    found.save(data)
    title = " ".join(place.resolve().name for place in places[:3]) + (" …" if len(places) > 3 else "")
    files.write_text(page, render_comparison(found, title, data.name))
    return found, data, page


def landscapes(places: Sequence[Path]) -> list[Named]:
    """The landscapes in some places, each once, with the names of their runs.

    Raises:
        InputError: a place holds none, or one of what was planted or trained there before; all such places are named.
        RunFolderError: one is damaged.
    """
    found: dict[Path, str] = {}
    faults = []
    for place in places:
        own = list(_within(place))
        if not own:
            fix = "Run `davylamp landscape` there first."
            faults.append(Fault("RUN", str(place), f"a folder that holds {FILE}, or one of those files", fix))
        for path in own:
            inside = path.parent if place.is_file() else path.parent.relative_to(place)
            name = str(place) if inside == Path() else str(path.parent)
            # A folder may hold those of several models.
            found.setdefault(path.resolve(), name if path.name == FILE else str(path))
    read = [(name, path, Landscape.load(path)) for path, name in found.items()]
    faults += [fault for _, path, landscape in read if (fault := _stale(path, landscape)) is not None]
    if faults:
        raise InputError(faults)
    return [(name, landscape) for name, _, landscape in read]


def _stale(path: Path, landscape: Landscape) -> Fault | None:
    """What is wrong where a landscape is not of what its run folder holds now."""
    folder = RunFolder(path.parent)
    fix = "Run `davylamp landscape` there again, or move what shall be kept out of the run folder."
    if folder.manifest.is_file():
        planted = _hash_in(folder.manifest, "planted_sha256")
        if planted is not None and planted != landscape.planted_sha256:
            return Fault("RUN", str(path), "of the rows that its folder holds now; they were planted anew since", fix)
    if path.name == FILE and folder.training.is_file():
        trained = _hash_in(folder.training, "trained_sha256")
        if trained is not None and trained != landscape.weights_sha256:
            return Fault("RUN", str(path), "of the model that its folder holds now; it was trained anew since", fix)
    return None


def _hash_in(path: Path, key: str) -> str | None:
    found = files.read_json(path).get(key)
    return found if isinstance(found, str) else None


def _within(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    elif place.is_dir():
        paths = (path for path in place.rglob("*.json") if is_file_of(path) and path.is_file())
        yield from sorted(
            path for path in paths if not any(part.startswith(".") for part in path.relative_to(place).parts)
        )
