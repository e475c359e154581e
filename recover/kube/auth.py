"""Loads the credentials for the API server: those of the pod, or a kubeconfig as kubectl reads it.

kubernetes-asyncio reads the kubeconfig, since it supports exec plugins, client certificates and inline data.
Its result becomes the few fields that our own client needs. kubernetes-asyncio also renews tokens that
expire.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import msgspec
import structlog

from detectors.client.credentials import Credentials
from detectors.service.settings import SettingsError

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

__all__ = ["load_credentials"]

RENEW_PAUSE_S = 10.0
"""Shortest pause between two runs of an exec plugin. kubernetes-asyncio treats a token as expired five
minutes early, and therefore a token with a shorter life as expired at once."""
RENEW_S_MAX = 10.0
_SHAPELESS = (AssertionError, AttributeError, TypeError, KeyError)
"""Errors that kubernetes-asyncio raises for a kubeconfig, or an answer of a plugin, of an unexpected
shape."""

log = structlog.get_logger(__name__)


async def load_credentials(
    *,
    kubeconfig: str = "",
    context: str = "",
    server: str = "",
    token_file: str = "",
    ca_file: str = "",
    client_certificate: str = "",
    client_key: str = "",
    insecure_skip_tls_verify: bool = False,
) -> Credentials:
    """Loads the credentials. The first of these applies: `server`; `kubeconfig` or `context`; the pod's
    account; `$KUBECONFIG`; ~/.kube/config.

    Raises SettingsError, which names the file or argument, if nothing usable is found.
    """
    if server:
        return _of_server(
            Credentials(
                server=server.rstrip("/"),
                token_file=token_file,
                ca_file=ca_file,
                client_cert_file=client_certificate,
                client_key_file=client_key,
                verify=not insecure_skip_tls_verify,
            )
        )
    alone = {
        "--token-file is the token for": token_file,
        "--ca-file is the certificate authority of": ca_file,
        "--client-certificate is a certificate for": client_certificate,
        "--client-key is a key for": client_key,
    }
    for words, given in alone.items():
        if given:
            raise SettingsError(f"{words} --server, and none is given")
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if host and not (kubeconfig or context):
        found = _of_pod(Credentials.in_cluster(host, os.environ.get("KUBERNETES_SERVICE_PORT", "443")))
    else:
        found = await _from_kubeconfig(_path(kubeconfig), context)
    return msgspec.structs.replace(found, verify=found.verify and not insecure_skip_tls_verify)


def _path(kubeconfig: str) -> str:
    """Returns the path of the kubeconfig, or several paths with colons between them. Raises SettingsError if
    no file exists."""
    path = kubeconfig or os.environ.get("KUBECONFIG", "") or os.path.expanduser("~/.kube/config")
    if not any(map(os.path.isfile, path.split(os.pathsep))):
        raise SettingsError(
            f"kubeconfig {path}: no such file; expected a kubeconfig (--kubeconfig or KUBECONFIG), or to "
            "run inside a cluster"
        )
    return path


def _of_server(credentials: Credentials) -> Credentials:
    if not credentials.server.startswith(("https://", "http://")):
        raise SettingsError(
            f"--server {credentials.server!r}: expected a URL, for example https://10.0.0.1:6443"
        )
    if credentials.client_key_file and not credentials.client_cert_file:
        raise SettingsError("--client-key is the key of --client-certificate, and none is given")
    try:
        credentials.headers()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SettingsError(f"--token-file {credentials.token_file}: cannot be read: {why}") from error
    for option, file, alone in (
        ("--ca-file", credentials.ca_file, {"client_cert_file": "", "client_key_file": ""}),
        ("--client-certificate", credentials.client_cert_file, {"ca_file": ""}),
    ):
        try:
            msgspec.structs.replace(credentials, **alone).ssl_context()
        except OSError as error:  # an SSLError is one, too
            raise SettingsError(
                f"{option} {file}: expected a file of certificates in PEM form: {error}"
            ) from error
    return credentials


def _of_pod(credentials: Credentials) -> Credentials:
    try:
        credentials.headers()
        credentials.ssl_context()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"this pod's account cannot be used: {error}; expected automountServiceAccountToken, or "
            "--kubeconfig"
        ) from error
    return credentials


async def _from_kubeconfig(path: str, context: str) -> Credentials:
    import yaml  # noqa: PLC0415
    from kubernetes_asyncio import client, config  # noqa: PLC0415  (72 MiB: only those who need it pay)

    configuration = client.Configuration()
    try:
        context = _context(path, context)
        loader = await config.load_kube_config(
            config_file=path, context=context or None, client_configuration=configuration
        )
    except yaml.YAMLError as error:
        raise SettingsError(f"kubeconfig {path}: not valid YAML: {' '.join(str(error).split())}") from error
    except (config.ConfigException, OSError, ValueError) as error:
        raise SettingsError(f"kubeconfig {path}: {error}") from error
    except _SHAPELESS as error:
        raise SettingsError(f"kubeconfig {path}: not the shape of a kubeconfig") from error
    if not configuration.host.startswith(("https://", "http://")):
        raise SettingsError(f"kubeconfig {path}: server {configuration.host!r}: expected a URL")
    credentials = Credentials(
        server=configuration.host.rstrip("/"),
        tokens=_Renewed(loader, configuration, path) if _token_of(configuration) else None,
        ca_file=configuration.ssl_ca_cert or "",
        client_cert_file=configuration.cert_file or "",
        client_key_file=configuration.key_file or "",
        server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        namespace=_namespace(path, context),
        verify=configuration.verify_ssl,
    )
    try:
        credentials.ssl_context()
    except OSError as error:
        raise SettingsError(f"kubeconfig {path}: its certificates cannot be used: {error}") from error
    return credentials


def _context(path: str, wanted: str) -> str:
    """Returns the context. For kubectl, the first of several files that names a current context decides; for
    kubernetes-asyncio, the last. Raises SettingsError if no file contains the wanted context."""
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger  # noqa: PLC0415

    files = KubeConfigMerger(path).config_files.values()
    if not wanted:
        return next((file["current-context"] for file in files if file.get("current-context")), "")
    names = [one["name"] for file in files for one in file.get("contexts") or []]
    if wanted not in names:
        raise SettingsError(f"--context {wanted!r}: expected one of {', '.join(names)}, as {path} has them")
    return wanted


def _namespace(path: str, context: str) -> str:
    """Returns the namespace of the context, or an empty string if the context names none."""
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger  # noqa: PLC0415

    for file in KubeConfigMerger(path).config_files.values():
        for one in file.get("contexts") or []:
            if one.get("name") == context:
                return str((one.get("context") or {}).get("namespace") or "")
    return ""


class _Renewed:
    """The token of a kubeconfig. The token is loaded again when it is about to expire (if the kubeconfig
    provides the time), and when the API server refuses it. Until a new token is loaded, the old token is
    used."""

    def __init__(self, loader: KubeConfigLoader, configuration: Configuration, path: str) -> None:
        self._loader = loader
        self._configuration = configuration
        self._path = path
        self._refused = False
        self._loaded_at_s = time.monotonic()

    async def token(self) -> str:
        if self._is_due():
            self._loaded_at_s = time.monotonic()
            await self._load()
        return _token_of(self._configuration)

    def refused(self) -> None:
        self._refused = True

    def _is_due(self) -> bool:
        if time.monotonic() - self._loaded_at_s < RENEW_PAUSE_S:
            return False
        return self._refused or hasattr(self._loader, "exec_plugin_expiry") or bool(self._loader.provider)

    async def _load(self) -> None:
        from kubernetes_asyncio import config  # noqa: PLC0415

        if self._refused:
            vars(self._loader).pop("exec_plugin_expiry", None)
        self._refused = False
        try:
            async with asyncio.timeout(RENEW_S_MAX):
                await self._loader.load_and_set(self._configuration)
        except (config.ConfigException, OSError, ValueError, *_SHAPELESS) as error:
            log.warning(
                "token not renewed, going on with the old one", kubeconfig=self._path, error=str(error)
            )


def _token_of(configuration: Configuration) -> str:
    key: str = (configuration.api_key or {}).get("BearerToken", "")
    return key.removeprefix("Bearer ")
