"""The commands `bound`, `calibrate` and `kappa`."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from decimal import ROUND_CEILING, Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lostwax.cli.options import File, Number, WholeNumber
from lostwax.progress import progress

if TYPE_CHECKING:
    from lostwax import bounds

Sampling = Literal["poisson", "balls-in-bins", "shuffled", "fixed", "truncated", "cyclic", "full"]
Goal = Literal["record", "attribute", "membership", "mean-squared-error"]
PICTURES = (".png", ".svg", ".pdf")


@progress("bound")
def bound(
    noise_multiplier: Number = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: Number = None,
    log_baseline: Number = None,
    tolerance: float = 1e-4,
    goal: Goal = "record",
    records: int = 1,
    of: WholeNumber = None,
    prior: tuple[float, ...] = (),
    values: tuple[float, ...] = (),
    fpr: Number = None,
    sampling: Sampling = "poisson",
    epochs: WholeNumber = None,
    dataset_size: WholeNumber = None,
    batch_size: WholeNumber = None,
    epsilon: Number = None,
    delta: float = 0.0,
    json: bool = False,
    plot: File = None,
) -> None:
    """With this noise, or this epsilon, how often can any attack rebuild a record, or reach another goal?

    Args:
        noise_multiplier: Standard deviation of the noise on the sum of clipped gradients, over the clipping norm.
        sample_rate: Probability that a record is in a step's batch (poisson, truncated, cyclic).
        steps: Number of training steps, in all epochs together.
        baseline: Success of the best blind guess; `lostwax kappa` helps to choose it.
        log_baseline: Its natural logarithm, if it is too small for a float.
        tolerance: Target relative width of the certified interval.
        goal: What is at risk. An attribute needs --prior, a mean squared error --prior too.
        records: Number of records rebuilt at once (record).
        of: They are at least that many of this number of independent records.
        prior: Probabilities of the values (attribute), or standard deviations of Gaussian numbers (mean-squared-error).
        values: The numbers whose probabilities are in --prior (mean-squared-error).
        fpr: False-positive rate at which the true-positive rate is limited (membership); without it, the accuracy.
        sampling: How batches are drawn. A DataLoader with shuffle=True is shuffled, without it cyclic.
        epochs: Number of epochs (balls-in-bins, shuffled, cyclic).
        dataset_size: Number of records (fixed, truncated).
        batch_size: Number of records in a batch (fixed), or at most (truncated).
        epsilon: The epsilon of the privacy guarantee, if the noise is not known.
        delta: Its delta.
        json: Print JSON.
        plot: Also plot the ceiling against the noise, for several baselines, to this file, replacing it.
    """
    from lostwax.bounds import bound as compute

    aim = _goal("bound", goal, records, of, prior, values, fpr)
    if plot is not None:
        _check_plot(plot, aim, sampling, epsilon)
    ceiling = compute(
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        steps=steps,
        baseline=baseline,
        log_baseline=log_baseline,
        tolerance=tolerance,
        sampling=_value("bound", sampling, sample_rate, epochs, dataset_size, batch_size),
        goal=aim,
        epsilon=epsilon,
        delta=delta,
    )
    if json:
        print(_as_json({**asdict(ceiling), **ceiling.numbers()}))
    else:
        print(ceiling)
    if plot is not None:
        from lostwax.reports.figures import draw_ceilings

        baselines = sorted({0.5, 0.1, 0.01, float(f"{ceiling.baseline:.6g}")} - {0.0})
        draw_ceilings(plot, baselines=baselines, sample_rate=sample_rate, steps=steps, against="noise")
        print(f"wrote {plot}", file=sys.stderr)  # stdout may be JSON


def _check_plot(plot: Path, aim: bounds.Goal | None, sampling: Sampling, epsilon: float | None) -> None:
    """Raise unless the options are about what the plot shows, and it can be written."""
    if aim is not None:
        raise ValueError("bound: --plot shows the ceiling of one record. Leave out --records, --goal or --plot.")
    if sampling != "poisson":
        raise ValueError("bound: --plot shows the ceiling of Poisson sampling. Leave out --sampling or --plot.")
    if epsilon is not None:
        raise ValueError("bound: --plot shows the ceiling against the noise. Leave out --epsilon or --plot.")
    if plot.suffix not in PICTURES:
        raise ValueError(f"bound: expected the file of --plot to end in {', '.join(PICTURES)}, got {plot}.")
    if not plot.parent.is_dir():
        raise FileNotFoundError(f"bound: the folder of --plot {plot} does not exist. Create it first.")


@progress("calibrate")
def calibrate(
    max_success: float,
    baseline: Number = None,
    log_baseline: Number = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    delta: float = 1e-5,
    goal: Goal = "record",
    records: int = 1,
    of: WholeNumber = None,
    prior: tuple[float, ...] = (),
    fpr: Number = None,
    sampling: Sampling = "poisson",
    epochs: WholeNumber = None,
    dataset_size: WholeNumber = None,
    batch_size: WholeNumber = None,
    json: bool = False,
) -> None:
    """How much noise keeps every attack below this success rate?

    Args:
        max_success: The success rate that no attack may exceed.
        baseline: Success of the best blind guess; `lostwax kappa` helps to choose it.
        log_baseline: Its natural logarithm, if it is too small for a float.
        sample_rate: Probability that a record is in a step's batch (poisson, truncated, cyclic).
        steps: Number of training steps, in all epochs together.
        delta: The delta at which epsilon is reported.
        goal: What is at risk: no mean-squared-error here.
        records: Number of records rebuilt at once (record).
        of: They are at least that many of this number of independent records.
        prior: Probabilities of the values (attribute).
        fpr: False-positive rate at which the true-positive rate is limited (membership); without it, the accuracy.
        sampling: How batches are drawn. A DataLoader with shuffle=True is shuffled, without it cyclic.
        epochs: Number of epochs (balls-in-bins, shuffled, cyclic).
        dataset_size: Number of records (fixed, truncated).
        batch_size: Number of records in a batch (fixed), or at most (truncated).
        json: Print JSON.
    """
    from lostwax.bounds import calibrate as compute

    plan = compute(
        max_success=max_success,
        baseline=baseline,
        log_baseline=log_baseline,
        sample_rate=sample_rate,
        steps=steps,
        delta=delta,
        sampling=_value("calibrate", sampling, sample_rate, epochs, dataset_size, batch_size),
        goal=_goal("calibrate", goal, records, of, prior, (), fpr),
    )
    print(_as_json(asdict(plan)) if json else plan)


def _value(
    command: str,
    kind: Sampling,
    sample_rate: float,
    epochs: int | None,
    dataset_size: int | None,
    batch_size: int | None,
) -> bounds.Sampling | None:
    """The sampling that the options name; None if they name none."""
    from lostwax import bounds

    options = {"--epochs": epochs, "--dataset-size": dataset_size, "--batch-size": batch_size}
    sizes = ("--dataset-size", "--batch-size")
    needs: dict[str, tuple[str, ...]] = {"balls-in-bins": ("--epochs",), "shuffled": ("--epochs",)}
    needs |= {"fixed": sizes, "truncated": sizes, "cyclic": ("--epochs",) if epochs is not None else ()}
    for option, value in options.items():
        if (value is not None) != (option in needs.get(kind, ())):
            wanted = "needs" if value is None else "does not use"
            raise ValueError(f"{command}: --sampling {kind} {wanted} {option}.")
    makes: dict[str, Callable[..., bounds.Sampling]] = {
        "poisson": bounds.Poisson,
        "balls-in-bins": bounds.BallsInBins,
        "shuffled": bounds.Shuffled,
        "fixed": bounds.FixedSize,
        "truncated": partial(bounds.TruncatedPoisson, sample_rate),
        "cyclic": bounds.Cyclic,
        "full": bounds.FullBatch,
    }
    if kind == "poisson":
        return None
    return makes[kind](*(value for value in options.values() if value is not None))


def _goal(
    command: str,
    kind: Goal,
    records: int,
    of: int | None,
    prior: tuple[float, ...],
    values: tuple[float, ...],
    fpr: float | None,
) -> Any:
    """The goal that the options name; None for one record."""
    from lostwax import bounds

    options = {"--records": records != 1, "--of": of is not None, "--prior": bool(prior), "--values": bool(values)}
    options["--fpr"] = fpr is not None
    uses = {"record": ("--records", "--of"), "attribute": ("--prior",), "membership": ("--fpr",)}
    uses["mean-squared-error"] = ("--prior", "--values")
    for option, there in options.items():
        if there and option not in uses[kind]:
            raise ValueError(f"{command}: --goal {kind} does not use {option}.")
    if "--prior" in uses[kind] and not prior:
        raise ValueError(f"{command}: --goal {kind} needs --prior.")
    if values and len(values) != len(prior):
        raise ValueError(f"{command}: expected as many --values as --prior, got {len(values)} and {len(prior)}.")
    if kind == "record":
        return None if records == 1 and of is None else bounds.Records(records, of)
    if kind == "membership":
        return bounds.Membership(fpr)
    if kind == "attribute":
        return bounds.Attribute(prior)
    return bounds.MeanSquaredError(dict(zip(values, prior, strict=True)) if values else prior)


def _as_json(fields: dict[str, Any]) -> str:
    """JSON with infinity and NaN as strings, as in audit.json."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json_format.dumps(plain(fields), indent=1, allow_nan=False)


# lostwax kappa


def candidates(number: int) -> None:
    """The record is one of several equally likely candidates.

    Args:
        number: Number of candidates.
    """
    if number < 2:
        raise ValueError(f"kappa candidates: expected number >= 2, got {number}.")
    _show(-math.log(number))


def ball(eta: float, dimension: int) -> None:
    """The record is uniform in the unit ball.

    Args:
        eta: A guess within this distance counts as rebuilt.
        dimension: Number of features.
    """
    from lostwax.bounds import log_kappa_ball

    _show(log_kappa_ball(eta, dimension))


def gaussian(eta: float, sigma: float, dimension: int) -> None:
    """The record is Gaussian with independent features.

    Args:
        eta: A guess within this distance counts as rebuilt.
        sigma: Standard deviation of each feature.
        dimension: Number of features.
    """
    from lostwax.bounds import log_kappa_gaussian

    _show(log_kappa_gaussian(eta, sigma, dimension))


def pixels(dimension: int, tolerance: float, fraction: float) -> None:
    """The record is an image of independent pixels, uniform in [0, 1].

    Args:
        dimension: Number of pixels.
        tolerance: A pixel within this distance counts as correct.
        fraction: This share of correct pixels counts as rebuilt.
    """
    from lostwax.bounds import log_kappa_pixels

    _show(log_kappa_pixels(dimension, tolerance, fraction))


def sample(path: Path, eta: float, confidence: float = 0.95) -> None:
    """An upper limit estimated from your own records.

    Args:
        path: A .npy file with one row per record.
        eta: A guess with at most this root mean squared error counts as rebuilt.
        confidence: Confidence level of the limit.
    """
    import numpy as np

    from lostwax.bounds import kappa_from_samples

    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"kappa sample: {path} is not an array. Write it with numpy.save.") from error
    if rows.ndim < 2:
        raise ValueError(f"kappa sample: expected one row per record in {path}, got shape {rows.shape}.")

    def distance(samples: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt(np.mean((samples - centre) ** 2, 1)))

    _show(math.log(kappa_from_samples(rows.reshape(len(rows), -1).astype(float), distance, eta, confidence)))


def _show(log_kappa: float) -> None:
    if log_kappa > -700:
        kappa = _rounded_up(math.exp(log_kappa))
        if float(kappa) >= 1:
            raise ValueError("kappa: a blind guess always succeeds, or nearly always, so no bound can help. Lower eta.")
        print(f"baseline {kappa} (lostwax bound --baseline {kappa} ...)")
    else:
        shown = f"{math.ceil(log_kappa * 1e6) / 1e6:.6f}"
        print(f"log baseline {shown} (lostwax bound --log-baseline {shown} ...)")


def _rounded_up(value: float) -> str:
    """Six digits, rounded up (to 1e-12): with a baseline that is too small, the ceiling would not hold."""
    if float(f"{value:.6g}") >= value * (1 - 1e-12):
        return f"{value:.6g}"
    return f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(value):g}"
