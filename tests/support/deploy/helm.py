"""Renders the Helm chart, or reads what Helm has rendered: few machines have Helm, and CI builds none.

``python -m tests.support.deploy.helm`` renders it anew, with Helm on the PATH; who edits the chart has to. Helm
is built in about 3 CPU minutes by ``go install helm.sh/helm/v3/cmd/helm@v3.19.0``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
HELM = ROOT / "deploy/helm"
CHART = HELM / "seqmark"
GOLDEN = ROOT / "tests/golden/helm"
HASH = GOLDEN / "chart.sha256"
CASES: dict[str, dict[str, Any]] = {
    "full": yaml.safe_load((HELM / "example-values.yaml").read_text()),
    "small": {
        "existingConfigMap": "mine",
        "memoryLimit": "900MB",
        "staticMembership": False,
        "persistence": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "image": {"digest": "sha256:" + "0" * 64},
    },
}
"""Values by case: together they take each branch of the templates."""


def program() -> str | None:
    """Return where Helm is, if it is."""
    return shutil.which("helm")


def rendered(case: str) -> dict[str, Any]:
    """Return the manifests of a case, as they are kept, by kind."""
    manifests = yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text())
    return {manifest["kind"]: manifest for manifest in manifests}


def render(case: str) -> str:
    """Render the manifests of a case with Helm; a new version of Seqmark leaves them as they are."""
    text = helm("template", "clicks", "--kube-version", "1.31.0", values=CASES[case])
    version: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    return text.replace(version, "VERSION")


def helm(*arguments: str, values: dict[str, Any]) -> str:
    """Call Helm for the chart; return what it says. Fails where it does."""
    command = (program() or "helm", *arguments, str(CHART), "--values", "-")
    # JSON is YAML.
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def chart_hash() -> str:
    """Return the hash of everything that the kept manifests were made of."""
    digest = hashlib.sha256(json.dumps(CASES, sort_keys=True).encode())
    for file in sorted(path for path in CHART.rglob("*") if path.is_file() and path.suffix != ".md"):
        text = re.sub(r"(?m)^(version|appVersion):.*", "", file.read_text())
        digest.update(f"\n{file.relative_to(CHART)}\n{text}".encode())
    return digest.hexdigest()


if __name__ == "__main__":
    for name in CASES:
        (GOLDEN / f"{name}.yaml").write_text(render(name))
    HASH.write_text(f"{chart_hash()}\n")
