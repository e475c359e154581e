"""Renews the Leases of the nodes that KWOK plays, as their kubelets would, until the process is killed:

    python node_leases.py URL TOKEN CA_FILE SILENCE_S

Each node with the label `type=kwok` has a Lease that is renewed several times within SILENCE_S. If the API
server does not answer, the process tries again.

KWOK 0.7 and 0.8 can renew Leases, too, but a node that is deleted, or loses its label, while its Lease is
being renewed stays in KWOK's queue. The next node with that name is then in the queue twice, and may block
the renewal of all other nodes (`pkg/utils/heap` loses the index of the first). In tests that repeatedly
create nodes with the same names, nodes fell silent without a cause.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from datetime import UTC, datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

__all__ = ["keep"]

_NODES = "/api/v1/nodes?labelSelector=type%3Dkwok"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}?fieldManager=kubelet&force=true"
_TRIES_IN_TIME = 4
_FAILURES = (OSError, http.client.HTTPException, msgspec.MsgspecError)


class _Refused(OSError):
    """The API server answered with an error."""


def keep(url: str, token: str, ca_file: str, silence_s: float) -> NoReturn:
    every_s = silence_s / _TRIES_IN_TIME
    trust = ssl.create_default_context(cafile=ca_file)
    server = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=every_s, context=trust)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/apply-patch+yaml"}

    def ask(method: str, path: str, body: Any = None) -> bytes:
        server.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        answer = server.getresponse()
        raw = answer.read()
        if answer.status >= 300:
            raise _Refused(f"{method} {path}: {answer.status} {raw[:200]!r}")
        return raw

    while True:
        began_s = time.monotonic()
        try:
            for node in msgspec.json.decode(ask("GET", _NODES))["items"]:
                name = node["metadata"]["name"]
                ask("PATCH", _LEASES.format(name), _lease(name, silence_s))
        except _FAILURES as error:
            print(f"ERROR {datetime.now(UTC):%X} {error!r}", flush=True)
            server.close()  # the next request opens a new connection
        time.sleep(max(0.1, began_s + every_s - time.monotonic()))


def _lease(node: str, silence_s: float) -> dict[str, Any]:
    spec = {
        "holderIdentity": node,
        "leaseDurationSeconds": round(silence_s),
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    meta = {"name": node, "namespace": "kube-node-lease"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


if __name__ == "__main__":
    keep(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
