"""Real torchrun jobs under random faults on the demo cluster: `python -m chaos.rigs.torch_soak --faults 50`.

Reading order: __main__.py (arguments), strikes.py (the faults, drawn from a seed), manifest.py (the job),
witness.py (the output of the ranks), striking.py (the execution of a fault), rounds.py (one job and its
faults), soak.py (all jobs), report.py.
"""
