"""Logs of real training frameworks, on CPUs with tiny models: what the frameworks print, beside their own
state.

    python -m chaos.rigs.framework_logs.environment       creates the two environments for the programs
    python -m chaos.rigs.framework_logs --output FOLDER   runs each framework, and again from its checkpoint

trainings/ contains the programs, which run in those environments. They import nothing of Rekindle but
truth.py. runs.py has the command of each program. tests/detectors/folds/real_runs.py compares the agent's
steps with the truth.
"""
