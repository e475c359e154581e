"""Golden files of everything that users see, compared byte for byte: the files in `files/`, this generator,
and a test that compares.

    make golden                        writes the files again
    python -m tests.golden --share     prints how many sentences the files show, and lists the others

A refactoring (modules moved, split, renamed) leaves every file unchanged. If you move modules of the product,
adapt the imports in rooms.py; if you rename a test that is a scene, put its new name into SCENES.txt. If you
want to change a sentence, write the files again; the diff then shows what users will see.

commands    `--help` of every command
metrics     metrics of agent and controller
values      values of fields that people read: reasons, phases, outcomes, and the meaning of each
keys        labels and annotations
printed     output of `why`, `status` and `doctor` for fixed objects, as tables and as JSON
played      texts that are written and printed in scripts of the simulator
scenes      texts in scenes of other tests
templates   every sentence of the code, including sentences that no other file shows

Other tests cover the following, which is not repeated here: the CRDs (tests/chart/test_crd_files.py); the
generated pages of docs/reference, which contain recipes, Xids, first errors and settings, the chart's README,
values.schema.json, warnings.yaml, dashboard and repair templates (tests/test_house.py). The templates of the
chart are files that no generator writes; tests/chart/test_rendered.py renders them.
"""
