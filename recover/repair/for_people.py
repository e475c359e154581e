"""Writes the instructions for a person who takes a repair over: what to do with the node. Pure."""

from __future__ import annotations

from detectors.wire.contract import Fault
from recover.api.repair_state import StepKind
from recover.model import Node
from recover.triage.quarantine import undone_by

__all__ = ["look_at_job", "move_pods", "see_to_that", "then_release"]

_BY_FAULT = {
    Fault.DEVICE_LOST: "check that the device is seated well and answers on the bus; power the machine "
    "off and on, or replace the device",
    Fault.MEMORY_DEGRADED: "run the vendor's memory test on the device; replace it if it fails",
    Fault.NVLINK: "check the links and the fabric manager's log",
    Fault.NVSWITCH: "check the switches and the fabric manager's log",
    Fault.NETWORK: "check the port, its cable and the switch at its other end",
    Fault.HOST: "restart the machine from its console and find out why it stopped answering",
    Fault.HOST_HARDWARE: "read the machine's own event log; replace the part that it names",
    Fault.STORAGE: "check the local disk",
    Fault.THERMAL: "check the cooling: fans, airflow, the temperature of the room",
    Fault.POWER: "check the power supplies and their feed",
    Fault.DRIVER: "check the driver's and the firmware's versions; read the kernel log",
    Fault.CORRUPTION: "remove the device and contact the vendor: the device computes wrong results",
}


def _to_do(fault: Fault) -> str:
    """Returns the instruction without its end, which `then_release` adds."""
    return _BY_FAULT.get(fault, "read the evidence in this Incident and examine the machine")


def then_release(fault: Fault, node: Node) -> str:
    """Returns the whole instruction: what to check, and the command that returns the node to service."""
    return _then_release(_to_do(fault), node)


def look_at_job(job: str, node: Node) -> str:
    """Returns the same after a validation without a report, which says nothing about the machine."""
    return _then_release(f"find out why Job {job} left no valid report, and check the node by hand", node)


def see_to_that(node: Node) -> str:
    """Returns the same after a validation that did not end. The cause is in the sentence before."""
    return _then_release("remove this cause, and check the node by hand", node)


def move_pods(rung: StepKind, node: Node) -> str:
    """Returns the same after pods of others were in the way until the deadline."""
    return _then_release(f"delete or move these pods, then {rung} the node by hand", node)


def _then_release(what: str, node: Node) -> str:
    sentence = what[0].upper() + what[1:]
    if node.quarantine is None:
        return sentence
    undo = undone_by(node.name, node.quarantine)
    return f"{sentence}. {node.name} stays in quarantine until a person ends the quarantine: {undo}"
