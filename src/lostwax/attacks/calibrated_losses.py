"""Was this record trained on? Its loss, beside that of reference models trained with and without it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lostwax.access import answers
from lostwax.fields import at_least, check_fields
from lostwax.games import AttackFacts, Guess, Hints, Knowledge, Loss, Reconstructor, Records, Release
from lostwax.games.protocols import accepted
from lostwax.learning.candidates import (
    candidates_in,
    choose,
    distinct,
    no_candidates,
    scored_once,
    side_by_side,
    weighed,
)
from lostwax.learning.costs import DOUBLE, Cost, Rate, classes, in_training
from lostwax.learning.shadow_tables import adversary_seed
from lostwax.losses import CrossEntropy, MultiLabel, SquaredError
from lostwax.progress import progress
from lostwax.shadows import models_of

CLIP = 3.0  # robust deviations, beyond which a reference model counts as this far
TO_DEVIATION = 1.4826  # of the median distance from the median, for a Gaussian
SURE = 1e-3  # by which probabilities may miss a sum of 1
SMALLEST_LOSS = 1e-16  # that double precision tells from 0
LEAST_SHIFT = 0.1  # of the mean shift: a record that is trained on never looks less like one
TABLES = 4  # of what is seen of reference models and victims
MIN_MODELS_PER_RECORD = 16  # trained with it, and as many without it, for a variance of each
FOLDS = 8  # of the reference models, whose members are known
LARGEST_RATIO = 50.0  # of likelihoods, as a logarithm


@dataclass(frozen=True)
class CalibratedLosses:
    """Answer the candidate whose loss is lowest for a record that was not trained on (LiRA, Carlini et al. 2022).

    One set of reference models serves all games: each trains on a training set that the threat deals from the
    candidates. On the scale log(p / (1 - p)) the loss of a record is a Gaussian, with a mean and a variance from the
    models without it, and shifted in models with it. A record is in few reference models, so its shift is that of
    records with a similar loss, and only as far as its own models are precise, its own. Means and variances are robust:
    one reference model that diverged changes little. With enough reference models per record, this score is combined
    with LiRA's, which uses per-record variances (`membership_scores`).

    Nothing but the loss of each candidate is seen. `probes` are the row numbers (`Records.features`) at which the last
    part of the release of a refitted estimator shows outputs.
    """

    models: int = 64
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, models=at_least(8))

    def objection(self, knowledge: Knowledge) -> str | None:
        access = knowledge.facts.access
        if (reason := no_candidates(knowledge)) is not None or access.all_weights or access.answers or self.probes:
            return reason
        return (
            f"it takes the loss of each candidate, and {knowledge.access!r} shows neither the whole net nor its "
            "answers. Use access=lw.access.Weights()."
        )

    def facts(self) -> AttackFacts:
        """Of attacks on candidates the one that trains least."""
        return AttackFacts(strength=75, names_candidates=True)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """The reference models, whatever the number of games; answers to and losses of all candidates."""
        candidates = games * (knowledge.facts.given.candidates or knowledge.facts.secrets)
        candidates = min(candidates, games + len(knowledge.prior))  # each once
        losses = float(DOUBLE * TABLES * (self.models + games) * candidates)
        answers = float(3 * DOUBLE * games * candidates * classes(knowledge))
        return Cost(self.models * rate.training, losses + max(answers, in_training(rate)))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        knowledge = accepted(self, knowledge)

        def choose_by_loss(release: Release, hints: Hints | None = None) -> Guess:
            score = partial(self.scores, knowledge, release, seed=seed)
            return choose(hints, weighed(hints, scored_once(candidates_in(hints), score)))

        return choose_by_loss

    def scores(self, knowledge: Knowledge, release: Release, records: Records, *, seed: int) -> Tensor:
        """(m, n) for each model of a release and each record: log p(loss | trained on) - log p(loss | not)."""
        own_seed = adversary_seed(seed, "reference models")
        chunks = models_of(knowledge, knowledge.threat, records, models=self.models, seed=own_seed)
        seen, member = [], []
        with progress("reference models", self.models) as advance:
            for cohort, reference in chunks:
                seen.append(self.seen(knowledge, reference, records))
                rows = _rows(cohort.own, records)  # (chunk, k)
                member.append(torch.zeros(len(cohort), len(records), dtype=torch.bool).scatter_(1, rows, True))
                advance(len(cohort))
        return membership_scores(torch.cat(seen), torch.cat(member), self.seen(knowledge, release, records))

    def seen(self, knowledge: Knowledge, release: Release, records: Records) -> Tensor:
        """(m, n) the loss of each record, on the scale of `log_odds`, in double precision on the CPU."""
        if self.probes and records.features is not None:
            shown = list(release.params.values())[-1].view(len(release), len(self.probes), -1)
            place = torch.searchsorted(torch.tensor(self.probes), records.features[:, 0].long())
            outputs = shown[:, place.to(shown.device)]
        else:
            outputs = answers(knowledge.net, release, records.inputs)
        losses = record_losses(knowledge.facts.trainer.loss, outputs.double(), records.y.to(outputs.device))
        return log_odds(losses).cpu()


def record_losses(stated: Loss | None, outputs: Tensor, y: Tensor) -> Tensor:
    """(m, n) the loss of each record that the trainer states; else the usual one for such labels."""
    loss: Loss = SquaredError()
    if stated is not None:
        loss = stated
    elif not y.is_floating_point() and outputs.shape[-1] > 1:
        if int(y.max()) >= outputs.shape[-1]:
            raise ValueError(f"labels go to {int(y.max())}, and the net has {outputs.shape[-1]} outputs.")
        loss, sums = CrossEntropy(), outputs.sum(-1)
        if bool((outputs >= 0).all() & ((sums - 1).abs() < SURE).all()):  # the net ends with a softmax
            outputs = outputs.clamp_min(SMALLEST_LOSS).log()
    elif bool(((y == 0) | (y == 1)).all()):
        loss = MultiLabel()
    return loss(outputs, y.expand(len(outputs), *y.shape))


def log_odds(losses: Tensor) -> Tensor:
    """log(p / (1 - p)) for a loss -log p; of other losses, -log of a small one and minus a large one."""
    if bool((losses < 0).any()):  # a likelihood without its constant
        return -losses
    losses = losses.clamp_min(SMALLEST_LOSS)
    return -losses - (-torch.expm1(-losses)).log()


def membership_scores(reference: Tensor, member: Tensor, seen: Tensor) -> Tensor:
    """(m, r) how much each record looks trained on, by reference models (s, r) and what `member` says of each.

    With few models per record: the ratio of `calibrated`. With more: a weighted sum of that and of `lira`. A logistic
    regression on held-out reference models, whose members are known, gives the weights; it sees no victim.
    """
    finite = reference.isfinite().all(1)
    reference, member = reference[finite], member[finite]
    models = member.sum(0)
    if len(member) == 0 or min(models.min(), len(member) - models.max()) < MIN_MODELS_PER_RECORD:
        return calibrated(reference, member, seen)
    from sklearn.linear_model import LogisticRegression

    held_out = torch.arange(len(reference)) % FOLDS
    folds = [held_out == fold for fold in range(FOLDS)]  # one may hold all models with a record: its ratio is NaN
    ratios = torch.cat([_ratios(reference[~fold], member[~fold], reference[fold]) for fold in folds]).nan_to_num(0.0)
    members = torch.cat([member[fold] for fold in folds])
    regression = LogisticRegression(class_weight="balanced").fit(ratios.flatten(0, 1), members.flatten())
    weights = torch.from_numpy(regression.coef_[0]).clamp_min(0)
    return _ratios(reference, member, seen) @ weights


def _ratios(reference: Tensor, member: Tensor, seen: Tensor) -> Tensor:
    """(m, r, 2) both logarithms of likelihood ratios, the large ones compressed: sign(x) log(1 + |x|)."""
    first, second = calibrated(reference, member, seen), lira(reference, member, seen)
    both = torch.stack([first, torch.where(second.isnan(), first, second)], -1)  # NaN: of an infinite loss, for example
    both = both.clamp(-LARGEST_RATIO, LARGEST_RATIO)
    return both.sign() * both.abs().log1p()


def lira(reference: Tensor, member: Tensor, seen: Tensor) -> Tensor:
    """(m, r) log p(seen | trained on) - log p(seen | not), by per-record Gaussians (Carlini et al. 2022)."""

    def log_density(models: Tensor) -> Tensor:
        some = torch.where(models, reference, torch.nan)
        mean = some.nanmean(0)
        variance = (some - mean).square().nanmean(0) + torch.finfo(torch.float32).eps
        return -(seen - mean).square() / (2 * variance) - variance.log() / 2

    return log_density(member) - log_density(~member)


def calibrated(reference: Tensor, member: Tensor, seen: Tensor) -> Tensor:
    """(m, r) log p(seen | trained on) - log p(seen | not), by reference models (s, r) and what `member` says of each.

    With x = (seen - mean) / deviation of the models without the record, and d the shift of those with it, in the same
    units: d x - d^2 / 2. NaN where nothing can be compared: models diverged, or a record is in all of them or none is.
    """
    finite = reference.isfinite().all(1)
    reference, member = reference[finite], member[finite]
    if not member.any() or member.all(0).any() or len(reference) < 4:
        return torch.full_like(seen, torch.nan)
    mean, deviation = _without(reference, member)
    units = (reference - mean) / deviation  # (s, r)
    middle = units[member].median()
    far = CLIP * TO_DEVIATION * (units[member] - middle).abs().median()
    inside = units.clamp(middle - far, middle + far)
    models = member.sum(0).double()  # (r,)
    shift = torch.where(member, inside, 0.0).sum(0) / models.clamp_min(1)
    usual = _smooth(mean, shift, models)
    doubt = 1 / models.clamp_min(1) + 1 / (len(reference) - models)  # the variance of a shift
    differs = ((shift - usual).square() - doubt)[models > 0].mean().clamp_min(0)
    weight = torch.where(models > 0, differs / (differs + doubt), 0.0)
    least = LEAST_SHIFT * ((shift * models).sum() / models.sum()).clamp_min(0)
    d = torch.maximum(usual + weight * (shift - usual), least)
    return d * (seen - mean) / deviation - d.square() / 2


def _without(reference: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """(r,) mean and deviation of the models that were not trained on each record, without outliers.

    Half of each log variance is that of records with a similar mean.
    """
    outside = torch.where(member, torch.nan, reference)
    middle = outside.nanmedian(0).values
    distance = (outside - middle).abs()
    rounding = torch.finfo(torch.float32).eps * (1 + middle.abs())
    robust = TO_DEVIATION * distance.nanmedian(0).values
    robust = torch.where(robust > rounding, robust, distance.nan_to_num().sum(0) / (~member).sum(0)) + rounding
    inside = torch.where(member, torch.nan, reference.clamp(middle - CLIP * robust, middle + CLIP * robust))
    mean = inside.nanmean(0)
    squares = (inside - mean).square().nanmean(0) + rounding.square()
    log_variance = squares.log()
    usual = _smooth(mean, log_variance, torch.ones_like(mean))
    return mean, ((log_variance + usual) / 4).exp()


def _smooth(mean: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """(r,) a quadratic in the mean, fitted to the values with these weights; ridge 1 keeps it near their average."""
    z = (mean - mean.median()) / (mean.std(correction=0) + torch.finfo(mean.dtype).tiny)
    basis, share = torch.stack([z, z.square()], 1), weights / weights.sum()
    centred, average = basis - share @ basis, share @ values
    gram = centred.mT @ (weights.unsqueeze(1) * centred) + torch.eye(2, dtype=mean.dtype)
    slopes = torch.linalg.solve(gram, centred.mT @ (weights * (values - average)))
    fitted: Tensor = average + centred @ slopes
    return fitted


def _rows(own: Records, records: Records) -> Tensor:
    """(m, k) the row of each training set's own records among the records, labels included."""
    both = Records.together([records, side_by_side(own)])
    rows, number = distinct(both)
    place = torch.full((len(rows),), -1)
    place[number[: len(records)]] = torch.arange(len(records))
    return place[number[len(records) :]].view(own.x.shape[:2])
