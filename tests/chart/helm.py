"""Calls the real Helm, 3 and 4, on Rekindle's chart. It uses nothing of the person's own Helm
configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.build import cached

__all__ = [
    "CHART",
    "HELMS",
    "KUBERNETES",
    "NAMESPACE",
    "REGISTRY",
    "Helm",
    "HelmError",
    "notes",
    "of_kind",
    "path_of",
]

CHART = Path(__file__).parents[2] / "charts" / "rekindle"
HELMS = ("helm3", "helm4")
NAMESPACE = "rekindle-system"
KUBERNETES = "1.36.0"
REGISTRY = "registry.test"
"""Registry of the image. Helm refuses a release until the values name the image's registry."""


class HelmError(Exception):
    """Helm failed. The message is Helm's output."""


class Helm:
    def __init__(self, program: str, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = cached().path(program)
        self._folder = folder
        self._kubeconfig = kubeconfig or folder / "none"

    def run(self, *args: str) -> str:
        """Runs Helm and returns its standard output. Raises HelmError."""
        done = subprocess.run(
            [self._program, *args],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._folder),
                "KUBECONFIG": str(self._kubeconfig),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HelmError(done.stdout + done.stderr)
        return done.stdout

    def render(
        self, values: dict[str, Any], *, kubernetes: str = KUBERNETES, apis: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Returns the release's objects. Raises HelmError."""
        flags = [f"--api-versions={api}" for api in apis]
        flags += [f"--kube-version={kubernetes}", f"--namespace={NAMESPACE}", *self.values(values)]
        text = self.run("template", "rekindle", str(CHART), *flags)
        return [body for body in yaml.safe_load_all(text) if body]

    def values(self, values: dict[str, Any]) -> list[str]:
        """Returns flags for these values, and for an image if the values name none."""
        values = (
            values if "image" in values or "global" in values else {**values, "image": {"registry": REGISTRY}}
        )
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return ["--values", str(file)]


def notes(helm: Helm, tmp_path: Path, version: str, values: dict[str, Any]) -> str:
    """Returns the notes of a release. `helm template` leaves them out, so they are rendered here as a
    template like the others."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    text = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (chart / "templates" / "_notes.tpl").write_text(
        f'{{{{- define "notes" -}}}}\n{text}{{{{- end }}}}', encoding="utf-8"
    )
    (chart / "templates" / "notes.yaml").write_text(
        'notes: {{ include "notes" . | quote }}', encoding="utf-8"
    )
    flags = [f"--kube-version={version}", "--show-only=templates/notes.yaml", *helm.values(values)]
    return str(yaml.safe_load(helm.run("template", "rekindle", str(chart), *flags))["notes"])


def of_kind(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """Returns the only object of that kind, or of that kind and name."""
    (found,) = (o for o in objects if o["kind"] == kind and (not name or o["metadata"]["name"] == name))
    return found


def path_of(body: dict[str, Any]) -> str:
    """Returns the path of the object in the API."""
    version, kind, meta = body["apiVersion"], body["kind"].lower(), body["metadata"]
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    within = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{plural}/{meta['name']}"
