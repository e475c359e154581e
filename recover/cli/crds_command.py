"""`rekindle crds`: prints the CRDs, or writes one file for each kind."""

from __future__ import annotations

import sys
from pathlib import Path

from detectors.commands.arguments import Parser
from recover.api.crds import files

__all__ = ["run"]


def run(args: list[str]) -> int:
    """Prints the CRDs, or writes one file for each kind. Returns the exit status."""
    parser = Parser(
        "crds",
        "Print the CustomResourceDefinitions of Rekindle.",
        example="rekindle crds | kubectl apply --server-side -f -",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="Write one file for each kind into this folder, and print nothing.",
    )
    directory: Path | None = parser.parse_args(args).output_dir
    if directory is None:
        sys.stdout.write("---\n".join(files().values()))
        return 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files().items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"rekindle: cannot write to {directory}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
