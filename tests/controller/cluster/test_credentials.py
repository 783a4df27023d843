from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import config as kube_config

from meshwright.cluster import credentials as module
from meshwright.cluster.credentials import RELOAD_SECONDS, Credentials
from meshwright.cluster.errors import ConfigError
from tests.controller.cluster.stub_kube import StubKube


async def test_a_token_in_the_kubeconfig(kubeconfig: Callable[..., str]) -> None:
    found = await Credentials.find(kubeconfig("http://x", token="token-one"))
    assert (found.server, await found.header()) == ("http://x", "Bearer token-one")


async def test_nobody_needs_to_prove_anything_to_an_open_server(kubeconfig: Callable[..., str]) -> None:
    assert await (await Credentials.find(kubeconfig("http://x"))).header() is None


async def test_user_and_password(kubeconfig: Callable[..., str]) -> None:
    found = await Credentials.find(kubeconfig("http://x", username="u", password="p"))
    assert await found.header() == "Basic dTpw"


async def test_a_token_file_is_read_again_every_minute(kubeconfig: Callable[..., str], tmp_path: Path) -> None:
    token, now = tmp_path / "token", 0.0
    token.write_text("token-one\n")
    found = await Credentials.find(kubeconfig("http://x", tokenFile=str(token)))
    found._clock = lambda: now
    found._read_at = 0.0
    token.write_text("token-two\n")

    assert await found.header() == "Bearer token-one"
    now = RELOAD_SECONDS
    assert await found.header() == "Bearer token-two"


async def test_a_token_file_that_is_missing_for_an_instant_costs_nothing(
    kubeconfig: Callable[..., str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("token-one")
    found = await Credentials.find(kubeconfig("http://x", tokenFile=str(token)))
    token.unlink()

    assert not await found.rejected("Bearer token-one")
    assert await found.header() == "Bearer token-one"
    token.write_text("token-two")
    assert await found.rejected("Bearer token-one")
    assert await found.header() == "Bearer token-two"


async def test_a_rejection_of_a_token_that_was_replaced_meanwhile_reads_nothing(
    kubeconfig: Callable[..., str], tmp_path: Path
) -> None:
    """Many requests are rejected at once; the first reads, the others see that it has."""
    token = tmp_path / "token"
    token.write_text("token-one")
    found = await Credentials.find(kubeconfig("http://x", tokenFile=str(token)))
    token.write_text("token-two")
    assert await found.rejected("Bearer token-one")
    token.write_text("token-three")

    assert await found.rejected("Bearer token-one")
    assert await found.header() == "Bearer token-two"


async def test_an_exec_plugin(kubeconfig: Callable[..., str], tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "token-of-the-plugin"},
    }
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(answer)!r})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    user["interactiveMode"] = "Never"

    found = await Credentials.find(kubeconfig("http://x", exec=user))
    assert await found.header() == "Bearer token-of-the-plugin"


async def test_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("token-one\n")
    (tmp_path / "ca.crt").write_text("certificate")
    incluster = kube_config.incluster_config
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    found = await Credentials.find()
    assert (found.server, await found.header()) == ("https://[fd00::1]:443", "Bearer token-one")
    (tmp_path / "token").write_text("token-two\n")
    assert await found.rejected("Bearer token-one")
    assert await found.header() == "Bearer token-two"


@pytest.mark.parametrize("content", [None, "", "[]", "{]", '{"contexts": []}'])
async def test_an_unusable_kubeconfig_is_said_with_its_name(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="broken"):
        await Credentials.find(str(path))


async def test_no_service_account_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="service account"):
        await Credentials.find()


class TestKopfSession:
    """Kopf ends for good on a second 401 with equal credentials; it never sees one."""

    async def test_authenticates_by_itself(self, stub: StubKube, kubeconfig: Callable[..., str]) -> None:
        stub.tokens = {"token-one"}
        found = await Credentials.find(kubeconfig(stub.url, token="token-one"))
        async with found.authorized_session() as session, session.get(stub.url + "/api/v1/pods") as answer:
            assert answer.status == 200

    async def test_a_rotated_token_is_taken_up_within_the_request(
        self, stub: StubKube, kubeconfig: Callable[..., str], tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text("token-one")
        found = await Credentials.find(kubeconfig(stub.url, tokenFile=str(token)))
        token.write_text("token-two")
        stub.tokens = {"token-two"}
        async with (
            found.authorized_session() as session,
            session.post(stub.url + "/api/v1/namespaces/a/pods", json={"metadata": {"name": "x"}}) as answer,
        ):
            assert answer.status == 201

    async def test_a_token_that_stays_rejected_is_a_broken_connection(
        self, stub: StubKube, kubeconfig: Callable[..., str]
    ) -> None:
        stub.tokens = {"another-token"}
        found = await Credentials.find(kubeconfig(stub.url, token="token-one"))
        async with found.authorized_session() as session:
            with pytest.raises(aiohttp.ClientConnectionError, match="401"):
                await session.get(stub.url + "/api/v1/pods")


def test_the_token_is_looked_at_more_often_than_it_is_rotated() -> None:
    assert module.RELOAD_SECONDS <= 60  # A projected token lives ten minutes at least, and is rotated at 80 %.


@pytest.mark.parametrize("no_proxy", ["", "api.example.invalid"])
async def test_a_proxy_of_the_environment_is_looked_up_once_and_no_file_of_passwords_ever(
    no_proxy: str, stub: StubKube, kubeconfig: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", stub.url)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    found = await Credentials.find(kubeconfig("http://api.example.invalid:6443", token="t"))
    async with found.session() as session:
        assert session.trust_env is False, "with it aiohttp looks for a netrc file at every request, in a thread"
        call = session.get("http://api.example.invalid:6443/api/v1/nodes")
        if no_proxy:
            with pytest.raises(aiohttp.ClientConnectorDNSError):
                await call
        else:
            assert (await call).status == 200, "the stub answers in the proxy's place"


async def test_the_name_that_the_certificate_must_have_is_the_kubeconfigs(
    kubeconfig: Callable[..., str], tmp_path: Path
) -> None:
    path = Path(kubeconfig("https://10.0.0.1:6443", token="t"))
    assert (await Credentials.find(str(path))).tls_name is None
    written = json.loads(path.read_text())
    written["clusters"][0]["cluster"]["tls-server-name"] = "api.example.org"
    path.write_text(json.dumps(written))
    assert (await Credentials.find(str(path))).tls_name == "api.example.org"
