"""Reads checkpoints of any other format: complete if the marker file that the job's annotation names exists.

The trainer must write the marker last, after everything else has reached the volume. Nothing more is known
about the format, so nothing more is checked: an empty marker counts, and the other files are not examined.
"""

from __future__ import annotations

from recover.checkpoints.folder import Folder
from recover.checkpoints.marker_template import GENERIC, Template
from recover.checkpoints.scan_result import Verdict

__all__ = ["Generic"]


class Generic:
    name = GENERIC

    def __init__(self, template: Template | None = None) -> None:
        """Takes the template. Without a template the reader recognises nothing: only an annotation can
        request this format."""
        self.template = template

    def recognises(self, folder: Folder) -> bool:
        del folder
        return self.template is not None

    def read(self, folder: Folder, step: int) -> Verdict:
        del step
        assert self.template is not None, "it recognised no folder"
        for name in self.template.folders:
            folder = folder.enter(name)
        if self.template.file not in folder.files:
            path = "/".join((*self.template.folders, self.template.file))
            return Verdict(complete=False, reason=f"no {path!a:.80}, so the save never finished")
        return Verdict(complete=True, bytes=folder.size_bytes(self.template.file))
