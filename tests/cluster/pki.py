"""The certificate authority of a cluster and its certificates, which identify the nodes, kube-proxy and the
API server.

The authority is `tls.crt` with `tls.key` in the control plane's folder, where plane.py's helpers expect it.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.record import run

__all__ = ["client_kubeconfig", "issue", "make_authority"]

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def make_authority(folder: Path) -> None:
    usage = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign")
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    run("openssl", "req", "-x509", *_NEW_KEY, "-subj", "/CN=rekindle-cluster", *usage, *files)


def issue(
    folder: Path, name: str, user: str, *, group: str = "", addresses: tuple[str, ...] = ()
) -> tuple[Path, Path]:
    """Issues a certificate and its key, `NAME.crt` and `NAME.key`, for both sides of a connection. A server's
    certificate names its addresses."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
    more = ["-addext", "basicConstraints=critical,CA:FALSE"]
    more += ["-addext", "extendedKeyUsage=clientAuth,serverAuth"]
    if addresses:
        more += ["-addext", f"subjectAltName={','.join(f'IP:{address}' for address in addresses)}"]
    signer = ("-CA", str(folder / "tls.crt"), "-CAkey", str(folder / "tls.key"))
    files = ("-keyout", str(key), "-out", str(certificate))
    run("openssl", "req", "-x509", *_NEW_KEY, "-subj", subject, *more, *signer, *files)
    return certificate, key


def client_kubeconfig(folder: Path, server: str, name: str, user: str, group: str = "") -> Path:
    """Writes a kubeconfig of that user, who authenticates with a certificate."""
    certificate, key = issue(folder, name, user, group=group)
    authority = str(folder / "tls.crt")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / f"{name}.kubeconfig"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    file.chmod(0o600)
    return file
