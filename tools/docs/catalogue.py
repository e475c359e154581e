"""The pages of the catalogues: what each Xid, each NVLink sub-code and each register bit means to Rekindle,
and the rows of the other families of faults."""

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

Generated from `detectors/catalog/*.toml` by `make docs`; each row there names its source, and
`settings.catalogue` of the chart adds rows of your own, which win.

- *severity*: `info` is recorded and never acted upon; `pending` means that work goes on, and Rekindle acts at
  the next checkpoint; `fatal` means that work on the device is lost.
- *origin*: a program can provoke a code of origin `tenant` at will. Such a code restarts that program's own
  job at most, and never takes a node out.
- A code that is not listed is of class `unknown`, severity `pending`: never healthy, and a person decides.
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
        "The driver's own verdict. It raises the finding of the device that it follows, or stands by itself.",
        "",
        "| value | text | class | severity | remedy |",
        "|---|---|---|---|---|",
        *_actions(),
        "",
        "## Exceptions that repeat in one place (Xid 13 and 31)",
        "",
        "An exception is the program's own. Those of programs of several namespaces make the GPU suspect if",
        "each program was alone on the GPU, and each had its exceptions in the same place and in no other.",
        "Rekindle does not count exceptions that show several places at once, those in the places where a",
        "GPU puts the first blocks of a grid, and those in a place in which another GPU of the node had",
        "exceptions, too. It does not count on GPUs that pods share. A row `[[engine]]` of your own changes",
        "the figures.",
        "",
        *_table(ENGINE),
        "",
        "## NVLink5 sub-codes (Xid 144-150)",
        "",
        "Read from the words of a line: `UNIT Fatal|Nonfatal XC0 i0 Link 03 (INTRINFO ERRORSTATUS ...)`.",
        "A line that no row fits, or whose row contradicts the driver's own word, is `fatal` where the",
        "driver says Fatal, and otherwise `pending`.",
        "",
        "| sub-code | before R575 | since R575 | NVIDIA's action | investigate | severity |",
        "|---|---|---|---|---|---|",
        *_nvlink5(),
        "",
        "## Register bits of Xid 74",
        "",
        "The gravest bit that is set decides. Where a line shows no registers, where no bit is set, or one",
        "that has no row, Xid 74 is `fatal`.",
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
    """File name -> page: each family whose rules have tables beside that of the Xids."""
    found = {}
    for family in families():
        tables = [t for rule in rules.RULES if rule.family is family for t in rule.tables if t != XIDS]
        if tables:
            found[f"{family}.md"] = _family_page(family, tables)
    return found | {
        "gpu-health.md": _family_page(Family.GPU_HEALTH, [GPU_HEALTH]),
        "network-ports.md": _PORTS + "\n".join(_table(FABRIC)) + "\n",
        "node-states.md": _NODE + "\n".join(_table(HOST_STATES)) + "\n",
        "volumes.md": _VOLUMES + "\n".join(_table(VOLUMES)) + "\n",
    }


def _family_page(family: Family, tables: list[Table[Any]]) -> str:
    lines = [
        f"# Faults of {FAMILIES[family]}",
        "",
        "Generated from `detectors/catalog/*.toml` by `make docs`. `settings.catalogue` of the chart adds",
        f"rows of your own ({', '.join(f'`[[{table.name}]]`' for table in tables)}), which win.",
        "",
        "`info` is a note. `suspect` makes restarts prefer other nodes for a while, and stops nothing.",
        "`pending` lets the present work go on to its next checkpoint. `fatal` takes the node out and moves",
        "the gangs there, in the modes that may.",
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

Generated from `detectors/catalog/fabric.toml` by `make docs`. The agent reads the ports of InfiniBand and
RoCE adapters in `/sys/class/infiniband` every `fabric.every_s`. The figures below are settings of the group
`[fabric]` ([settings](settings.md)). `settings.catalogue` of the chart changes what a code means by rows of
your own (`[[fabric]]`), which win; each has one of the codes below.

`info` is a note. `suspect` makes restarts prefer other nodes for a while, and stops nothing. `fatal` takes
the node out of service and moves its gangs to other nodes, if the mode allows it.

- A finding is about an adapter, by its PCI function, and its evidence names the port. The agent writes it
  when it begins and when it ends; as long as it lasts it costs nothing.
- A port is compared with itself in this boot. After a boot, and after its driver was loaded, it is not judged
  for `settle_s`. A link that was up for less than a minute counts as still in training.
- A gang that goes on without a port is not stopped for it. The port is `port-dead` only where a pod that held
  accelerators when the link was lost has ended since, or where its steps were read and have stopped. The
  kubelet tells which pods hold accelerators (`pod_resources`).
- `port-down` begins at the first sample that showed the port down, though the second sample tells it. Ranks
  that died before that count as lost by the fault of this node once the port is `port-dead`, even if the
  gang runs again by then.
- If a switch fails, it takes a port of many nodes. Their agents take samples at the same moments, so the
  controller hears of these nodes together, and its brake (`budgets.brake_percent`, `budgets.brake_nodes_min`)
  keeps them in service. The budgets for quarantine bound what fewer nodes may cost.
- None of this counts while an operator
  [works on a driver of the node](../other-detectors.md#work-on-the-driver).
- Not covered: a port that was never active in this boot; a virtual function; an Ethernet port while its
  network device is switched off or in a pod's network namespace; an InfiniBand adapter that a pod has taken
  into its own (the kernel does not show it to the node). An EFA adapter shows no link: only that it is there,
  and its counters, are known. A link that goes down within a minute of a pod's start or end is not counted
  as a flap.

"""
_VOLUMES = """\
# Volumes of pods

Generated from `detectors/catalog/volumes.toml` by `make docs`. The agent asks the volumes that pods with
accelerators mount for their room (`statvfs`) every `volumes.every_s`, and when a rank ends. The figures below
are settings of the group `[volumes]` ([settings](settings.md)). `settings.catalogue` of the chart changes
what a code means by rows of your own (`[[volumes]]`), which win; each has one of the codes below.

Every row is a note (`info`): no node is quarantined for a volume, and no restart avoids a node for one.

- A finding is about a volume of a pod. `subject.volume` is the name that the kubelet uses: of a claim that is
  the name of its persistent volume (`kubectl get pvc` shows both), else the name in the pod's spec. Its
  evidence names the type of the file system and where it comes from, for example the server of an NFS export.
- The Incident of a gang names the volumes of its lost ranks as evidence. Where the log of the first lost rank
  does not say why it ended, and one of its volumes was full, the Incident says `resources`.
- A file server that is gone shows on each node that mounts it. Where a volume is silent or broken on two
  nodes or more, the Incident says so, and none of these nodes is a suspect.
- A child process makes the calls, since one may never return. A volume that does not answer within
  `deadline_s` is silent, and the child is killed. A child that cannot be ended is counted; its file system is
  not asked again before the child has ended, and with three such children the source is blind.
- The chart mounts the kubelet's folder of pods read-only, with `mountPropagation: HostToContainer`, which
  shows volumes that are mounted later. The agent opens no file there, and denies that to itself by Landlock
  (`confinement`).
- A file system in user space (FUSE) says of itself what its program likes. It counts as full only once the
  agent has seen it with room.
- Not covered: folders of the node that a pod mounts (hostPath), an emptyDir on the node's disk (the kubelet
  enforces its limit), raw block volumes, and a quota that the file system does not report as its size.

"""
_NODE = """\
# States of the node

Generated from `detectors/catalog/host_states.toml` by `make docs`. The agent reads them in `/proc` and `/sys`
(settings of the group `[host]`: [settings](settings.md)). `settings.catalogue` of the chart changes what a
code means by rows of your own (`[[host_states]]`), which win; each has one of the codes below. The messages
of the kernel log about the node itself stand in [host](host.md).

Every row is a note (`info`) about the node: no node is quarantined for one, and no restart avoids it.

- After a boot the agent says once why the node has booted, as far as that was recorded. `rekindle why NODE`
  shows it, and the Incident of a gang whose rank was lost before that boot has it as evidence.
- pstore keeps the kernel's last words over a crash where the node has a place for them (UEFI, ERST, ramoops),
  and systemd moves them to `/var/lib/systemd/pstore` (`agent.hostPaths.crashRecords`). The chart mounts both,
  read-only, and coverage names the one that is not seen. A record without a time of its own is as old as its
  file, so one that nobody removes may be told again after the next boot.
- The agent recognises a reset by the watchdog only if the watchdog's driver keeps `bootstatus` over a reset.
- Fatal errors of the boot before that firmware recorded (BERT) stand in the kernel log:
  [`firmware-fatal-before`](host-memory.md).
- Not told, since a node cannot read it for sure: whether a shutdown was clean, a loss of power, a reset by
  the node's management controller. A first sample of a node without any record says nothing.
- `clock-drift` is measured by the answers of the API server (header `Date`, in whole seconds), each of which
  bounds the difference by the time that the request took. It is told only where three answers or more agree
  that the clocks are further apart than `clock_s`, and it says the interval.
- Pressure is the kernel's own measure (PSI, five minutes); a kernel without it is no data. A state of
  pressure ends when the measure is half of its limit or less.
- `pids-short` counts the threads of the whole node against the lower one of `threads-max` and `pid_max`. The
  state ends when the share is nine tenths of its limit or less. From Linux 6.14 on a container may see a
  `pid_max` of its own, and then `threads-max` alone counts.
- Not told: processes that hang in state D with a GPU open. The agent's pod shares no process ids with the
  node (`hostPID`), so it sees no foreign process; a driver that hangs shows by NVML's silence
  ([GPU health](gpu-health.md)) and by hung tasks in the kernel log ([host](host.md)).

"""
_SENTENCES = [
    "",
    "A line is matched whole, from its beginning. `{pci}` is an address of a device of the node",
    "(`0000:3b:00.0`), `{number}` and `{hex}` are numbers, `{device}` is a name of the kernel's (`sda1`),",
    "`{host}` that of a host, `{word}` anything without a space, `{rest}` anything to the end. A row of your",
    "own begins as one of these rows does, and what is more than a note has at least 16 fixed characters",
    "before its first `{word}` or `{rest}`.",
]
_HOW = {
    "gpu_health": [
        "",
        "The agent takes a sample of NVML every `nvml.every_s`, each in a session with the driver. A row",
        "counts when so many samples in a row show it (column *samples*). It has ended after two samples",
        "that do not show it. A value that a GPU does not support is no data. While the MIG mode of a GPU",
        "changes, the agent judges nothing of that GPU. A row of your own has one of these codes.",
    ],
    "sxid": [
        "",
        "The driver writes Fatal or Non-fatal into most lines: then the column of that word counts, else",
        "`severity`. A code without a row is `suspect`, `fatal` where the line says Fatal, and `info` where",
        "it says Non-fatal.",
    ],
}


def _cell(value: Any) -> str:
    """Lines of a log stand as they are, one below the other."""
    if isinstance(value, tuple):
        return "<br>".join(f"`{one_line(str(item))}`" for item in value)
    if isinstance(value, Repeated):
        return f"{value.severity}, {value.times} times in {value.within_s:g} s"
    if value is None:
        return ""
    return one_line(str(value))
