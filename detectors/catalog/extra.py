"""The catalogues of one run: the packaged rows, and the user's where the settings name a file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from detectors.catalog.load import CatalogError, extra_tables, rows_of
from detectors.catalog.log_errors import LogErrorRow, packaged_log_errors
from detectors.catalog.xid import XidCatalog, XidRow
from detectors.service.settings import Catalogue
from detectors.text.strict import shown

__all__ = ["Catalogues"]


class Catalogues(msgspec.Struct, frozen=True):
    xids: XidCatalog
    log_errors: tuple[LogErrorRow, ...]
    problems: tuple[str, ...] = ()
    """What is wrong with the user's file; the rest of it is in use."""

    @property
    def told(self) -> str:
        """For a message: what of the user's file is not used; empty where all of it is."""
        if not self.problems:
            return ""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"not used: {self.problems[0]}{more}"

    @staticmethod
    def load(settings: Catalogue) -> Catalogues:
        """Never fails for the user's file. Raises for a bad row of our own."""
        if not settings.extra:
            return Catalogues(xids=XidCatalog.packaged(), log_errors=packaged_log_errors())
        try:
            tables = extra_tables(Path(settings.extra))
        except CatalogError as error:
            return Catalogues(
                xids=XidCatalog.packaged(), log_errors=packaged_log_errors(), problems=(str(error),)
            )
        xids, bad_xids = rows_of(tables, "xid", XidRow, file=settings.extra)
        errors, bad_errors = rows_of(tables, "log_error", LogErrorRow, file=settings.extra)
        unknown = [
            f"{settings.extra}: table {shown(name)}: expected [[xid]] or [[log_error]]"
            for name in tables
            if name not in ("xid", "log_error")
        ]
        return Catalogues(
            xids=XidCatalog.packaged(xids),
            log_errors=packaged_log_errors(errors),
            problems=(*(str(error) for error in (*bad_xids, *bad_errors)), *unknown),
        )
