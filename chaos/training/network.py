"""A network of two layers that learns a synthetic function, with Adam. All numbers are float64, and all
random values come from the seed.

Parameters and both moments of Adam are flat vectors: easy to average over the ranks and to cut into shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARAMETERS", "State", "Vector", "batch", "first_state", "gradient", "update"]

Vector = NDArray[np.float64]

INPUTS = 16
HIDDEN = 64
BATCH_ROWS = 32
PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN + 1

LEARNING_RATE = 0.01
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


@dataclass
class State:
    """Everything that a step changes, and that a checkpoint must contain. Three vectors of PARAMETERS
    numbers."""

    parameters: Vector
    first_moment: Vector
    second_moment: Vector


def first_state(seed: int) -> State:
    random = np.random.default_rng([seed, 0])
    return State(random.normal(0.0, 0.1, PARAMETERS), np.zeros(PARAMETERS), np.zeros(PARAMETERS))


def batch(seed: int, step: int, rank: int) -> tuple[Vector, Vector]:
    """Returns this rank's rows of this step. They depend on nothing else, so a resumed run sees the same
    data."""
    x = np.random.default_rng([seed, step, rank]).normal(size=(BATCH_ROWS, INPUTS))
    return x, np.sin(x[:, 0] + x[:, 1]) + 0.5 * x[:, 2] * x[:, 3]


def gradient(state: State, x: Vector, y: Vector) -> tuple[Vector, float]:
    """Returns the gradient of the mean squared error, and the error."""
    weights, bias, out_weights, out_bias = _layers(state.parameters)
    hidden = np.tanh(x @ weights + bias)
    error = hidden @ out_weights + out_bias - y

    d_output = 2.0 * error / len(y)
    d_hidden = np.outer(d_output, out_weights) * (1.0 - hidden**2)
    parts = (x.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_output, d_output.sum())
    return np.concatenate([np.ravel(part) for part in parts]), float(np.mean(error**2))


def update(state: State, average_gradient: Vector, step: int) -> None:
    """Applies one step of Adam, in place."""
    state.first_moment += (1.0 - BETA_1) * (average_gradient - state.first_moment)
    state.second_moment += (1.0 - BETA_2) * (average_gradient**2 - state.second_moment)
    mean = state.first_moment / (1.0 - BETA_1**step)
    variance = state.second_moment / (1.0 - BETA_2**step)
    state.parameters -= LEARNING_RATE * mean / (np.sqrt(variance) + EPSILON)


def _layers(parameters: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    weights, bias, out_weights, out_bias = np.split(parameters, np.cumsum([INPUTS * HIDDEN, HIDDEN, HIDDEN]))
    return weights.reshape(INPUTS, HIDDEN), bias, out_weights, out_bias
