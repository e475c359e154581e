"""Where the daemons listen: a kubelet probes a pod at its own address, which may be of either family."""

from __future__ import annotations

import socket

import pytest

from detectors.service.listening import bound

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
@pytest.mark.parametrize("everywhere", ["", "0.0.0.0", "::", "[::]"])
def test_everywhere_is_an_address_of_either_family(everywhere: str) -> None:
    with bound(everywhere, 0) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=10).close()


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_an_address_of_the_newer_family_may_stand_in_brackets(address: str) -> None:
    with bound(address, 0) as listening:
        assert listening.getsockname()[0] == "::1"


def test_without_the_newer_family_everywhere_is_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bound("0.0.0.0", 0) as listening:
        assert listening.family is socket.AF_INET


def test_a_port_that_is_taken_and_an_address_that_is_none_are_errors() -> None:
    with bound("127.0.0.1", 0) as listening, pytest.raises(OSError, match="in use"):
        bound("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(OSError, match="bind on address"):
        bound("300.0.0.1", 0)
