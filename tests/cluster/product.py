"""`python -m tests.cluster.product` makes the project's image by the steps of the Dockerfile, as an archive
for nodes.

The first call fetches the locked packages. Later calls take some seconds after a change of the source, and no
time without a change.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from detectors import __version__
from tests.cluster.build import base_image_files
from tests.cluster.dockerfile import DockerfileError, carried_out, inputs_digest
from tests.cluster.images import REGISTRY, write_image
from tests.cluster.record import ClusterError, run
from tests.control_plane.build import BuildError, parts_cache

__all__ = ["PRODUCT", "main", "product_image"]

COMMAND = "python -m tests.cluster.product"
DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"
PRODUCT = f"{REGISTRY}/rekindle:{__version__}"


def product_image() -> Path:
    """Returns the archive, and makes it first if there is none for the present source. Raises BuildError."""
    base, cache = base_image_files(), parts_cache() / "product"
    if not base.exists():
        raise BuildError(f"{base} is missing; make it with `python -m tests.cluster.build`")
    name = base.parent.name
    made = cache / f"product-{inputs_digest(DOCKERFILE, name)[:16]}.tar"
    if made.exists():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as work:
        root = Path(work) / "base"
        root.mkdir()
        try:
            run("tar", "--extract", "--numeric-owner", f"--file={base}", f"--directory={root}")
            built = carried_out(DOCKERFILE, root, work=Path(work), cache=cache / "steps", base_name=name)
            layer, archive = Path(work) / "layer.tar", Path(work) / "product.tar"
            run("tar", "--create", "--numeric-owner", f"--file={layer}", f"--directory={built.layer}", ".")
            layers = [base, layer] if built.on_base else [layer]
            write_image(archive, PRODUCT, layers, entrypoint=built.entrypoint, env=built.env, user=built.user)
        except (ClusterError, DockerfileError) as error:
            raise BuildError(str(error)) from error
        for old in cache.glob("product-*.tar"):
            old.unlink()
        return archive.replace(made)


def main() -> int:
    """Makes the image. Returns 1, and prints what failed, if the image cannot be made."""
    began = time.monotonic()
    try:
        made = product_image()
    except BuildError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    print(f"{made}: {PRODUCT}, {made.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
