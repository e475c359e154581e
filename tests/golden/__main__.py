"""`python -m tests.golden` writes the golden files; with `--share` it prints which sentences they show."""

from __future__ import annotations

import sys

from tests.golden.files import FILES, kept, path_of, rendered
from tests.golden.share import shown
from tests.golden.templates import ROOT, in_package, templates
from tools.docs.generate import pages

_MEASURED = ("detectors", "recover")


def write() -> None:
    FILES.mkdir(exist_ok=True)
    for name, text in rendered().items():
        path_of(name).write_text(text, encoding="utf-8")


def tell_share() -> None:
    """Prints the share of the sentences that the files show. The file `templates` itself does not count."""
    texts = {f"{name}.txt": text for name, text in kept().items() if name != "templates"}
    own = shown(templates(_MEASURED), texts)
    elsewhere = {f"{path.name}.md": text for path, text in pages().items()}
    crds = sorted((ROOT / "charts" / "rekindle" / "files" / "crds").glob("*.yaml"))
    elsewhere |= {path.name: path.read_text(encoding="utf-8") for path in crds}
    every = shown(templates(_MEASURED), {**texts, **elsewhere})
    for package in _MEASURED:
        for place, sentences in in_package(package).items():
            if missing := [one for one in sentences if not every[one]]:
                print(f"{place}: {len(missing)} of {len(sentences)} not shown")
                print(*(f"    {one!r}" for one in missing), sep="\n")
    print(f"{sum(own.values())} of {len(own)} sentences are shown by these files ({_percent(own)} %),")
    print(f"{sum(every.values())} with the CRDs and the generated pages ({_percent(every)} %)")


def _percent(found: dict[str, bool]) -> str:
    return f"{100 * sum(found.values()) / len(found):.0f}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            write()
        case ["--share"]:
            tell_share()
        case _:
            sys.exit("expected no argument, or --share")
