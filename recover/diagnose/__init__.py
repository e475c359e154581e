"""Decides which findings count, what broke, which node or program is the culprit, and which gangs are
affected.

In: World and settings.
Out: Diagnosis, one per fault, each with the gangs that it affects.
Touches: nothing: pure. Writes nothing, allows nothing.
"""
