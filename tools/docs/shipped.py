"""Generates the chart's permissions and policies in the form in which `rekindle doctor` compares them with a
cluster.

The file is part of the package, so that a doctor that is installed without the chart knows them. The policies
that warn of mistyped keys are left out, because nothing depends on them.
"""

from __future__ import annotations

import yaml

from tools.docs.chart import CHART

__all__ = ["shipped_file"]

_HEAD = """\
# Generated from the chart's rights and policies by `make docs`; their files say why each is as it is.
"""
_FILES = (
    "rbac/agent.yaml",
    "rbac/controller.yaml",
    "node_condition/rbac.yaml",
    "policies/agent.yaml",
    "policies/controller.yaml",
    "policies/environment.yaml",
    "policies/fence.yaml",
    "policies/fence_jobs.yaml",
    "policies/fence_anew.yaml",
)


def shipped_file() -> str:
    texts = [(CHART / "files" / name).read_text(encoding="utf-8") for name in _FILES]
    bodies = [body for text in texts for body in yaml.safe_load_all(text)]
    return _HEAD + yaml.safe_dump_all(bodies, sort_keys=False, width=110)
