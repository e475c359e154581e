"""Who we are to the API server: in-cluster, or a kubeconfig as kubectl reads it.

The kubeconfig is read by kubernetes-asyncio, which knows exec plugins, client certificates and inline data;
what it finds becomes the few fields that our own client needs.
"""

from __future__ import annotations

import os
from pathlib import Path

from detectors.kubeapi import Credentials
from detectors.settings import SettingsError

__all__ = ["load_credentials"]


async def load_credentials(
    *, kubeconfig: str = "", context: str = "", server: str = "", token_file: str = "", ca_file: str = ""
) -> Credentials:
    """A given server wins, then a given kubeconfig, in-cluster, `$KUBECONFIG` and ~/.kube/config.

    Raises SettingsError, naming the file, where nothing usable is found.
    """
    if server:
        return Credentials(server=server.rstrip("/"), token_file=token_file, ca_file=ca_file)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not kubeconfig and host:
        return Credentials.in_cluster(host, os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    path = kubeconfig or os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
    if not os.path.isfile(path):  # noqa: ASYNC240  (once, before anything else runs)
        raise SettingsError(
            f"kubeconfig {path}: no such file; expected a kubeconfig (--kubeconfig or KUBECONFIG), or to "
            "run inside a cluster"
        )
    return await _from_kubeconfig(path, context)


async def _from_kubeconfig(path: str, context: str) -> Credentials:
    import yaml  # noqa: PLC0415
    from kubernetes_asyncio import client, config  # noqa: PLC0415  (72 MiB: only those who need it pay)

    configuration = client.Configuration()
    try:
        await config.load_kube_config(
            config_file=path, context=context or None, client_configuration=configuration
        )
    except yaml.YAMLError as error:
        raise SettingsError(f"kubeconfig {path}: not valid YAML: {' '.join(str(error).split())}") from error
    except (config.ConfigException, OSError, ValueError) as error:
        raise SettingsError(f"kubeconfig {path}: {error}") from error
    except (AttributeError, TypeError, KeyError) as error:  # the reader takes the file's shape for granted
        raise SettingsError(f"kubeconfig {path}: not the shape of a kubeconfig") from error
    token = (configuration.api_key or {}).get("BearerToken", "").removeprefix("Bearer ")
    return Credentials(
        server=configuration.host.rstrip("/"),
        token=token,
        ca_file=configuration.ssl_ca_cert or "",
        client_cert_file=configuration.cert_file or "",
        client_key_file=configuration.key_file or "",
    )
