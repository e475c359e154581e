"""What users see, held byte for byte: the files in `files/`, this generator, and a test that compares.

    make golden                        write the files anew
    python -m tests.golden --share     tell which sentences they show, and which they do not

A change of the house (modules moved, split, renamed) leaves every file as it is. Whoever moves modules of the
product mends the imports in rooms.py; whoever renames a test that is a scene puts its new name into
SCENES.txt. Whoever means to change a sentence writes the files anew, and the diff shows what users will see.

commands    `--help` of every command
metrics     of agent and controller
values      of fields that people read: reasons, phases, outcomes, and what each means
keys        labels and annotations
printed     what `why`, `status` and `doctor` print of fixed objects, as tables and as JSON
played      what is written and told in scripts of the simulator
scenes      what is said in scenes of other tests
templates   every sentence of the code, also of those that nothing here brings forth

Held elsewhere, and not doubled here: the CRDs (tests/chart/test_crd_files.py); the generated pages of
docs/reference, which hold recipes, Xids, first errors and settings, the chart's README, values.schema.json,
warnings.yaml, dashboard and repair templates (tests/test_house.py). The templates of the chart are files that
no generator writes; tests/chart/test_rendered.py renders them.
"""
