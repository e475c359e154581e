"""Exceptions of a GPU's engine, from lines of the kernel log to findings: only exceptions that no program
explains make a GPU suspect."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from detectors.catalog.tables import UserRows
from detectors.folds.core import AgentCore
from detectors.folds.holders import Given, HeldDevices
from detectors.rules import KernelRules
from detectors.rules.engine_faults import ENGINE, EngineRow, engine_row, place_of
from detectors.rules.facts import KernelLine
from detectors.rules.gpu_health import GpuHealth
from detectors.service.settings import AgentSettings
from detectors.wire.contract import Device, DevicePod, Finding, Severity
from tests.detectors.folds.samples import pci

KERNEL_RULES, HEALTH = KernelRules(), GpuHealth()
NOW = datetime(2026, 11, 2, 8, tzinfo=UTC)
HOUR_S = 3600.0
CODE = "engine-place-repeats"


NOBODY = "pid='<unknown>', name=<unknown>"


def of_all(gpc: int, tpc: int) -> list[str]:
    """Returns the driver's lines about one exception."""
    place = f"(GPC {gpc}, TPC {tpc}, SM 0)"
    return [
        f"13, {NOBODY}, Graphics SM Warp Exception on {place}: Out Of Range Address",
        f"13, {NOBODY}, Graphics SM Global Exception on {place}: Multiple Warp Errors",
        f"13, {NOBODY}, Graphics Exception: ESR 0x57c730=0xc04000b 0x57c734=0x24 0x57c728=0x1f81fb60",
        "43, pid=2924364, name=pt_main_thread, Ch 00000008",
    ]


def mmu(gpc: int, client: int) -> str:
    where = f"ENGINE GRAPHICS GPC{gpc} GPCCLIENT_T1_{client} faulted @ 0x6f6f_320c2000."
    return f"31, pid=1942, name=llama-bench, channel 0x00000002, intr 00000000. MMU Fault: {where}"


class Node:
    """A node with eight GPUs, and pods that come and go."""

    def __init__(self, row: EngineRow | None = None) -> None:
        self.core = AgentCore(
            AgentSettings(), boot_id="0f1e2d3c", kernel_rules=KERNEL_RULES, gpu_health=HEALTH, engine=row
        )
        self.core.inventory(
            [Device(uuid=f"GPU-{n}", pci=f"{pci(n)}.0", index=n) for n in range(8)], "595.45.04"
        )
        self.core.caught_up()
        self.now = NOW
        self.sequence = 0
        self.pods = 0
        self.suspected: list[Finding] = []

    def holds(self, **ids: list[str]) -> None:
        """Replaces all pods by new ones, with the device ids of each namespace's pod."""
        held = []
        for namespace, devices in ids.items():
            self.pods += 1
            uid = f"uid-{self.pods}"
            given = Given(
                namespace,
                "main",
                {"nvidia.com/gpu": devices} if devices else {"tencent.com/vcuda-core": ["x"]},
            )
            held.append(HeldDevices(DevicePod(uid=uid, namespace=namespace, name="main"), given))
        self.core.pods_listed(held, frozenset(one.pod.uid for one in held))

    def prints(self, *texts: str, gpu: int = 0, instance: str = "") -> None:
        for text in texts:
            self.sequence += 1
            line = f"NVRM: Xid (PCI:{pci(gpu)}{instance}): {text}"
            self.core.kernel_line(KernelLine(sequence=self.sequence, at=self.now, text=line))

    def passes(self, seconds: float = HOUR_S) -> None:
        self.now += timedelta(seconds=seconds)
        self.core.tick(self.now)
        known = {one.id for one in self.suspected}
        self.suspected += [one for one in self.core.findings if one.code == CODE and one.id not in known]

    def fails(self, namespace: str, *texts: str, gpu: int = 0) -> None:
        self.holds(**{namespace: [f"GPU-{gpu}"]})
        self.prints(*texts, gpu=gpu)
        self.passes()


@pytest.mark.parametrize(
    ("code", "text", "place"),
    [
        (13, "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address", "GPC 2, TPC 1"),
        (13, "Graphics SM Warp Exception on (GPC 0, TPC 3): Misaligned Register", "GPC 0, TPC 3"),
        (13, "Graphics SM Global Exception on (GPC 7, TPC 7, SM 0): Multiple Warp Errors", "GPC 7, TPC 7"),
        (13, "Graphics Exception: ESR 0x57c730=0xc04000b 0x57c734=0x24", ""),
        (13, "name, Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out", ""),
        (13, "0005 00000000 0000c797", ""),
        (31, mmu(6, 13), "GPC 6, client T1_13"),
        (
            31,
            "Ch 00000007. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000.",
            "",
        ),
        (
            31,
            "Ch 00000007, intr 00000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE1 faulted @ 0x7f5a_e7504000.",
            "",
        ),
        (43, "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address", ""),
    ],
)
def test_a_line_names_the_part_of_the_gpu_or_none(code: int, text: str, place: str) -> None:
    assert place_of(code, text) == place


@pytest.mark.parametrize("texts", [of_all(2, 1), [mmu(6, 13)]], ids=["xid 13", "xid 31"])
def test_three_tenants_whose_exceptions_are_in_one_place_make_the_gpu_suspect(texts: list[str]) -> None:
    node = Node()

    node.fails("vision", *texts)
    node.fails("speech", *texts)
    assert node.suspected == []
    node.fails("search", *texts)

    (finding,) = node.suspected
    assert (finding.severity, finding.subject.device) == (Severity.SUSPECT, "GPU-0")
    assert "3 namespaces within 24 h" in finding.evidence
    assert "search, speech, vision" in finding.evidence
    assert len({one.id for one in node.core.findings}) == len(node.core.findings)


def test_the_finding_is_told_again_only_for_one_more_tenant() -> None:
    node = Node()
    for tenant in ("vision", "speech", "search", "search", "vision"):
        node.fails(tenant, *of_all(2, 1))
    assert len(node.suspected) == 1

    node.fails("maps", *of_all(2, 1))

    assert len(node.suspected) == 2


def test_one_program_that_fails_five_hundred_times_stays_the_programs() -> None:
    node = Node()
    for _ in range(500):
        node.fails("vision", *of_all(2, 1))

    assert node.suspected == []


def test_tenants_who_failed_longer_ago_than_the_window_do_not_count() -> None:
    node = Node()
    for tenant in ("vision", "speech", "search"):
        node.fails(tenant, *of_all(2, 1))
        node.passes(12 * HOUR_S)

    assert node.suspected == []


@pytest.mark.parametrize(
    "texts",
    [
        [*of_all(2, 1), *of_all(2, 2)],
        of_all(0, 0),
        of_all(5, 0),
        [mmu(0, 0)],
        [mmu(2, 1)],
    ],
    ids=["several places at once", "first place", "first place of a GPC", "first client", "its neighbour"],
)
def test_places_that_a_faulty_program_explains_do_not_count(texts: list[str]) -> None:
    node = Node()
    for tenant in ("vision", "speech", "search", "maps", "ads"):
        node.fails(tenant, *texts)

    assert node.suspected == []


def test_tenants_who_fail_in_different_places_keep_the_gpu_from_suspicion() -> None:
    node = Node()
    for number, tenant in enumerate(("vision", "speech", "search", "maps", "ads")):
        node.fails(tenant, *of_all(2, 1 if number < 3 else number))
        node.fails(tenant, *of_all(3, 1 + number))

    assert node.suspected == []


def test_a_place_in_which_another_gpu_has_exceptions_too_does_not_count() -> None:
    node = Node()
    node.fails("vision", *of_all(2, 1), gpu=4)
    for tenant in ("vision", "speech", "search", "maps"):
        node.fails(tenant, *of_all(2, 1))

    assert node.suspected == []


def test_where_pods_share_a_gpu_nobody_knows_whose_program_failed() -> None:
    node = Node()
    for tenant in ("vision", "speech", "search", "maps"):
        node.holds(**{tenant: ["GPU-0::1"], "other": ["GPU-0::2"]})
        node.prints(*of_all(2, 1))
        node.passes()
        node.holds(**{tenant: ["GPU-0"], "other": []})  # only the plugin knows which GPU the pod has
        node.prints(*of_all(2, 1))
        node.passes()

    assert node.suspected == []


def test_lines_from_before_the_agent_knew_the_pods_do_not_count() -> None:
    node = Node()
    for tenant in ("vision", "speech", "search"):
        node.core.misplaced()
        node.fails(tenant, *of_all(2, 1))

    assert node.suspected == []


def test_a_gpu_instance_counts_by_itself() -> None:
    node = Node()
    for tenant in ("vision", "speech", "search"):
        node.holds(**{tenant: ["MIG-GPU-0/7/0"], "other": ["MIG-GPU-0/8/0"]})
        node.prints(*of_all(0, 1), instance=" GPU-I:07")
        node.passes()

    assert [one.subject.gpu_instance for one in node.suspected] == [7]


def test_a_row_of_a_user_makes_it_a_note_and_never_more_than_a_suspicion() -> None:
    (packaged,) = ENGINE.packaged()
    row = msgspec.structs.replace(packaged, severity=Severity.INFO, tenants=2)
    user = UserRows({"engine": [row]})
    node = Node(engine_row(user))
    node.fails("vision", *of_all(2, 1))
    node.fails("speech", *of_all(2, 1))

    assert [one.severity for one in node.suspected] == [Severity.INFO]
    with pytest.raises(ValueError, match="expected info or suspect"):
        msgspec.structs.replace(packaged, severity=Severity.PENDING)


def test_weeks_of_faulty_programs_on_a_shared_node_make_no_gpu_suspect() -> None:
    """In four weeks, each hour a program of one of twelve tenants fails on one of eight GPUs, some again and
    again. These are more than 2,000 lines."""
    chance, node = random.Random(1), Node()
    small_grid = {n: (chance.randrange(8), 0) for n in range(12)}
    for _ in range(4 * 7 * 24):
        number, gpu = chance.randrange(12), chance.randrange(8)
        for _ in range(chance.choice((1, 1, 1, 5))):
            kind = chance.choice(("large", "small", "fault", "library"))
            texts = {
                "large": [
                    line for _ in range(3) for line in of_all(chance.randrange(8), chance.randrange(9))
                ],
                "small": of_all(*small_grid[number]),
                "fault": [mmu(chance.randrange(8), chance.randrange(18))],
                "library": of_all(4, 0),
            }[kind]
            node.holds(**{f"team-{number}": [f"GPU-{gpu}"]})
            node.prints(*texts, gpu=gpu)
            node.passes(120)
        node.passes()

    assert node.sequence > 2_000
    assert node.suspected == []
