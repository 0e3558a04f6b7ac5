"""The commands `bound` and `calibrate`."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from lostwax.cli.audits import Number, WholeNumber
from lostwax.progress import progress

if TYPE_CHECKING:
    from lostwax import bounds

Sampling = Literal["poisson", "balls-in-bins", "shuffled", "fixed", "truncated", "cyclic", "full"]
Goal = Literal["record", "attribute", "membership", "mean-squared-error"]


@dataclass(frozen=True)
class BatchOptions:
    """How a record gets into the steps of training."""

    sample_rate: float = 1.0
    """Probability that a record is in a step's batch (poisson, truncated, cyclic)."""
    steps: int = 1
    """Number of training steps, in all epochs together."""
    sampling: Sampling = "poisson"
    """How batches are drawn. A DataLoader with shuffle=True is shuffled, without it cyclic."""
    epochs: WholeNumber = None
    """Number of epochs (balls-in-bins, shuffled, cyclic)."""
    dataset_size: WholeNumber = None
    """Number of records (fixed, truncated)."""
    batch_size: WholeNumber = None
    """Number of records in a batch (fixed), or at most (truncated)."""

    def value(self, command: str) -> bounds.Sampling | None:
        """The sampling that the options name; None if they name none."""
        from lostwax import bounds

        options = {"--epochs": self.epochs, "--dataset-size": self.dataset_size, "--batch-size": self.batch_size}
        sizes = ("--dataset-size", "--batch-size")
        needs: dict[str, tuple[str, ...]] = {"balls-in-bins": ("--epochs",), "shuffled": ("--epochs",)}
        needs |= {"fixed": sizes, "truncated": sizes, "cyclic": ("--epochs",) if self.epochs is not None else ()}
        for option, value in options.items():
            if (value is not None) != (option in needs.get(self.sampling, ())):
                wanted = "needs" if value is None else "does not use"
                raise ValueError(f"{command}: --sampling {self.sampling} {wanted} {option}.")
        if self.sampling == "poisson":
            return None
        samplings: dict[str, Callable[..., bounds.Sampling]] = {
            "balls-in-bins": bounds.BallsInBins,
            "shuffled": bounds.Shuffled,
            "fixed": bounds.FixedSize,
            "truncated": partial(bounds.TruncatedPoisson, self.sample_rate),
            "cyclic": bounds.Cyclic,
            "full": bounds.FullBatch,
        }
        return samplings[self.sampling](*(value for value in options.values() if value is not None))


@dataclass(frozen=True)
class ReleaseOptions:
    """What is seen of training: the weights after every step, or the last ones alone, where losses are convex."""

    last_weights: bool = False
    """Only the last weights are released. Needs --lr and --smoothness."""
    lr: Number = None
    """Learning rate, the same in all steps, without momentum."""
    smoothness: Number = None
    """Largest curvature of any batch's loss in the weights."""
    convexity: Number = None
    """Least curvature: the weight decay, if the loss is convex."""
    diameter: Number = None
    """Of the set that weights are projected onto after each step. Needs --sensitivity."""
    sensitivity: Number = None
    """Length by which one record moves the gradient of a step."""

    def value(self, command: str) -> bounds.LastWeights | None:
        """What the options say; None if they say nothing."""
        from lostwax import bounds

        options = {name: value for name, value in asdict(self).items() if name != "last_weights" and value is not None}
        if not self.last_weights:
            if options:
                raise ValueError(
                    f"{command}: --{next(iter(options))} is about --last-weights. Add it, or leave it out."
                )
            return None
        if self.lr is None or self.smoothness is None:
            raise ValueError(f"{command}: --last-weights needs --lr and --smoothness.")
        return bounds.LastWeights(**options)


@dataclass(frozen=True)
class GoalOptions:
    """What is at risk."""

    goal: Goal = "record"
    """What is at risk. An attribute needs --prior, a mean squared error (of bound alone) --prior too."""
    records: int = 1
    """Number of records rebuilt at once (record)."""
    of: WholeNumber = None
    """They are at least that many of this number of independent records."""
    prior: tuple[float, ...] = ()
    """Probabilities of the values (attribute), or standard deviations of Gaussian numbers (mean-squared-error)."""
    fpr: Number = None
    """False-positive rate at which the true-positive rate is limited (membership); without it, the accuracy."""

    def value(self, command: str, values: tuple[float, ...] = ()) -> Any:
        """The goal that the options name; None for one record."""
        from lostwax import bounds

        uses = {"record": ("--records", "--of"), "attribute": ("--prior",), "membership": ("--fpr",)}
        uses["mean-squared-error"] = ("--prior", "--values")
        set_options = {"--records": self.records != 1, "--of": self.of is not None, "--prior": bool(self.prior)}
        set_options |= {"--values": bool(values), "--fpr": self.fpr is not None}
        for option, is_set in set_options.items():
            if is_set and option not in uses[self.goal]:
                raise ValueError(f"{command}: --goal {self.goal} does not use {option}.")
        if "--prior" in uses[self.goal] and not self.prior:
            raise ValueError(f"{command}: --goal {self.goal} needs --prior.")
        if values and len(values) != len(self.prior):
            lengths = f"{len(values)} and {len(self.prior)}"
            raise ValueError(f"{command}: expected as many --values as --prior, got {lengths}.")
        if self.goal == "record":
            return None if self.records == 1 and self.of is None else bounds.Records(self.records, self.of)
        if self.goal == "membership":
            return bounds.Membership(self.fpr)
        if self.goal == "attribute":
            return bounds.Attribute(self.prior)
        return bounds.MeanSquaredError(dict(zip(values, self.prior, strict=True)) if values else self.prior)


ONE_RECORD, POISSON, ALL_STEPS = GoalOptions(), BatchOptions(), ReleaseOptions()


@progress("bound")
def bound(
    noise_multiplier: Number = None,
    baseline: Number = None,
    log_baseline: Number = None,
    tolerance: float = 1e-4,
    batches: Annotated[BatchOptions, arg(name="")] = POISSON,
    aim: Annotated[GoalOptions, arg(name="")] = ONE_RECORD,
    seen: Annotated[ReleaseOptions, arg(name="")] = ALL_STEPS,
    values: tuple[float, ...] = (),
    epsilon: Number = None,
    delta: float = 0.0,
    json: bool = False,
) -> None:
    """With this noise, or this epsilon, how often can any attack rebuild a record, or reach another goal?

    Args:
        noise_multiplier: Standard deviation of the noise on the sum of clipped gradients, over the clipping norm.
        baseline: Success of the best blind guess.
        log_baseline: Its natural logarithm, if it is too small for a float.
        tolerance: Target relative width of the certified interval.
        values: The numbers whose probabilities are in --prior (mean-squared-error).
        epsilon: The epsilon of the privacy guarantee, if the noise is not known.
        delta: Its delta.
        json: Print JSON.
    """
    from lostwax.bounds import bound as compute

    ceiling = compute(
        noise_multiplier=noise_multiplier,
        sample_rate=batches.sample_rate,
        steps=batches.steps,
        baseline=baseline,
        log_baseline=log_baseline,
        tolerance=tolerance,
        sampling=batches.value("bound"),
        goal=aim.value("bound", values),
        epsilon=epsilon,
        delta=delta,
        released=seen.value("bound"),
    )
    print(_as_json({**asdict(ceiling), **ceiling.numbers()}) if json else ceiling)


@progress("calibrate")
def calibrate(
    max_success: float,
    baseline: Number = None,
    log_baseline: Number = None,
    batches: Annotated[BatchOptions, arg(name="")] = POISSON,
    delta: float = 1e-5,
    aim: Annotated[GoalOptions, arg(name="")] = ONE_RECORD,
    seen: Annotated[ReleaseOptions, arg(name="")] = ALL_STEPS,
    json: bool = False,
) -> None:
    """How much noise keeps every attack below this success rate?

    Args:
        max_success: The success rate that no attack may exceed.
        baseline: Success of the best blind guess.
        log_baseline: Its natural logarithm, if it is too small for a float.
        delta: The delta at which epsilon is reported.
        json: Print JSON.
    """
    from lostwax.bounds import calibrate as compute

    plan = compute(
        max_success=max_success,
        baseline=baseline,
        log_baseline=log_baseline,
        sample_rate=batches.sample_rate,
        steps=batches.steps,
        delta=delta,
        sampling=batches.value("calibrate"),
        goal=aim.value("calibrate"),
        released=seen.value("calibrate"),
    )
    print(_as_json(asdict(plan)) if json else plan)


def _as_json(fields: dict[str, Any]) -> str:
    """JSON with infinity and NaN as strings, as in audit.json."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json_format.dumps(plain(fields), indent=1, allow_nan=False)
