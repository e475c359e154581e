"""The world as decisions see it: frozen views of API objects, and nothing that can act.

observe.py fills it; diagnose, guard, plan and phases read it. Only the fields that a decision needs are here.
"""

from __future__ import annotations

from recover.model.agents import AgentPod
from recover.model.gangs import Gang, Mark, Template, Terminal
from recover.model.nodes import Node, Quarantine, Release, Taint
from recover.model.pods import Bystander, Container, Outsider, Pod, PodPhase, Waiting
from recover.model.volumes import Mount, Volume, VolumeKind
from recover.model.world import REFUSED_AGAIN_S, NamespaceView, Refusal, World

__all__ = [
    "REFUSED_AGAIN_S",
    "AgentPod",
    "Bystander",
    "Container",
    "Gang",
    "Mark",
    "Mount",
    "NamespaceView",
    "Node",
    "Outsider",
    "Pod",
    "PodPhase",
    "Quarantine",
    "Refusal",
    "Release",
    "Taint",
    "Template",
    "Terminal",
    "Volume",
    "VolumeKind",
    "Waiting",
    "World",
]
