"""A real PaddlePaddle training for the allocator conflict on virtual GPUs: CPU wheel, gloo, paddle.save.

    python -m chaos.rigs.paddle_training.environment      makes the environment it runs in, and prints its
    Python

train.py is the program, in that environment, and imports nothing of ours. manifest.py, in our own, is the
PaddleJob that runs it. It knows nothing of Rekindle but REKINDLE_RESUME_FROM.
"""
