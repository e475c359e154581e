"""Asks a system outside the cluster to reboot a node: one POST to the webhook of the settings. I/O only.

The request was decided before and is recorded in the Incident; the acceptance is recorded in the Incident
afterwards. A controller may end in between, so the same id can arrive twice: the receiver must act on an id
once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from recover.kube.errors import Transient
from recover.policy.settings import Webhook

__all__ = ["Outside"]

_AGAIN_S = 10.0
_SHOWN_CHARS_MAX = 200


class Outside:
    """The client of the webhook. `may_send` raises NotLeaderError if another controller may lead: this
    request does not go through the cluster, which checks the lease for all others."""

    def __init__(self, webhook: Webhook, may_send: Callable[[], None] | None = None) -> None:
        self._webhook = webhook
        self._may_send = may_send

    async def ask(self, request_id: str, body: dict[str, Any]) -> None:
        """Sends the request. Raises Transient if it was not accepted: the request is then sent again until
        the step's deadline."""
        if self._may_send is not None:
            self._may_send()
        try:
            headers = {"Idempotency-Key": request_id, **self._authorization()}
            timeout = aiohttp.ClientTimeout(total=self._webhook.timeout_s)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._webhook.url, json=body, headers=headers, allow_redirects=False) as answer,
            ):
                if 200 <= answer.status < 300:
                    return
                said = (await answer.text(errors="replace"))[:_SHOWN_CHARS_MAX]
                raise Transient(f"{self._webhook.url} answered {answer.status}: {said}", retry_in_s=_AGAIN_S)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:  # also a token of two lines
            what = str(error) or type(error).__name__
            raise Transient(f"{self._webhook.url}: {what}", retry_in_s=_AGAIN_S) from error

    def _authorization(self) -> dict[str, str]:
        if not self._webhook.token_file:
            return {}
        token = Path(self._webhook.token_file).read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"}
