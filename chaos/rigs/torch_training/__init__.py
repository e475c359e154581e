"""A real PyTorch training for chaos/rigs/torch_soak: torchrun, gloo, FSDP2, asynchronous DCP saves.

    python -m chaos.rigs.torch_training.environment     makes the environment that it runs in

train.py is the program, in that environment, and imports nothing of ours. launch.py, which runs in our own
environment, says how it is started. It knows nothing of Rekindle but REKINDLE_RESUME_FROM.
"""
