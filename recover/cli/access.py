"""Command-line options that choose the cluster, the account and the namespace. All commands that use typer
and need a cluster have the same options. Most of them have the same name in kubectl."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from detectors.client.credentials import Credentials
from detectors.service.settings import SettingsError
from recover.kube.arguments import HELP
from recover.kube.auth import load_credentials

__all__ = ["Access", "AllNamespaces", "Namespace", "namespace_for", "with_access"]

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Only jobs and Recoveries of this namespace (default: the namespace of the kubeconfig's "
        "context, if the context names one).",
        show_default=False,
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option("--all-namespaces", "-A", help="Jobs and Recoveries of all namespaces.", show_default=False),
]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Connection options that a person gave to a command."""

    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    client_certificate: str = ""
    client_key: str = ""
    insecure_skip_tls_verify: bool = False

    async def credentials(self) -> Credentials:
        """Returns the credentials for these options. Raises SettingsError."""
        return await load_credentials(**msgspec.structs.asdict(self))


_METAVARS = {
    "kubeconfig": "FILE",
    "context": "NAME",
    "server": "URL",
    "token_file": "FILE",
    "ca_file": "FILE",
    "client_certificate": "FILE",
    "client_key": "FILE",
}


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Returns `command` with the options of Access added. The command receives them as its argument
    `access`."""
    fields = msgspec.structs.fields(Access)

    def called(**given: Any) -> None:
        access = Access(**{field.name: given.pop(field.name) for field in fields})
        command(**given, access=access)

    own = [
        one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "access"
    ]
    given = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                field.type,
                typer.Option(
                    f"--{field.name.replace('_', '-')}",
                    metavar=_METAVARS.get(field.name),
                    help=HELP[field.name],
                    show_default=False,
                ),
            ],
        )
        for field in fields
    ]
    parameters = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *given]
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(called)["__signature__"] = inspect.Signature(parameters)
    return called


def namespace_for(asked: str, all_namespaces: bool, credentials: Credentials) -> str:
    """Returns the namespace to list; empty for all namespaces. Raises SettingsError."""
    if asked and all_namespaces:
        raise SettingsError("expected -n or -A, not both")
    return "" if all_namespaces else asked or credentials.namespace
