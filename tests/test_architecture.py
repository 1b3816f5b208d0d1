"""The import rules hold, and the check of them can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LIGHT = (
    "bounds",
    "secrets",
    "canaries",
    "corpora",
    "rendering",
    "protect.corpus",
    "verdict",
    "report",
    "runs",
    "errors",
)
HEAVY = {"torch", "transformers", "peft", "accelerate"}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the import linter on the package below ``folder``, with the rules of this repository."""
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        # The path comes before an installed davylamp.
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, to be spoilt."""
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(SOURCE / "davylamp", tmp_path / "src" / "davylamp", ignore=ignored)
    return tmp_path


def test_imports_run_one_way_and_the_light_packages_need_no_torch(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("secrets/streams.py", "import davylamp.canaries.plan", "imports run one way"),
        ("report/build.py", "import torch", "the light packages need no torch"),
    ],
)
def test_the_check_fails_where_a_rule_is_broken(copy, module, line, broken):
    path = copy / "src" / "davylamp" / module
    path.write_text(path.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{broken} BROKEN" in done.stdout
    assert "1 kept, 1 broken" in done.stdout


def test_the_rules_name_every_package():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers, light = rules
    packages = {
        path.stem for path in (SOURCE / "davylamp").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {f"davylamp.{name}" for name in packages - {"__init__", "__main__"}} == set(layers["layers"])
    assert set(light["source_modules"]) == {f"davylamp.{name}" for name in LIGHT}
    assert set(light["forbidden_modules"]) == HEAVY


def test_every_light_module_loads_without_torch():
    # Whether torch can be imported at all makes no difference to them.
    code = (
        "import importlib, pkgutil, sys\n"
        f"heavy = {sorted(HEAVY)}\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in heavy: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import davylamp\n"
        f"for name in {LIGHT}:\n"
        "    package = importlib.import_module(f'davylamp.{name}')\n"
        "    for module in pkgutil.walk_packages(getattr(package, '__path__', []), f'davylamp.{name}.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sum(name.startswith('davylamp.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > len(LIGHT)
