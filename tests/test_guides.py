"""Checks pages that name code, or contain code that people copy: the names exist, and the code runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from detectors.agent.wiring import core_of
from detectors.commands.main import GROUP
from detectors.rules.facts import KernelLine
from detectors.service.settings import AgentSettings, Catalogue
from detectors.wire.contract import Severity
from recover.api.reasons import Reason
from recover.checkpoints.marker_template import parse_marker
from recover.checkpoints.scan import scan
from recover.cli.read_log_lines import lines_of
from recover.cli.read_log_reading import read_log
from recover.cli.recipes_command import run as recipes
from recover.doctor.manifest import cases
from recover.doctor.report import examined
from recover.recipes.load import built_in
from recover.snapshot.manifests import documents
from recover.workloads import WORKLOADS
from tests.builders import NOW

ROOT = Path(__file__).parents[1]
STEP = re.compile(r"^\| .* \| `([\w.]+)` \| `([\w/]+\.py)` \|$", re.MULTILINE)


def defined(file: str) -> set[str]:
    """Returns the names of a file's functions and classes, and of the methods of its classes."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_every_step_of_the_one_fault_names_a_function_that_its_file_has() -> None:
    steps = STEP.findall((ROOT / "docs/one-fault.md").read_text(encoding="utf-8"))

    assert len(steps) > 30, "the pattern finds nothing"
    assert [(function, file) for function, file in steps if function not in defined(file)] == []


@pytest.mark.parametrize(
    "page", [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/extending/*.md")], ids=lambda p: p.name
)
def test_every_file_of_ours_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:detectors|recover|chaos|tests|tools|charts|image)/[\w./-]+)`", page.read_text(encoding="utf-8")
    )

    assert [one for one in named if not (ROOT / one).exists()] == []


OWNERS = (ROOT / "docs/for-job-owners.md").read_text(encoding="utf-8")
JOBS = re.findall(r"^```yaml\n(.*?)^```", OWNERS, re.MULTILINE | re.DOTALL)
(TRAINING,) = re.findall(r"^```python\n(.*?)^```", OWNERS, re.MULTILINE | re.DOTALL)


def test_the_owners_page_has_a_job_of_every_kind_and_the_doctor_finds_nothing_in_it() -> None:
    found = [cases(documents(text, "page"), "page", built_in(), NOW) for text in JOBS]

    assert {case.gang.ref.kind for made, _ in found for case in made} == {w.resource.kind for w in WORKLOADS}
    assert [(notes, one) for made, notes in found for case in made for one in examined(case).findings] == []


def test_the_owners_training_saves_what_the_scan_chooses_resumes_from_there_and_prints_steps_that_are_read(
    tmp_path: Path,
) -> None:
    first = trained(tmp_path)
    (tmp_path / "step-40").mkdir()  # a checkpoint that was never finished
    marker = str(yaml.safe_load(JOBS[0])["metadata"]["annotations"]["rekindle.dev/checkpoint"]).split(
        "marker="
    )[1]

    result = scan(tmp_path, format_name="generic", template=parse_marker(marker))
    assert result.chosen is not None
    again = trained(
        tmp_path,
        REKINDLE_RESUME_FROM=str(tmp_path / result.chosen.path),
        REKINDLE_RESUME_STEP=str(result.chosen.step),
    )

    assert result.chosen.step == 30
    assert first[:2] == ["resuming from None at step 0", "step 1/1000 loss 1.0000"]
    assert again[1].startswith("step 31/1000 loss ")
    steps = read_log(lines_of(f"{line}\n".encode() for line in again)).answer.steps
    assert (steps[0].step, steps[-1].step) == (31, 60)


def test_a_process_that_its_launcher_starts_again_in_its_container_does_not_go_back(tmp_path: Path) -> None:
    """Its environment still names the checkpoint of the recovery."""
    trained(tmp_path)
    (tmp_path / "tmp").mkdir()
    told = {"REKINDLE_RESUME_FROM": str(tmp_path / "step-10"), "REKINDLE_RESUME_STEP": "10"}
    told["TMPDIR"] = str(tmp_path / "tmp")  # the container's own

    first, again = (trained(tmp_path, LOCAL_RANK="3", **told) for _ in range(2))
    neighbour = trained(tmp_path, LOCAL_RANK="4", **told)

    assert first[0].endswith("step-10 at step 10")
    assert again[0].endswith("step-40 at step 40")
    assert neighbour[0].endswith("step-10 at step 10"), "each rank of the container begins there once"


def test_each_rank_of_the_owners_training_writes_its_own_part_and_only_the_first_writes_the_marker(
    tmp_path: Path,
) -> None:
    (job,) = (made for text in JOBS if (made := yaml.safe_load(text))["kind"] == "Job")
    assert job["spec"]["completionMode"] == "Indexed", "Kubernetes sets JOB_COMPLETION_INDEX"

    trained(tmp_path, JOB_COMPLETION_INDEX="3")
    assert parts(tmp_path) == {"weights-3.bin"}
    trained(tmp_path, TF_CONFIG='{"task": {"type": "worker", "index": 4}, "environment": "cloud"}')
    assert parts(tmp_path) == {"weights-3.bin", "weights-4.bin"}
    trained(tmp_path, PADDLE_TRAINER_ID="2")
    assert parts(tmp_path) == {"weights-2.bin", "weights-3.bin", "weights-4.bin"}
    trained(tmp_path, RANK="1", JOB_COMPLETION_INDEX="0")  # torchrun in an Indexed Job
    assert parts(tmp_path) == {f"weights-{rank}.bin" for rank in (1, 2, 3, 4)}
    trained(tmp_path, JOB_COMPLETION_INDEX="0")
    assert parts(tmp_path) == {"DONE", *(f"weights-{rank}.bin" for rank in range(5))}


def test_a_save_that_breaks_off_in_a_folder_of_an_earlier_save_leaves_no_marker(tmp_path: Path) -> None:
    """A job that resumes from an earlier step saves the same steps again."""
    trained(tmp_path)
    part = tmp_path / "step-20" / "weights-0.bin"
    part.unlink()
    part.mkdir()  # the part cannot be written

    with pytest.raises(subprocess.CalledProcessError):
        trained(tmp_path, REKINDLE_RESUME_FROM=str(tmp_path / "step-10"), REKINDLE_RESUME_STEP="10")

    assert {path.parent.name for path in tmp_path.glob("step-*/DONE")} == {"step-10", "step-30"}


def parts(folder: Path) -> set[str]:
    return {path.name for path in (folder / "step-10").iterdir()}


def trained(folder: Path, **told: str) -> list[str]:
    """Returns the lines that the page's training prints in a new container."""
    with TemporaryDirectory() as tmp:
        run = subprocess.run(
            [sys.executable, "-c", TRAINING],
            env={"CHECKPOINT_DIR": str(folder), "TMPDIR": tmp, **told},
            capture_output=True,
            text=True,
            check=True,
        )
    return run.stdout.splitlines()


def sample(page: str) -> str:
    """Returns the only TOML block of a page."""
    text = (ROOT / "docs/extending" / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_sample_row_of_a_detector_reads_its_own_example_as_a_note(tmp_path: Path) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_text(sample("detector.md"))
    ((row,),) = tomllib.loads(extra.read_text()).values()

    core = core_of(AgentSettings(catalogue=Catalogue(extra=str(extra))), boot_id="b")
    core.kernel_line(KernelLine(text=row["examples"][0], at=NOW, sequence=1))

    assert [(one.code, one.severity) for one in core.findings] == [(row["code"], Severity.INFO)]


def test_the_sample_recipe_matches_its_issue_and_no_other_line(tmp_path: Path) -> None:
    recipe, issue, other = (tmp_path / name for name in ("small-shm.toml", "issue.log", "other.log"))
    recipe.write_text(sample("recipe.md"))
    issue.write_text("RuntimeError: unable to write to file </torch_17>: No space left on device (28)\n")
    other.write_text("OSError: [Errno 28] No space left on device\n")

    assert recipes(["show", str(recipe)]) == 0
    assert recipes(["test", str(recipe), "--log", str(issue)]) == 0
    assert recipes(["test", str(recipe), "--log", str(other)]) == 1


NOTHING_TO_DO = {
    Reason.NODE_GONE,
    Reason.JOB_GONE,
    Reason.JOB_COMPLETED,
    Reason.CAUSE_GONE,
    Reason.COOLING_DOWN,
    Reason.RELEASED_BY_PERSON,
}


def test_troubleshooting_names_every_reason_for_which_somebody_can_do_something() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,}|Blind|Held|Paused|Unsupported)`", page)) - {
        "ReadWriteOnce"
    }

    assert named == {str(reason) for reason in set(Reason) - NOTHING_TO_DO}


PAGES = [
    *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
    *ROOT.glob("docs/**/*.md"),
    ROOT / "charts/rekindle/templates/NOTES.txt",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_target_and_module_that_a_page_tells_people_to_run_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))

    commands = set(re.findall(r"(?:`|^ *|-- |\w/)rekindle ([a-z][a-z-]*)(?=[ `\n])", code, re.MULTILINE))
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", code, re.MULTILINE))
    modules = set(re.findall(r"python -m ((?:tests|tools|chaos)[\w.]*)", code))

    assert commands - {"help", *(point.name for point in entry_points(group=GROUP))} == set()
    assert targets - set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) == set()
    assert [name for name in modules if find_spec(name) is None] == []
