"""Generates the pages of the catalogues: the meaning of each Xid, NVLink sub-code and register bit to
Rekindle, and the rows of the other families of faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from detectors import rules
from detectors.catalog.load import packaged_rows
from detectors.catalog.nvlink5 import NvLink5Table
from detectors.catalog.nvlink_bits import packaged_nvlink_bits
from detectors.catalog.tables import Table
from detectors.catalog.xid import XIDS, RecoveryAction
from detectors.rules import families
from detectors.rules.engine_faults import ENGINE
from detectors.rules.fabric_rows import FABRIC
from detectors.rules.facts import Repeated
from detectors.rules.gpu_health import GPU_HEALTH
from detectors.rules.host_state_rows import HOST_STATES
from detectors.rules.sentences import SentenceRow
from detectors.rules.volume_rows import VOLUMES
from detectors.wire.contract import Family
from recover.diagnose.coverage import FAMILIES
from tools.docs.structs import one_line

__all__ = ["catalogue_page", "family_pages"]

_HEAD = """\
# NVIDIA Xid codes

Generated from `detectors/catalog/*.toml` by `make docs`. Each row in these files names its source. The
value `settings.catalogue` of the chart adds your rows; a row of yours replaces the packaged row of the same
code.

- *severity*: `info` is a note, and Rekindle takes no action. `pending` means that the work on the device
  goes on, and that Rekindle acts at the next checkpoint. `fatal` means that the work on the device is lost.
- *origin*: a program can provoke a code of origin `tenant` at will. For such a code Rekindle at most
  restarts the job of that program, and never takes a node out of service.
- *class* is the fault class: the kind of thing that broke. *remedy* is what repairs the fault.
- *NVIDIA's action* is NVIDIA's own word for the immediate action. *decision* is the reason of Rekindle's
  severity if the public sources disagree.
- A code without a row has the class `unknown` and the severity `pending`: Rekindle does not take the device
  for healthy, and a person decides.
"""


def catalogue_page() -> str:
    lines = [
        _HEAD,
        "## Codes",
        "",
        "| Xid | meaning | class | origin | severity | remedy | NVIDIA's action | decision |",
        "|---|---|---|---|---|---|---|---|",
        *_codes(),
        "",
        "## Recovery action (Xid 154)",
        "",
        "With Xid 154 the driver says how to recover the device. If the device has an earlier open finding,",
        "Xid 154 raises the severity of this finding. Otherwise Xid 154 is a new finding.",
        "",
        "| value | text | class | severity | remedy |",
        "|---|---|---|---|---|",
        *_actions(),
        "",
        "## Exceptions that repeat in one place (Xid 13 and 31)",
        "",
        "A single exception is a fault of the program. If programs of several namespaces had exceptions in",
        "the same place of a GPU and in no other place, and each program was alone on the GPU, then the GPU",
        "is a suspect. Rekindle ignores",
        "",
        "- an exception that shows several places at once;",
        "- an exception in a place where a GPU puts the first blocks of a grid;",
        "- an exception in a place where another GPU of the node also had exceptions;",
        "- exceptions on GPUs that pods share.",
        "",
        "Your row `[[engine]]` changes the limits.",
        "",
        *_table(ENGINE),
        "",
        "## NVLink5 sub-codes (Xid 144-150)",
        "",
        "Rekindle reads the sub-code from the words of a line:",
        "`UNIT Fatal|Nonfatal XC0 i0 Link 03 (INTRINFO ERRORSTATUS ...)`. If no row fits the line, or if",
        "the row contradicts the driver's word, the line is `fatal` if the driver says Fatal, and otherwise",
        "`pending`.",
        "",
        "| sub-code | before R575 | since R575 | NVIDIA's action | investigate | severity |",
        "|---|---|---|---|---|---|",
        *_nvlink5(),
        "",
        "## Register bits of Xid 74",
        "",
        "If several bits are set, the bit with the highest severity decides. Xid 74 is `fatal` if its line",
        "shows no registers, if no bit is set, or if a set bit has no row.",
        "",
        "| register | bits | meaning | severity |",
        "|---|---|---|---|",
        *_bits(),
    ]
    return "\n".join(lines) + "\n"


def _codes() -> Iterator[str]:
    for row in XIDS.packaged():
        decided = one_line(row.reason.partition("Decided: ")[2] or row.reason)
        yield (
            f"| {row.code} | {one_line(row.meaning)} | {row.fault} | {row.origin} | {row.severity} | "
            f"{row.remedy} | {row.vendor_action} | {decided} |"
        )


def _actions() -> Iterator[str]:
    for row in packaged_rows("xid.toml", "recovery_action", RecoveryAction):
        yield f"| {row.value} | {row.text} | {row.fault} | {row.severity} | {row.remedy} |"


def _nvlink5() -> Iterator[str]:
    for row in NvLink5Table.packaged().rows:
        yield (
            f"| {row.name} | `{row.layout_before_r575}` | `{row.layout_r575}` | {row.vendor_action} | "
            f"{row.investigate} | {row.severity} |"
        )


def _bits() -> Iterator[str]:
    for row in packaged_nvlink_bits():
        bits = ", ".join(str(bit) for bit in row.bits)
        yield f"| {row.register} | {bits} | {one_line(row.meaning)} | {row.severity} |"


def family_pages() -> dict[str, str]:
    """Returns file name -> page, for each family whose rules have tables beside that of the Xids."""
    found = {}
    for family in families():
        tables = [t for rule in rules.RULES if rule.family is family for t in rule.tables if t != XIDS]
        if tables:
            found[f"{family}.md"] = _family_page(family, tables)
    return found | {
        "gpu-health.md": _family_page(Family.GPU_HEALTH, [GPU_HEALTH]),
        "network-ports.md": _PORTS.format(severities="\n".join(_SEVERITIES))
        + "\n".join(_table(FABRIC))
        + "\n",
        "node-states.md": _NODE + "\n".join(_table(HOST_STATES)) + "\n",
        "volumes.md": _VOLUMES + "\n".join(_table(VOLUMES)) + "\n",
    }


def _family_page(family: Family, tables: list[Table[Any]]) -> str:
    lines = [
        f"# Faults of {FAMILIES[family]}",
        "",
        "Generated from `detectors/catalog/*.toml` by `make docs`. The value `settings.catalogue` of the",
        f"chart adds your rows ({', '.join(f'`[[{table.name}]]`' for table in tables)}); a row of yours",
        "replaces the packaged row of the same code.",
        "",
        *_SEVERITIES,
    ]
    told: list[list[str]] = []
    for table in tables:
        how = _HOW.get(table.name, _SENTENCES if issubclass(table.row, SentenceRow) else [])
        if how not in told:
            told.append(how)
            lines += how
    for table in tables:
        lines += ["", f"## {table.name}", "", *_table(table)]
    return "\n".join(lines) + "\n"


_SEVERITIES = (
    "The severity says what Rekindle does, if the mode allows the action:",
    "",
    "- `info` is a note: Rekindle records the fault, and takes no action.",
    "- `suspect`: for a while restarts prefer other nodes. Rekindle stops no job.",
    "- `pending`: the work on the device goes on. Rekindle moves the gang to other nodes at its next",
    "  checkpoint.",
    "- `fatal`: Rekindle takes the node out of service, and moves the gangs of the node to other nodes.",
)


def _table(table: Table[Any]) -> Iterator[str]:
    rows = table.packaged()
    fields = [field.name for field in msgspec.structs.fields(table.row) if field.name != "examples"]
    names = [name for name in fields if any(getattr(row, name) is not None for row in rows)]
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_cell(getattr(row, name)) for name in names)} |"


_PORTS = """\
# Network ports

Generated from `detectors/catalog/fabric.toml` by `make docs`. Every `fabric.every_s` the agent reads the
ports of InfiniBand and RoCE adapters in `/sys/class/infiniband`. Words such as `settle_s` are settings of
the group `[fabric]` ([settings](settings.md)). The value `settings.catalogue` of the chart changes the
meaning of a code: your row (`[[fabric]]`) replaces the packaged row of the same code. Each of your rows has
one of the codes below.

{severities}

The agent and the controller judge ports by these rules:

- A finding is about an adapter (the PCI function), and the evidence of the finding names the port. The
  agent writes a finding at its start and at its end. A finding that lasts causes no further writes.
- The agent compares a port with itself in this boot. For `settle_s` after a boot, and after the driver was
  loaded, the agent does not judge the port. If a link was up for less than a minute, the
  agent assumes that the link is still in training.
- Rekindle does not stop a gang that goes on without a port. The port is `port-dead` only if a pod that held
  accelerators when the link was lost has ended within an hour, or if the agent read the steps of such a pod
  and the steps have stopped. A pod that has shown a step later than `dead_s` after the loss does not need the
  port, so its end proves nothing. The kubelet reports which pods hold accelerators (`pod_resources`).
- The agent does not see exit codes. So the port also becomes `port-dead` if no job needs the port, but a job
  ends well within an hour after the loss, and the agent has read no step of the job later than `dead_s` after
  the loss. If your nodes have ports that no job needs, give `port-dead` the severity `suspect` in
  `settings.catalogue`.
- `port-down` needs two samples, and begins at the time of the first sample. If ranks died before that time
  and the port then becomes `port-dead`, Rekindle treats these ranks as lost by the fault of this node, even
  if the gang runs again by then.
- If a switch fails, ports of many nodes go down. The agents of these nodes take samples at the same
  moments, so the controller gets the findings together, and its brake (`budgets.brake_percent`,
  `budgets.brake_nodes_min`) keeps the nodes in service. If fewer nodes are affected than the brake needs,
  the budgets for quarantine limit the number of nodes that Rekindle cordons.
- Rekindle ignores these findings while an operator
  [works on a driver of the node](../other-detectors.md#work-on-the-driver).
- The agent does not cover a port that was never active in this boot, a virtual function, an Ethernet port
  while its network device is switched off or in a pod's network namespace, and an InfiniBand adapter that a
  pod has moved into its network namespace (the kernel does not show this adapter to the node). Of an EFA
  adapter the agent sees only its presence and its counters, and no link. If a link goes down within a minute
  of a pod's start or end, the agent does not treat this as a flap.

"""
_VOLUMES = """\
# Volumes of pods

Generated from `detectors/catalog/volumes.toml` by `make docs`. Every `volumes.every_s`, and when a rank
ends, the agent asks each volume that a pod with accelerators mounts for its free space (`statvfs`). Words
such as `deadline_s` are settings of the group `[volumes]` ([settings](settings.md)). The value
`settings.catalogue` of the chart changes the meaning of a code: your row (`[[volumes]]`) replaces the
packaged row of the same code. Each of your rows has one of the codes below.

Every row is a note (`info`): for the state of a volume, Rekindle quarantines no node, and restarts avoid no
node.

- A finding is about a volume of a pod. `subject.volume` is the name that the kubelet uses. For a claim,
  this is the name of the persistent volume (`kubectl get pvc` shows both names); for other volumes, it is
  the name in the pod's spec. The evidence names the type and the origin of the file system, for example the
  server of an NFS export.
- The Incident of a gang names the volumes of its lost ranks as evidence. If the log of the first lost rank
  does not say why the rank ended, and one of its volumes was full, the fault class of the Incident is
  `resources`.
- If a file server does not answer, each node that mounts its volumes shows the fault. If a volume is silent
  or broken on two nodes or more, the Incident says so, and none of these nodes is a suspect.
- A child process makes the calls, because a call may never return. If a volume does not answer within
  `deadline_s`, the volume is silent, and the agent kills the child. The agent does not ask a file system
  again before the child of that file system has ended. If three children cannot be ended, the source is
  blind.
- The chart mounts the kubelet's folder of pods read-only, with `mountPropagation: HostToContainer`, so that
  the agent sees volumes that are mounted later. The agent opens no file there, and uses Landlock to make
  such an access impossible (`confinement`).
- A file system in user space (FUSE) can report any size, because its program decides. The agent
  reports such a file system as full only if the agent has seen free space in the file system before.
- The agent does not cover folders of the node that a pod mounts (hostPath), an emptyDir on the node's disk
  (the kubelet enforces its limit), raw block volumes, and a quota that the file system does not report as
  its size.

"""
_NODE = """\
# States of the node

Generated from `detectors/catalog/host_states.toml` by `make docs`. The agent reads these states in `/proc`,
`/sys` and the crash records of the node, and reads the time in the answers of the API server. Words such as
`clock_s` are settings of the group `[host]` ([settings](settings.md)). The value `settings.catalogue` of the
chart changes the meaning of a code: your row (`[[host_states]]`) replaces the packaged row of the same code.
Each of your rows has one of the codes below. The page [host](host.md) lists the messages of the kernel log
about the node itself.

Every packaged row is a note (`info`) about the node: for such a state, Rekindle quarantines no node, and
restarts avoid no node.

- After a boot the agent reports once why the node has booted, if the node has a record of the cause.
  `rekindle why node/NAME` shows the cause. If a gang lost a rank before that boot, its Incident has the
  cause as evidence.
- If the node has a place for pstore (UEFI, ERST, ramoops), pstore keeps the kernel's last messages over a
  crash. systemd moves them to `/var/lib/systemd/pstore` (`agent.hostPaths.crashRecords`). The chart mounts
  both folders read-only, and coverage names a folder that the agent does not see. If a record contains no
  time, the agent uses the modification time of the record's file. If nobody removes such a record, the
  agent may report it again after the next boot.
- The agent recognises a reset by the watchdog only if the watchdog's driver keeps `bootstatus` over a
  reset.
- If firmware recorded a fatal error of the previous boot (BERT), the kernel log shows that error:
  [`firmware-fatal-before`](host-memory.md).
- The agent does not report whether a shutdown was clean, a loss of power, or a reset by the node's
  management controller, because a node cannot read these causes reliably. If a node has
  no record of an earlier boot, the agent reports no finding for the first boot that it sees.
- For `clock-drift` the agent uses the answers of the API server (header `Date`, in whole seconds). The agent
  knows the difference between the clocks only within an interval, because a request takes time. The agent
  reports the state only if three answers or more agree that the clocks differ by more than `clock_s`; the
  evidence has the interval.
- Pressure is the kernel's own measure (PSI, over five minutes). A kernel without PSI gives no data. A state
  of pressure ends when the measure is half of its limit or less.
- `pids-short` compares the threads of the whole node with `threads-max` or `pid_max`, whichever is lower.
  The state ends when the share is nine tenths of its limit or less. Since Linux 6.14 a container may see a
  different `pid_max` than the node; then the agent uses only `threads-max`.
- The agent does not report processes that hang in state D while they use a GPU. The agent's pod has a PID
  namespace of its own (`hostPID: false`), so the agent sees no process of other pods. If a driver
  hangs, NVML does not answer ([GPU health](gpu-health.md)), and the kernel log shows hung tasks
  ([host](host.md)).

"""
_SENTENCES = [
    "",
    "A row describes a whole line of the kernel log, from its beginning to its end, with placeholders.",
    "`{pci}` is the PCI address of a part of the node (`0000:3b:00.0`), `{number}` and `{hex}` are",
    "numbers, `{device}` is a name of the kernel (`sda1`), `{host}` is the name or address of a host,",
    "`{word}` is any text without a space, and `{rest}` is any text to the end of the line. Each line",
    "of your rows begins with the same words as a line of the same table below. If your row has a",
    "severity above `info`, or the field `repeated`, its lines need at least 16 fixed characters before",
    "the first `{word}` or `{rest}`.",
]
_HOW = {
    "gpu_health": [
        "",
        "Every `nvml.every_s` the agent takes a sample by NVML, in a new session with the driver. On nodes",
        "with Iluvatar GPUs the agent uses IXML: the codes that begin with `ixml-` are IXML's. The agent",
        "reports a state after as many samples in succession as the column *samples* says. The state has",
        "ended after two samples that do not show the state. If a GPU does not support a value, the agent",
        "has no data for that value. While the MIG mode of a GPU changes, the agent does not judge that GPU.",
        "Each of your rows has one of these codes.",
    ],
    "sxid": [
        "",
        "The driver writes Fatal or Non-fatal into most lines. Then the column for this word has the",
        "severity of the line; otherwise the column `severity` has the severity. A code without a row is",
        "`fatal` if the line says Fatal, `info` if the line says Non-fatal, and otherwise `suspect`.",
        "",
        "The columns `driver`, `guide` and `nvsentinel` quote the sources: the word that NVIDIA's open",
        "driver prints for the code, the class of the code in NVIDIA's Fabric Manager guide, and the action",
        "of NVSentinel.",
    ],
}


def _cell(value: Any) -> str:
    """Returns the text of a cell. Each line of a log is unchanged, one below the other."""
    if isinstance(value, tuple):
        return "<br>".join(f"`{one_line(str(item))}`" for item in value)
    if isinstance(value, Repeated):
        return f"{value.severity}, {value.times} times in {value.within_s:g} s"
    if value is None:
        return ""
    return one_line(str(value))
