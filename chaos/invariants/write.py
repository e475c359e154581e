"""One write to the simulated API, as the checks see it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import Audit
from chaos.simulated.reading import GANGS, is_closed, is_suspended, made_by_set, not_ours
from detectors.wire.resource import Resource
from recover.k8s.kinds import NODES, RECOVERIES

__all__ = ["Write"]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One applied change. `old` is None for a creation, `new` is None for a removal."""

    audit: Audit
    old: Object | None
    new: Object | None
    by_controller: bool
    of_repair: bool
    """Whether the object is the Job of a repair's step, or its pod."""

    @property
    def resource(self) -> Resource:
        return self.audit.resource

    @property
    def at(self) -> datetime:
        return self.audit.at

    @property
    def body(self) -> Object:
        """The object after the write; for a removal, the last version of the object."""
        body = self.new or self.old
        assert body is not None
        return body

    @property
    def what(self) -> str:
        audit = self.audit
        return f"{audit.at:%H:%M:%S.%f} {audit.user} {audit.verb} {audit.resource.plural}/{audit.name}"

    def foreign_changes(self) -> Iterator[str]:
        """Yields changes of labels and annotations that are not Rekindle's."""
        if self.old is None or self.new is None:
            return
        for field in ("labels", "annotations"):
            before, after = not_ours(self.old, field), not_ours(self.new, field)
            if before != after:
                yield f"the controller changed {field} of others: {before} -> {after}"

    # --- the controller's actions in this write; all are False for a write of another writer ----------------

    @property
    def takes_node_out(self) -> bool:
        """Whether the write quarantines a node, so that the node takes no new pods."""
        if not self.by_controller or self.resource != NODES or self.old is None or self.new is None:
            return False
        return is_closed(self.new) and not is_closed(self.old)

    @property
    def begins_recovery(self) -> bool:
        return self.by_controller and self.resource == RECOVERIES and self.old is None

    @property
    def of_job(self) -> bool:
        """Whether the write changes a job that trains. The Jobs that a JobSet creates count, too."""
        return self.by_controller and self.resource in GANGS and not self.of_repair

    @property
    def stops_gang(self) -> bool:
        return self._edits_job and not is_suspended(self._before) and is_suspended(self.body)

    @property
    def starts_gang(self) -> bool:
        return self._edits_job and is_suspended(self._before) and not is_suspended(self.body)

    @property
    def _edits_job(self) -> bool:
        """Whether the write changes the metadata or the spec of a whole job that exists and stays."""
        if not self.of_job or self.old is None or self.new is None or self.audit.subresource == "status":
            return False
        return "deletionTimestamp" not in self.new["metadata"] and not made_by_set(self.new)

    @property
    def _before(self) -> Object:
        assert self.old is not None
        return self.old
