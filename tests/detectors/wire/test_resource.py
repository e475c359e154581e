"""Addresses of objects in the Kubernetes API."""

from __future__ import annotations

import pytest

from detectors.wire.resource import Resource

PODS = Resource("", "v1", "pods", "Pod")


def test_the_address_of_an_object() -> None:
    assert PODS.path("llm-0", "ml", "status") == "/api/v1/namespaces/ml/pods/llm-0/status"
    assert PODS.path("system:node", "ml") == "/api/v1/namespaces/ml/pods/system:node"


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../../api/v1/secrets/x",
        "a?watch=true",
        "a#b",
        "%2e%2e",
        "a\\b",
        "a b",
        "a\n",
        "\x00",
    ],
)
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    for called in ({"name": name}, {"name": "x", "namespace": name}):
        with pytest.raises(ValueError, match="Pod "):
            PODS.path(**called)
