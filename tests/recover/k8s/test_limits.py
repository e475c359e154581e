"""Checks that objects that Rekindle writes stay within the limits of Kubernetes itself."""

from __future__ import annotations

import msgspec

from detectors.wire.fitting import limit
from recover.api import ActionRecord, Condition, IncidentStatus, RecoveryStatus
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import Repair
from recover.k8s.limits import ANNOTATIONS_BYTES_MAX, LABEL_VALUE_CHARS_MAX, NOTE_BYTES_MAX, REASON_CHARS_MAX
from recover.model import Mark
from recover.model.actions import Emit
from recover.recovery.avoid import HOSTS_MAX, SUSPECTS_MAX


def test_every_reason_fits_into_an_event_and_into_the_fields_for_it() -> None:
    longest = max(map(len, Reason))

    assert max(map(len, EventReason)) <= REASON_CHARS_MAX
    assert all(longest <= limit(one, "reason") for one in (ActionRecord, Condition, RecoveryStatus, Repair))


def test_an_event_has_room_for_the_summary_of_an_incident_and_its_name() -> None:
    assert limit(Emit, "message") == NOTE_BYTES_MAX
    assert limit(IncidentStatus, "summary") + limit(IncidentStatus, "superseded_by") < NOTE_BYTES_MAX


def test_the_mark_on_a_job_leaves_people_two_thirds_of_its_annotations() -> None:
    host = "h" * LABEL_VALUE_CHARS_MAX
    mark = Mark(
        recovery="r" * 253,
        attempt=9,
        did="resumed",
        avoided=(host,) * HOSTS_MAX,
        suspected=(host,) * SUSPECTS_MAX,
    )

    assert len(msgspec.json.encode(mark)) < ANNOTATIONS_BYTES_MAX / 3
