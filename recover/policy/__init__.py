"""Reads what people want and allow: settings, consent, holds, modes in force, and the action for each fault
class.

In: labels, annotations, settings, faults.toml.
Out: yes or no, and numbers; the commands that people are told to type.
Touches: its own packaged file, once: pure otherwise.
"""
