"""Implements the check kernel-log: since the repair, the kernel has reported no fault that ends work on a
GPU.

The check runs last, so that it sees faults that the other checks have caused. It reads the log of this boot
and folds the lines as the agent does. Lines before the last reset do not count: the line of the reset
(`reset_line`) shows the time of the reset, its Incident, and its devices. A line of another repair or of an
older repair proves nothing about this repair; if this repair has an Incident, a line without one proves
nothing either. Without a line of this repair's reset, the whole boot counts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from detectors.folds.chain import Chain
from detectors.rules import KernelRules
from detectors.rules.catalogues import Catalogues
from detectors.rules.facts import HostFacts
from detectors.service.settings import Catalogue
from detectors.service.settings import Chain as ChainSettings
from detectors.sources.inventory import addresses, from_proc
from detectors.sources.kmsg import KERN, kernel_line_of, records_now, unescape
from detectors.validation.node_check import CannotRunError, Node, Result, failed, passed
from detectors.wire.contract import Finding, Severity
from detectors.wire.open_findings import is_open

__all__ = ["reset_line", "run"]

_RESET_HEAD = "rekindle: devices were reset"
_RESET = re.compile(rf"{_RESET_HEAD}: (?P<devices>.*) \(incident (?P<incident>\S+)\)")
_ALL, _BY_HAND = "all", "none"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 4


def reset_line(devices: str, incident: str) -> str:
    """Returns the line that the program which resets devices writes to /dev/kmsg afterwards."""
    return f"{_RESET_HEAD}: {devices or _ALL} (incident {incident or _BY_HAND})"


def _is_reset_of(node: Node, text: str) -> bool:
    """Whether the line is of a reset for this repair's Incident, and of all its devices."""
    fields = _RESET.fullmatch(text)
    if fields is None or fields["incident"] != (node.incident or _BY_HAND):
        return False
    named = {name.strip() for name in fields["devices"].split(",")}
    return named in ({_ALL}, {""}) or (bool(node.devices) and named.issuperset(node.devices))


def run(node: Node) -> Result:
    chain = _new_chain()
    root = Path(node.host_root)
    found = from_proc(root)
    host = HostFacts(devices=found.devices, driver_version=found.driver_version, addresses=addresses(root))
    path = root / "dev/kmsg"
    catalogues = Catalogues.load(Catalogue(extra=node.catalogue))
    rules, unused = KernelRules(catalogues.user), f"; {catalogues.told}" if catalogues.problems else ""
    since, first, foreign = "since the boot", None, ""
    try:
        for record in records_now(path):
            first = record.sequence if first is None else first
            # Only a program with privileges on the node can write such a line: no text of the kernel itself
            # reports a reset.
            text = "" if record.facility == KERN else unescape(record.text)
            if _is_reset_of(node, text):
                chain, since, foreign = _new_chain(), "since the reset", ""
            elif text.startswith(_RESET_HEAD):
                foreign = f"; not the reset of this repair: {text}"
            elif (line := kernel_line_of(record, _since_epoch)) is not None:
                draft = rules.read(line, host)
                if draft is not None:
                    chain.add(draft, line)
    except OSError as error:
        raise CannotRunError(f"{path}: {error.strerror or error}") from error
    open_ones = (f for f in chain.findings if is_open(f) and f.severity is Severity.FATAL)
    fatal = list({(f.code, f.subject): f for f in open_ones}.values())
    if fatal:
        more = f" and {len(fatal) - _SHOWN_MAX} more" if len(fatal) > _SHOWN_MAX else ""
        return failed(f"{since}: {'; '.join(map(_told, fatal[:_SHOWN_MAX]))}{more}{foreign}{unused}")
    lost = f"; the first {first} records are no longer there" if first and since == "since the boot" else ""
    return passed(f"no fatal fault {since}{lost}{unused}")


def _since_epoch(usec: int) -> datetime:
    return _EPOCH + timedelta(microseconds=usec)


def _new_chain() -> Chain:
    return Chain(ChainSettings(), "")


def _told(finding: Finding) -> str:
    return (
        f"{finding.code} on {finding.subject.device or finding.subject.pci or 'the node'}: {finding.evidence}"
    )
