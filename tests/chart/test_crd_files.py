"""The chart ships exactly the CRDs that the structs define."""

from pathlib import Path

from recover.api.crds import files

CHART = Path(__file__).parents[2] / "charts" / "rekindle"


def test_the_charts_crd_files_equal_the_generated_ones() -> None:
    shipped = {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}

    assert shipped == files(), "stale: run `make crds`"
