"""Chooses the credentials with which the agent of a bench connects to the API server. The agent can only use
a token, and the kubeconfig of the person who runs the bench may have none."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chaos.bench.ours import AGENT, BINDINGS, NAMESPACE, SERVICE_ACCOUNTS
from chaos.scenarios.stage import StageError
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi

__all__ = ["agent_access"]

TOKEN_S = 86_400


class _Token(msgspec.Struct):
    token: str


class _Answer(msgspec.Struct):
    status: _Token


async def agent_access(api: KubeApi, credentials: Credentials, folder: Path) -> list[str]:
    """Returns the agent's arguments. If the person's own access has no token, the agent gets the token of a
    ServiceAccount that the bench creates and later removes. Raises StageError, ApiError and ReplyLost."""
    if not credentials.verify:
        raise StageError(
            "--insecure-skip-tls-verify: the agent believes no API server without its certificate; expected "
            "a kubeconfig with certificate-authority, or --ca-file"
        )
    file = folder / "token"
    file.write_text(await _token(api, credentials), encoding="utf-8")
    access = ["--server", credentials.server, "--token-file", str(file)]
    return access + (["--ca-file", credentials.ca_file] if credentials.ca_file else [])


async def _token(api: KubeApi, credentials: Credentials) -> str:
    if credentials.tokens is not None:
        return await credentials.tokens.token()
    given = credentials.headers().get("Authorization", "").removeprefix("Bearer ")
    return given or await _token_of_an_account(api)


async def _token_of_an_account(api: KubeApi) -> str:
    """Creates a ServiceAccount and returns a token of it. Source: Kubernetes' documentation, TokenRequest v1
    (authentication.k8s.io)."""
    account = {"metadata": {"name": AGENT}}
    await api.request("POST", SERVICE_ACCOUNTS.path(namespace=NAMESPACE), body=account)
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": AGENT},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}],
    }
    await api.request("POST", BINDINGS.path(), body=binding)
    body = {"spec": {"expirationSeconds": TOKEN_S}}
    raw = await api.request("POST", SERVICE_ACCOUNTS.path(AGENT, NAMESPACE, "token"), body=body)
    return msgspec.json.decode(raw, type=_Answer).status.token
