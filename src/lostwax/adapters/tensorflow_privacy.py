"""The numbers of TensorFlow Privacy's privacy statement, as arguments of `lw.bound`."""

from __future__ import annotations

import math
from typing import Any

from lostwax.bounds import Poisson, Shuffled


def mechanism(
    *,
    number_of_examples: int,
    batch_size: int,
    num_epochs: float,
    noise_multiplier: float,
    used_microbatching: bool = True,
    poisson: bool = False,
) -> dict[str, Any]:
    """Noise, steps and sampling: `lw.bound(**lw.adapters.tensorflow_privacy.mechanism(...), baseline=0.1)`.

    The names, and the default of `used_microbatching`, are those of `compute_dp_sgd_privacy_statement`. Keras and
    tf.data shuffle, so that each record is in one batch per epoch: the statement's epsilon "assuming Poisson sampling"
    is not that of such a loop, and neither is its ceiling. State `poisson=True` only if each record was drawn
    independently in each step. A record in a microbatch of several moves the sum by up to twice the clipping norm:
    half the noise.
    """
    noise = noise_multiplier / 2 if used_microbatching else noise_multiplier
    if not 0 < batch_size <= number_of_examples or not num_epochs > 0:
        raise ValueError(
            f"tensorflow_privacy.mechanism: expected batch_size={batch_size} of at most "
            f"number_of_examples={number_of_examples}, and a positive num_epochs={num_epochs}."
        )
    if poisson:
        rate = batch_size / number_of_examples
        return {"noise_multiplier": noise, "steps": math.ceil(num_epochs / rate), "sampling": Poisson(rate)}
    epochs = math.ceil(num_epochs)
    steps = epochs * math.ceil(number_of_examples / batch_size)
    return {"noise_multiplier": noise, "steps": steps, "sampling": Shuffled(epochs)}
