"""Defines the ways in which a write or a read can fail, for every loop of the controller."""

from __future__ import annotations

__all__ = ["NotLeaderError", "Permanent", "Transient"]


class Transient(Exception):
    """An action that may succeed later: the loop reconciles again in `retry_in_s` seconds, from the state at
    that time. With `refused`, the API server answered each try with a failure, for example because a webhook
    is down."""

    def __init__(self, message: str, *, retry_in_s: float, refused: bool = False) -> None:
        super().__init__(message)
        self.retry_in_s = retry_in_s
        self.refused = refused


class NotLeaderError(Transient):
    """The write was not sent: it might have arrived after another controller had become the leader."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_in_s=1.0)


class Permanent(Exception):
    """An action that will not succeed by itself: the loop records why and continues with the next object.
    With `may_pass`, the API server did not know our permissions, and may not have read them yet. With
    `denied`, a policy, a quota or a missing permission forbids the action; otherwise our request is wrong."""

    def __init__(self, message: str, *, may_pass: bool = False, denied: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        self.denied = denied
