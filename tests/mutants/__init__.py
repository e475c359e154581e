"""How well do the tests and the random scripts see a wrong decision? `python -m tests.mutants` makes the
decision core wrong on purpose, in a copy, one small change at a time, and tells which changes nobody
notices.
"""
