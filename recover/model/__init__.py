"""The World from which decisions are made, the decoders that turn API bytes into it, and the actions of a
plan.

In: API bytes.
Out: World, frozen views, modes; Plan and its actions.
Touches: nothing: pure.
"""

from __future__ import annotations

from recover.model.agents import AgentPod
from recover.model.gangs import Gang, Mark, Template, Terminal
from recover.model.nodes import Node, NodeSignal, OwnCondition, Quarantine, Release, SignalKind, Taint
from recover.model.pods import Bystander, Container, Outsider, Pod, PodPhase, UnhealthyDevice, Waiting
from recover.model.subjects import Subjects
from recover.model.volumes import Mount, Volume, VolumeKind
from recover.model.world import DEPARTED_MAX, REFUSED_AGAIN_S, NamespaceView, Refusal, World

__all__ = [
    "DEPARTED_MAX",
    "REFUSED_AGAIN_S",
    "AgentPod",
    "Bystander",
    "Container",
    "Gang",
    "Mark",
    "Mount",
    "NamespaceView",
    "Node",
    "NodeSignal",
    "Outsider",
    "OwnCondition",
    "Pod",
    "PodPhase",
    "Quarantine",
    "Refusal",
    "Release",
    "SignalKind",
    "Subjects",
    "Taint",
    "Template",
    "Terminal",
    "UnhealthyDevice",
    "Volume",
    "VolumeKind",
    "Waiting",
    "World",
]
