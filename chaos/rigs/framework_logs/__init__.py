"""Logs of real training frameworks, on CPUs with tiny models: what they print beside their own state.

    python -m chaos.rigs.framework_logs.environment       makes the two environments that they run in
    python -m chaos.rigs.framework_logs --output FOLDER   runs each framework, and again from its checkpoint

trainings/ are the programs, in those environments. They import nothing of ours but truth.py. runs.py says how
each is started. tests/detectors/folds/real_runs.py compares the agent's steps with the truth.
"""
