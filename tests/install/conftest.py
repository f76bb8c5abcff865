"""What the tests of an installed Seqmark share: one wheel, one sdist, one environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from packing.hook import KERNELS
from packing.kernels import compile_kernels
from tests.support.suite.installed import ROOT, Built, Installed, build, distributions, link, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Give wheel and sdist of this tree."""
    folder = build(tmp_path_factory.mktemp("dist"))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Give an environment with the wheel and no extra. It has kernels of both modes: the audit tries both."""
    kernels = tmp_path_factory.mktemp("kernels")
    assert compile_kernels(kernels, ["watermark", "insert-id"]) is not None
    (wheel,) = build(tmp_path_factory.mktemp("shipped"), ROOT, "wheel", env={KERNELS: str(kernels)}).glob("*")
    return Installed(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="session")
def extras(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Give the variables with which the environment has the packages of all extras, too."""
    folder = tmp_path_factory.mktemp("extras")
    link(distributions(metadata(built.wheel), ["all"]), folder)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Give a user's project that has names of ours: ``schemas`` with a model, others that must not be run."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text("WHOSE = 'the user'\n")
    (tmp_path / "schemas" / "my.py").write_text(
        "from decimal import Decimal\n"
        "from pydantic import AwareDatetime, BaseModel\n"
        "from schemas import WHOSE\n"
        "class Model(BaseModel):\n"
        "    at: AwareDatetime\n"
        "    amount: Decimal\n"
    )
    for name in ("processor", "spark_sink"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the user has this name')\n")
    return tmp_path
