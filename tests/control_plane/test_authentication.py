"""The controller's identity at a real API server: exec plugins with tokens that expire, certificates, a pod's
token."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.wire.resource import Resource
from recover.kube import auth
from recover.kube.auth import load_credentials
from tests.control_plane.plane import ADMIN, ControlPlane
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
PLUGIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as runs:
    runs.write(".")
status = json.loads((folder / "status").read_text())
answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
print(json.dumps(answer))
"""


class Plugin:
    """An exec plugin like those of cloud providers. `gives` sets its answer from then on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")

    def gives(self, token: str, *, lives: timedelta | None = None) -> None:
        status = {"token": token}
        if lives is not None:
            status["expirationTimestamp"] = (datetime.now(UTC) + lives).strftime("%Y-%m-%dT%H:%M:%SZ")
        (self._folder / "status").write_bytes(msgspec.json.encode(status))

    def breaks(self) -> None:
        (self._folder / "status").unlink()

    @property
    def runs(self) -> int:
        return (self._folder / "runs").stat().st_size

    def user(self) -> dict[str, Any]:
        arguments = [str(self._folder / "plugin.py"), str(self._folder)]
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": arguments,
                "interactiveMode": "Never",
            }
        }


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function that ends the pause between two renewals at once, from then on."""
    return lambda: monkeypatch.setattr(auth, "RENEW_PAUSE_S", 0.0)


def kubeconfig(plane: ControlPlane, folder: Path, user: dict[str, Any]) -> str:
    """Returns the administrator's kubeconfig with another way to authenticate."""
    document = yaml.safe_load(plane.kubeconfig(ADMIN).read_text(encoding="utf-8"))
    document["users"][0]["user"] = user
    file = folder / "config"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(file)


async def who(api: KubeApi) -> str:
    body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
    answer = await api.request("POST", REVIEWS.path(), body=body)
    return str(msgspec.json.decode(answer)["status"]["userInfo"]["username"])


async def test_a_token_that_is_about_to_expire_is_renewed_by_the_plugin_that_gave_it(
    api_server: ControlPlane, plugin: Plugin, tmp_path: Path, later: Callable[[], None]
) -> None:
    plugin.gives("admin-token", lives=timedelta(minutes=4))
    credentials = await load_credentials(kubeconfig=kubeconfig(api_server, tmp_path, plugin.user()))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as api:
        assert await who(api) == "admin"

        plugin.gives("nobody-token", lives=timedelta(hours=1))
        assert (await who(api), plugin.runs) == ("admin", 1)
        later()
        assert (await who(api), plugin.runs) == ("nobody", 2)
        assert (await who(api), plugin.runs) == ("nobody", 2)


async def test_a_token_without_an_end_is_renewed_once_it_is_refused(
    api_server: ControlPlane, plugin: Plugin, tmp_path: Path, later: Callable[[], None]
) -> None:
    plugin.gives("revoked")
    credentials = await load_credentials(kubeconfig=kubeconfig(api_server, tmp_path, plugin.user()))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as api:
        plugin.gives("admin-token")
        later()
        with pytest.raises(ApiError) as refused:
            await who(api)
        assert refused.value.status == 401

        assert (await who(api), plugin.runs) == ("admin", 2)
        assert (await who(api), plugin.runs) == ("admin", 2)


async def test_while_the_plugin_fails_the_old_token_is_used(
    api_server: ControlPlane, plugin: Plugin, tmp_path: Path, later: Callable[[], None]
) -> None:
    plugin.gives("admin-token", lives=timedelta(minutes=4))
    credentials = await load_credentials(kubeconfig=kubeconfig(api_server, tmp_path, plugin.user()))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as api:
        plugin.breaks()
        later()
        assert (await who(api), plugin.runs) == ("admin", 2)

        plugin.gives("nobody-token", lives=timedelta(hours=1))
        assert await who(api) == "nobody"


@pytest.mark.parametrize("inline", [False, True], ids=["in files", "in the kubeconfig"])
async def test_a_client_certificate_says_who_we_are(
    api_server: ControlPlane, tmp_path: Path, inline: bool
) -> None:
    certificate, key = api_server.client_certificate("carol")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    if inline:
        user = {
            f"{name}-data": base64.b64encode(Path(file).read_bytes()).decode() for name, file in user.items()
        }
    credentials = await load_credentials(kubeconfig=kubeconfig(api_server, tmp_path, user))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as api:
        assert await who(api) == "carol"


async def test_a_pods_token_is_read_again_and_may_be_away_for_a_moment(
    api_server: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("admin-token\n", encoding="utf-8")
    credentials = await load_credentials(
        server=api_server.url, token_file=str(file), ca_file=str(api_server.ca_file)
    )
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as api:
        assert await who(api) == "admin"
        file.unlink()
        with pytest.raises(ReplyLost):
            await who(api)
        file.write_text("nobody-token\n", encoding="utf-8")
        assert await who(api) == "nobody"
