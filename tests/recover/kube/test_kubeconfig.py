"""Tests kubeconfigs as people have them: several files and contexts, tunnels, a proxy, and addresses that
lead nowhere."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from detectors.client.kubeapi import KubeApi, ReplyLost
from detectors.service.settings import SettingsError
from recover.kube import auth
from recover.kube.auth import load_credentials
from tests.facts import missing


@pytest.fixture(autouse=True)
def outside_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def written(path: Path, *names: str, current: str = "", user: Any = None, **cluster: Any) -> str:
    """Writes a kubeconfig with a cluster, a user and a context for each name. Returns its path."""
    parts = {
        "clusters": [{"name": n, "cluster": {"server": f"https://{n}:6443", **cluster}} for n in names],
        "users": [{"name": n, "user": user or {"token": f"of-{n}"}} for n in names],
        "contexts": [{"name": n, "context": {"cluster": n, "user": n}} for n in names],
        **({"current-context": current} if current else {}),
    }
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts}))
    return str(path)


# --- which cluster ----------------------------------------------------------------------------------------


async def test_of_several_files_the_first_that_names_a_context_decides_as_for_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = written(tmp_path / "none", "a")
    first = written(tmp_path / "first", "b", current="b")
    second = written(tmp_path / "second", "c", current="c")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{none}:{first}:{second}")

    assert (await load_credentials()).server == "https://b:6443"
    assert (await load_credentials(context="a")).server == "https://a:6443"
    assert (await load_credentials(context="c")).server == "https://c:6443"


async def test_a_user_without_a_home_is_told_that_a_kubeconfig_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container may run as a user of any number, and such a user has no home."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 987_654)

    with pytest.raises(SettingsError, match="kubeconfig ~/"):
        await load_credentials()


async def test_a_context_is_enough_where_the_file_has_no_current_one(tmp_path: Path) -> None:
    path = written(tmp_path / "config", "a", "b")

    assert (await load_credentials(kubeconfig=path, context="b")).server == "https://b:6443"
    with pytest.raises(SettingsError, match=r"--context 'c': .*a, b"):
        await load_credentials(kubeconfig=path, context="c")


@pytest.mark.parametrize(
    ("cluster", "user", "named"),
    [
        ({"server": "10.0.0.1:6443"}, None, ("server", "'10.0.0.1:6443'")),
        ({"certificate-authority-data": "YWJj"}, None, ()),
        ({}, {"client-certificate-data": "YWJj", "client-key-data": "YWJj"}, ()),
    ],
    ids=["no URL", "no authority", "no certificate"],
)
async def test_a_kubeconfig_that_leads_nowhere_is_named(
    cluster: dict[str, Any], user: Any, named: tuple[str, ...], tmp_path: Path
) -> None:
    path = written(tmp_path / "config", "a", current="a", user=user, **cluster)

    with pytest.raises(SettingsError) as caught:
        await load_credentials(kubeconfig=path)

    assert not missing(str(caught.value), f"kubeconfig {path}", *named)


async def test_a_cluster_that_says_nothing_is_not_the_shape_of_one(tmp_path: Path) -> None:
    path = written(tmp_path / "config", "a", current="a")
    config = yaml.safe_load(Path(path).read_text())
    config["clusters"][0]["cluster"] = {}
    Path(path).write_text(yaml.safe_dump(config))

    with pytest.raises(SettingsError, match=re.escape(f"kubeconfig {path}: ")):
        await load_credentials(kubeconfig=path)


async def test_in_a_pod_a_context_is_sought_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "config", "a", "b", current="a"))

    assert (await load_credentials(context="b")).server == "https://b:6443"


async def test_a_pod_without_a_service_account_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr("detectors.client.credentials._IN_CLUSTER", Path("/none"))

    with pytest.raises(SettingsError, match=r"/none/token.*--kubeconfig"):
        await load_credentials()


@pytest.mark.parametrize("status", ["null", "[]", "5", '{"expirationTimestamp": "soon", "token": "new"}'])
async def test_while_a_plugin_answers_rubbish_the_old_token_is_used(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "RENEW_PAUSE_S", 0.0)
    says = tmp_path / "status"
    says.write_text('{"token": "old", "expirationTimestamp": "2020-01-01T00:00:00Z"}')
    version = "client.authentication.k8s.io/v1"
    script = f"""echo '{{"apiVersion": "{version}", "kind": "ExecCredential", "status": '$(cat {says})'}}'"""
    plugin = {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script]}}
    credentials = await load_credentials(
        kubeconfig=written(tmp_path / "config", "a", current="a", user=plugin)
    )
    assert credentials.tokens is not None

    says.write_text(status)

    assert await credentials.tokens.token() == "old"


# --- the connection ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the self-signed certificate of the server api.test. The key is in the same folder."""
    folder = tmp_path_factory.mktemp("tls")
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subject = ["-subj", "/CN=api.test", "-addext", "subjectAltName=DNS:api.test"]
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(["openssl", "req", "-x509", *new_key, *subject, *files], check=True, capture_output=True)
    return folder / "tls.crt"


@asynccontextmanager
async def answering(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yields the port of a server that gives everybody an object with the host name that the request used."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"host": request.host})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def asked(path: str) -> bytes:
    async with KubeApi(await load_credentials(kubeconfig=path), timeout_s=5.0) as api:
        return await api.request("GET", "/version")


@pytest.mark.parametrize(
    ("way", "is_reached"),
    [
        ({}, False),
        ({"insecure-skip-tls-verify": True}, True),
        ({"certificate-authority": "tls.crt"}, False),
        ({"certificate-authority": "tls.crt", "tls-server-name": "api.test"}, True),
        ({"certificate-authority": "tls.crt", "tls-server-name": "other.test"}, False),
    ],
    ids=["a stranger", "not verified", "another name", "its own name", "a wrong name"],
)
async def test_a_server_behind_a_tunnel_is_reached_as_the_kubeconfig_says(
    way: dict[str, Any], is_reached: bool, certificate: Path, tmp_path: Path
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    async with answering(tls) as port:
        server = f"https://127.0.0.1:{port}"
        path = written(certificate.parent / "config", "a", current="a", server=server, **way)
        if is_reached:
            assert await asked(path)
        else:
            with pytest.raises(ReplyLost, match="certificate is not accepted"):
                await asked(path)


async def test_a_server_behind_a_proxy_is_asked_through_it(tmp_path: Path) -> None:
    async with answering() as port:
        proxy = f"http://127.0.0.1:{port}"
        path = written(
            tmp_path / "config", "a", current="a", server="http://api.test", **{"proxy-url": proxy}
        )

        assert b"api.test" in await asked(path)
