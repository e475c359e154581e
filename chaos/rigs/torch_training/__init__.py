"""A real PyTorch training for chaos/rigs/torch_soak: torchrun, gloo, FSDP2, asynchronous DCP saves.

    python -m chaos.rigs.torch_training.environment     creates its environment

train.py is the program, which runs in that environment and imports nothing of Rekindle. launch.py, which runs
in Rekindle's environment, has the command that starts the program. The training knows nothing of Rekindle
except REKINDLE_RESUME_FROM.
"""
