"""Which findings count, what broke, who is to blame, whom it harms.

In: World and settings.
Out: Diagnosis, one per fault, each with its harms.
Touches: nothing: pure. Writes nothing, allows nothing.
"""
