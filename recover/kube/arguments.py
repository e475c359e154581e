"""Defines the arguments on the command line of a daemon or a Job that select the API server and the
credentials.
"""

from __future__ import annotations

import argparse

from detectors.client.credentials import Credentials
from recover.kube.auth import load_credentials

__all__ = ["HELP", "add_connection", "connection"]

HELP = {
    "kubeconfig": "A kubeconfig (default: $KUBECONFIG, then ~/.kube/config; in a pod, its ServiceAccount).",
    "context": "A context of the kubeconfig (default: the current context).",
    "server": "An API server, instead of a kubeconfig.",
    "token_file": "The token for --server.",
    "ca_file": "The certificate authority of --server (default: the system's).",
    "client_certificate": "A client certificate for --server, instead of a token.",
    "client_key": "The key of --client-certificate (default: the certificate's file holds the key).",
    "insecure_skip_tls_verify": "Accept any certificate of the API server.",
}
"""Help of each argument, by name. The commands that use typer read it, too."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help=HELP["kubeconfig"])
    parser.add_argument("--context", metavar="NAME", default="", help=HELP["context"])
    parser.add_argument("--server", metavar="URL", default="", help=HELP["server"])
    parser.add_argument("--token-file", metavar="FILE", default="", help=HELP["token_file"])
    parser.add_argument("--ca-file", metavar="FILE", default="", help=HELP["ca_file"])
    parser.add_argument("--client-certificate", metavar="FILE", default="", help=HELP["client_certificate"])
    parser.add_argument("--client-key", metavar="FILE", default="", help=HELP["client_key"])
    parser.add_argument(
        "--insecure-skip-tls-verify", action="store_true", help=HELP["insecure_skip_tls_verify"]
    )


async def connection(options: argparse.Namespace) -> Credentials:
    """Loads the credentials that the arguments select. Raises the errors of `load_credentials`."""
    return await load_credentials(
        kubeconfig=options.kubeconfig,
        context=options.context,
        server=options.server,
        token_file=options.token_file,
        ca_file=options.ca_file,
        client_certificate=options.client_certificate,
        client_key=options.client_key,
        insecure_skip_tls_verify=options.insecure_skip_tls_verify,
    )
