"""What people want and allow: settings, consent, holds, modes in force, what each fault class calls for.

In: labels, annotations, settings, faults.toml.
Out: yes or no, and numbers; the commands that people are told to type.
Touches: its own packaged file, once: pure otherwise.
"""
