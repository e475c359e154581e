"""The model really learns, and its gradient is correct."""

import numpy as np

from chaos.training.network import PARAMETERS, batch, first_state, gradient, update


def test_the_gradient_agrees_with_finite_differences() -> None:
    state = first_state(seed=1)
    x, y = batch(seed=1, step=1, rank=0)
    exact, _ = gradient(state, x, y)

    for index in (0, PARAMETERS // 2, PARAMETERS - 40, PARAMETERS - 1):
        errors = []
        for shift in (1e-6, -1e-6):
            moved = first_state(seed=1)
            moved.parameters[index] += shift
            errors.append(gradient(moved, x, y)[1])
        assert np.isclose((errors[0] - errors[1]) / 2e-6, exact[index], rtol=1e-4, atol=1e-7)


def test_the_loss_falls() -> None:
    state = first_state(seed=0)
    losses = []
    for step in range(1, 301):
        average_gradient, loss = gradient(state, *batch(0, step, 0))
        update(state, average_gradient, step)
        losses.append(loss)

    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])


def test_ranks_and_steps_see_different_data_and_the_same_again() -> None:
    first, _ = batch(0, 1, 0)

    assert np.array_equal(first, batch(0, 1, 0)[0])
    assert not np.array_equal(first, batch(0, 1, 1)[0])
    assert not np.array_equal(first, batch(0, 2, 0)[0])
