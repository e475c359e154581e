"""The two ways to look: at the whole world (triage, upkeep), and at one recovery at a time."""
