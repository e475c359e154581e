"""Real torchrun jobs under random faults on the demo cluster: `python -m chaos.rigs.torch_soak --faults 50`.

Reading order: __main__.py (arguments), strikes.py (what strikes, drawn from a seed), manifest.py (the job),
witness.py (what the ranks print), striking.py (the blow), rounds.py (one job and its faults), report.py.
"""
