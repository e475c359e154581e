"""A real PaddlePaddle training for the allocator conflict on virtual GPUs: CPU wheel, gloo, paddle.save.

    python -m chaos.rigs.paddle_training.environment      creates its environment, and prints the
    environment's Python

train.py is the program, which runs in that environment and imports nothing of Rekindle. manifest.py, which
runs in Rekindle's environment, has the PaddleJob that runs the program. The training knows nothing of
Rekindle except REKINDLE_RESUME_FROM.
"""
