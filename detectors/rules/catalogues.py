"""Adds the rows of a user's file to the packaged rows of all tables that the file may extend."""

from __future__ import annotations

from typing import Any

import msgspec

from detectors.catalog.load import CatalogError
from detectors.catalog.log_errors import LOG_ERRORS, LogErrorRow, packaged_log_errors
from detectors.catalog.tables import Table, UserRows, user_rows
from detectors.catalog.xid import XIDS
from detectors.rules import tables
from detectors.rules.engine_faults import ENGINE
from detectors.rules.fabric_rows import FABRIC
from detectors.rules.gpu_health import GPU_HEALTH
from detectors.rules.host_state_rows import HOST_STATES
from detectors.rules.volume_rows import VOLUMES
from detectors.service.settings import Catalogue

__all__ = ["Catalogues", "extendable_tables"]


def extendable_tables() -> tuple[Table[Any], ...]:
    """Returns the tables to which a user's file may add rows."""
    return (*tables(), ENGINE, GPU_HEALTH, FABRIC, VOLUMES, HOST_STATES, LOG_ERRORS)


class Catalogues(msgspec.Struct, frozen=True):
    user: UserRows
    """Rows for the rules of the kernel log, of NVML, of ports, volumes and the node itself."""
    log_errors: tuple[LogErrorRow, ...]
    problems: tuple[str, ...] = ()
    """The errors in the user's file; the rest of the file is in use."""

    @property
    def told(self) -> str:
        """Text for a message about the part of the user's file that is not used; empty if all of it is
        used."""
        if not self.problems:
            return ""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"not used: {self.problems[0]}{more}"

    def meanings(self) -> dict[str, str]:
        """Returns the meaning of each code whose row has one; a row of the user replaces the packaged row."""
        found = {}
        for table in extendable_tables():
            for row in (*table.packaged(), *self.user.of(table)):
                code = f"xid-{row.code}" if table == XIDS else row.code
                found[code] = getattr(row, "meaning", "")
        return {code: meaning for code, meaning in found.items() if meaning}

    @staticmethod
    def load(settings: Catalogue) -> Catalogues:
        """Loads the catalogues. Errors in the user's file are listed in `problems`. Raises
        `detectors.text.strict.BadValueError` for a bad row of the package."""
        user = UserRows()
        problems: tuple[str, ...] = ()
        if settings.extra:
            try:
                user, problems = user_rows(settings.extra, extendable_tables())
            except CatalogError as error:
                problems = (str(error),)
        return Catalogues(user, packaged_log_errors(user.of(LOG_ERRORS)), problems)
