"""The demo's training program: small, but a real data-parallel training with sharded checkpoints.

    python -m chaos.training --steps 200 --checkpoint-dir /ckpt --checkpoint-every 20

It knows nothing of Rekindle but one environment variable, REKINDLE_RESUME_FROM, and works without it too.
Reading order: __main__.py (arguments), loop.py (the training), model.py, collective.py, checkpoint.py.
"""
