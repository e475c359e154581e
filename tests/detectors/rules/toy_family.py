"""A rule with its own `match` and its own type of rows, as a new driver or family brings it. The rows are in
toy_family.toml."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from detectors.catalog.tables import Table
from detectors.rules.base import ADDRESS, Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Fault, Origin, Remedy, Severity

_LINE = re.compile(rf"toy-nvswitch: Toy \(PCI:{ADDRESS}\): (?P<code>[0-9]{{1,5}}), .*", re.DOTALL)


class ToyRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: int
    meaning: str
    fault: Fault
    severity: Severity
    remedy: Remedy
    source: str


TOYS = Table("toy", ToyRow, str(Path(__file__).with_suffix(".toml")))


def match(line: KernelLine, host: HostFacts, catalog: Mapping[int, ToyRow]) -> Draft | None:
    fields = _LINE.fullmatch(line.text)
    row = catalog.get(int(fields["code"])) if fields is not None else None
    subject = host.subject(fields["pci"]) if fields is not None else None
    if row is None or subject is None:
        return None
    return Draft(
        code=f"toy-{row.code}",
        fault=row.fault,
        origin=Origin.KERNEL,
        severity=row.severity,
        subject=subject,
        remedy=row.remedy,
    )


RULE = Rule(
    "toy",
    family=Family.NVSWITCH_SXID,
    heads=("toy-nvswitch: Toy (",),
    match=match,
    catalog=lambda user: {row.code: row for row in (*TOYS.packaged(), *user.of(TOYS))},
    tables=(TOYS,),
)
