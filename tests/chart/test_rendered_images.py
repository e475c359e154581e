"""Images of the pods that the chart starts: registry and digest, in the order in which the values name
them."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from tests.chart.helm import CHART, KUBERNETES, REGISTRY, Helm, HelmError
from tests.chart.rendered import DIGEST, EVERYTHING, images, settings_of

pytestmark = pytest.mark.control_plane


def test_a_digest_and_a_registry_name_the_image_of_every_container(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    expected = f"registry.example.com:5000/team/rekindle@{DIGEST}"
    assert set(images(objects)) == {expected}
    assert len(list(images(objects))) == 4
    assert f'scan = "{expected}"' in settings_of(objects)


def test_the_registry_of_all_charts_comes_before_that_of_this_one(helm: Helm) -> None:
    shared = {"global": {"imageRegistry": "mirror.example/all/"}, "image": {"registry": "registry.example"}}

    assert set(images(helm.render(shared))) == {"mirror.example/all/rekindle:0.1.0"}


@pytest.mark.parametrize(
    "image", [{}, {"registry": "team"}, {"repository": "team/rekindle"}, {"tag": "1"}], ids=str
)
def test_a_name_that_anybody_may_own_is_refused_with_what_to_set(helm: Helm, image: dict[str, str]) -> None:
    with pytest.raises(HelmError, match=r"image\.registry: ") as refused:
        helm.render({"image": image})

    said = str(refused.value)
    assert "docker push REGISTRY/rekindle:0.1.0" in said
    assert "--set image.registry=REGISTRY" in said
    assert "image.digest=sha256:" in said


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"image": {"registry": "localhost"}}, "localhost/rekindle:0.1.0"),
        ({"image": {"registry": "registry:5000"}}, "registry:5000/rekindle:0.1.0"),
        ({"image": {"registry": "docker.io/team"}}, "docker.io/team/rekindle:0.1.0"),
        ({"image": {"repository": "ghcr.io/team/rekindle", "tag": "2"}}, "ghcr.io/team/rekindle:2"),
        ({"image": {"digest": DIGEST}}, f"rekindle@{DIGEST}"),
        ({"global": {"imageRegistry": "mirror.example"}}, "mirror.example/rekindle:0.1.0"),
    ],
    ids=str,
)
def test_an_image_is_named_by_a_registry_or_by_its_digest(
    helm: Helm, values: dict[str, Any], expected: str
) -> None:
    objects = helm.render(values)

    assert set(images(objects)) == {expected}
    assert f'scan = "{expected}"' in settings_of(objects)


def test_the_chart_starts_no_second_image_of_its_own(helm: Helm) -> None:
    objects = helm.render({"mode": "repair"})

    named = re.findall(r'"([^"]*rekindle:[^"]*)"', settings_of(objects))
    assert {*images(objects), *named} == {f"{REGISTRY}/rekindle:0.1.0"}


def test_the_documented_command_lists_every_image_that_ones_own_values_name(helm: Helm) -> None:
    page = (CHART.parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    command, _, listing = page[page.index("helm template ") :].partition("```")[0].partition("|\n")
    flags = [f"--kube-version={KUBERNETES}", *helm.values(EVERYTHING)]
    assert command.split()[:4] == ["helm", "template", "rekindle", "charts/rekindle"]

    rendered = helm.run("template", "rekindle", str(CHART), *flags)
    listed = subprocess.run(listing, shell=True, input=rendered, capture_output=True, text=True, check=True)

    ours = f"registry.example.com:5000/team/rekindle@{DIGEST}"
    assert set(listed.stdout.split()) == {ours, "registry.example.com/torch:1", "reset:2"}
