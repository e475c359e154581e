"""The demo's training program: small, but a real data-parallel training with sharded checkpoints.

In: arguments and environment.
Out: steps in a log, checkpoints.
Touches: files and loopback. Imports nothing of Rekindle.

    python -m chaos.training --steps 200 --checkpoint-dir /ckpt --checkpoint-every 20

Reading order: __main__.py (arguments), loop.py (the training), network.py, collective.py, checkpoint.py.
"""
