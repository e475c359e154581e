"""Makes manifests of the cases in doctor_cases, and returns the doctor's findings about them."""

from __future__ import annotations

from pathlib import Path

from recover.doctor import manifest as manifests
from recover.doctor import report
from recover.doctor.case import Finding
from recover.recipes.load import built_in
from recover.snapshot.manifests import documents
from tests.recover.stories.why_cases import NOW

CASES = Path(__file__).parent / "doctor_cases"
JOB = (CASES / "job.yaml").read_text()
NO_CONSENT = JOB.replace("enabled", "disabled")
BUILT_IN = built_in()


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def only_finding(manifest: str) -> Finding:
    """Returns the only finding of the command about this manifest."""
    (case,), _ = manifests.cases(documents(manifest, "job.yaml"), "job.yaml", BUILT_IN, NOW)
    (finding,) = report.examined(case).findings
    return finding
