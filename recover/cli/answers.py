"""Types of all answers that commands give to programs, for the generated reference and its test."""

from __future__ import annotations

from collections.abc import Mapping

from detectors.text.answers import Answer
from recover.cli.checkpoints_command import CheckpointsAnswer
from recover.cli.incidents_command import IncidentsAnswer
from recover.cli.read_log_reading import LogAnswer
from recover.cli.recipes_command import RecipesAnswer, TestAnswer
from recover.cli.version_command import VersionAnswer
from recover.doctor.installation.told import InstallationAnswer
from recover.doctor.report import JobsAnswer
from recover.stories.records import StatusAnswer, WhyJobAnswer, WhyNodeAnswer

__all__ = ["ANSWERS"]

ANSWERS: Mapping[str, type[Answer]] = {
    "rekindle status": StatusAnswer,
    "rekindle why JOB": WhyJobAnswer,
    "rekindle why node/NODE": WhyNodeAnswer,
    "rekindle incidents": IncidentsAnswer,
    "rekindle doctor": InstallationAnswer,
    "rekindle doctor JOB, rekindle doctor -f FILE": JobsAnswer,
    "rekindle version": VersionAnswer,
    "rekindle checkpoints scan": CheckpointsAnswer,
    "rekindle read-log": LogAnswer,
    "rekindle recipes list": RecipesAnswer,
    "rekindle recipes test": TestAnswer,
}
"""Type of the answer, by the command line that a person types."""
