"""Measures how well the tests and the random scripts notice a wrong decision. `python -m tests.mutants` puts
small mistakes into a copy of the decision core, one at a time, and reports the mistakes that neither scripts
nor tests notice."""
