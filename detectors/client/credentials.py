"""Holds the credentials for an API server, and the rules by which we trust one. kubeapi.py reads them before
each request."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

import msgspec

__all__ = ["Credentials", "TokenSource"]

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class TokenSource(Protocol):
    """Bearer tokens that expire and are renewed."""

    async def token(self) -> str:
        """Returns the present token; called before each request. Raises nothing: the API server judges
        tokens."""
        ...

    def refused(self) -> None:
        """Records that the API server answered 401."""
        ...


class Credentials(msgspec.Struct, frozen=True):
    """The way to reach the API server. The token file is read again for each request: tokens rotate. A client
    certificate is read once."""

    server: str
    token_file: str = ""
    token: str = ""
    tokens: TokenSource | None = None
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    server_name: str = ""
    """Name in the API server's certificate, if it differs from the name in `server`."""
    proxy: str = ""
    """The URL of a proxy on the way to the API server."""
    namespace: str = ""
    """The namespace in the kubeconfig's context; empty if there is none."""
    verify: bool = True
    """Whether certificates are checked. False trusts any server, which people may choose in their own
    kubeconfig."""

    @staticmethod
    def in_cluster(host: str, port: str) -> Credentials:
        """Returns the credentials that a pod has: `KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT` and
        the mounted token. An IPv6 address comes without the brackets that a URL needs."""
        return Credentials(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            token_file=str(_IN_CLUSTER / "token"),
            ca_file=str(_IN_CLUSTER / "ca.crt"),
        )

    def headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Returns a context that trusts only the cluster's CA if there is one, and that presents the client
        certificate, if any. Without both, returns `verify`: True checks certificates by the system's CAs."""
        if not (self.ca_file or self.client_cert_file):
            return self.verify
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert_file:
            context.load_cert_chain(self.client_cert_file, self.client_key_file or None)
        return context
