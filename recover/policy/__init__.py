"""Reads what people want and allow: settings, consent, holds, modes in force, and the action for each fault
class.

In: labels, annotations, settings, and the packaged tables (faults.toml and others).
Out: yes or no, and numbers; signals of nodes; the commands that people are told to type.
Touches: its own packaged files, each once: pure otherwise.
"""
