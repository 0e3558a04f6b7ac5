"""The gradient-based attack of S3: a record rebuilt from the published steps of DP-SGD, prior or no prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lostwax.attacks.gradient.inversion import Inversion
from lostwax.attacks.gradient.normal_law import NormalLaw
from lostwax.attacks.gradient.search import Anywhere, Likeliest, Search
from lostwax.attacks.published_steps import PublishedSteps, no_steps
from lostwax.threats import Informed
from lostwax.trainers import DPSGD
from lostwax.types import Knowledge
from lostwax.types.fields import above, at_least, check_fields


@dataclass(frozen=True, kw_only=True)
class GradientInversion:
    """Look for the record whose clipped gradients explain what the known records left unexplained.

    With a `prior`, the likeliest record under DP-SGD's noise and a normal law, with the mean of its class and the
    covariance within classes of the records at hand: in units of the clipping norm, the least

        sum_t |c_t g_t(z) - gbar_t|^2 / 2 sigma^2 - ln p(z),  c_t = 1 / mean of max(C, |g_t|),

    where the mean is over records of the law for the first fifth of the iterations, and then over records around z, so
    far from it as the steps leave open. By |g_t(z)| alone, c_t g_t(z) is of length 1 for all z, and nothing would keep
    the prior from shrinking it. Where the secret is in a step by chance (`sample_rate` q < 1), each step counts
    -ln(1 - q + q exp((|gbar_t|^2 - |c_t g_t(z) - gbar_t|^2) / 2 sigma^2)) instead. Without a prior, as S3 has it
    (Eq. 1), for q = 1 alone: within the range of the data, the least
    sum_t -<clip(g_t(z)), gbar_t> + |clip(g_t(z)) - gbar_t|_1.

    From random starts, `restarts` of them, by Adam, each of the `iterations` on some of the steps; the start that ends
    with the least sum over all steps is answered. Where the label is not told (`Informed(known, label_known=True)`),
    every label is tried, and they race: the confidence is the lead over the next label. Where it is told, the
    confidence is the lead over no record at all, which tells little of the error.
    """

    iterations: int = 1_000
    lr: float = 0.05
    restarts: int = 3
    steps_at_a_time: int = 20
    prior: bool = True

    def __post_init__(self) -> None:
        check_fields(self, iterations=at_least(1), lr=above(0), restarts=at_least(1), steps_at_a_time=at_least(1))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        refusal = "GradientInversion cannot play this game: "
        if (objection := no_steps(self, knowledge)) is not None:
            return objection
        if isinstance(knowledge.threat, Informed) and knowledge.threat.parts is not None:
            return refusal + "it looks for the whole record, and makes no use of the parts that are known. Use RecoNN."
        if knowledge.prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        if knowledge.prior.y.is_floating_point():
            return refusal + "it tries every label, and these are numbers without end. Use RecoNN."
        if not self.prior and isinstance(knowledge.trainer, DPSGD) and knowledge.trainer.sample_rate < 1:
            return refusal + (
                "without a prior it is S3's Eq. 1, which takes the secret to be in every step, but with "
                f"sample_rate={knowledge.trainer.sample_rate:g} it is in some. Use GradientInversion(prior=True)."
            )
        return None

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inversion:
        """Nothing can be computed before the steps are known. The seed draws starts and steps."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        steps, prior = PublishedSteps.of(knowledge), knowledge.prior
        x = torch.cat([steps.known.x, prior.x.to(steps.known.x)])  # all records at hand
        y = torch.cat([steps.known.y, prior.y.to(steps.known.y)])
        low, high = float(x.min()), float(x.max())
        search: Search = Anywhere(x[0], low, high)
        if self.prior:
            search = Likeliest(
                NormalLaw.of(x, y), x[0], low, high, steps.trainer.noise_multiplier, steps.trainer.sample_rate
            )
        return Inversion(
            steps, search, torch.unique(y), self.iterations, self.lr, self.restarts, self.steps_at_a_time, seed
        )

    @classmethod
    def examples(cls) -> tuple[GradientInversion, ...]:
        """Instances to test."""
        return tuple(cls(iterations=5, restarts=2, steps_at_a_time=2, prior=prior) for prior in (False, True))
