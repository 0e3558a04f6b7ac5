"""Rebuild a record from any model, with a network trained on shadow models (Balle et al. 2022, section IV)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields, expect, redacted
from lostwax.games import Access, AttackFacts, Guess, Hints, Knowledge, Records, Release
from lostwax.games.facts import stated
from lostwax.games.protocols import accepted
from lostwax.learning.costs import Cost, Rate
from lostwax.learning.decoders import Committee, Decoder, MLPDecoder, RowReading, Span
from lostwax.learning.shadow_tables import (
    MIN_SHADOWS,
    Shadowed,
    ShadowTable,
    adversary_seed,
    features_seen,
    notes_on,
    seen_and_given,
    shadow_cost,
    shadow_tables,
    with_given,
)
from lostwax.learning.standardise import SeenRows, Standardise, rows_objection
from lostwax.learning.training import (
    RANGES,
    UNKNOWN_ERRORS,
    Best,
    Calibration,
    ErrorLine,
    Examples,
    SavedFolder,
    Term,
    TermFacts,
    answer,
    check_same,
    errors,
    fit,
    part,
    resume,
    state_of,
    torch_seed,
    unlearnable,
)
from lostwax.progress import progress
from lostwax.shadows import Checkpoints
from lostwax.shadows.checkpoints import KeptState, keeper
from lostwax.shadows.identity import describe

__all__ = ["RecoNN", "Trained"]


LABEL_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of a label head: times |W|^2 / 2, added to a mean loss
LABEL_ITERATIONS = 100  # of L-BFGS, to fit a label head


class LabelHead(nn.Module):
    """A linear layer that reads labels like y, (n,) or (n, targets), off standardised models (m, features).

    Classes by softmax regression, numbers by least squares. It shares no weight with the decoder.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int, y: Tensor) -> None:
        super().__init__()
        self.numbers = y.is_floating_point()
        self.linear = nn.Linear(features, y[0].numel() if self.numbers else int(y.max()) + 1)
        if self.numbers:
            deviation = y.std(0, correction=0)
            self.register_buffer("mean", y.mean(0))  # () or (targets,)
            self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1.0))

    def loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, or the mean squared error of standardised labels."""
        answers: Tensor = self.linear(features)
        if not self.numbers:
            return nn.functional.cross_entropy(answers, y.long())
        return nn.functional.mse_loss(answers.view_as(y), ((y - self.mean) / self.deviation).to(features))

    def guess(self, features: Tensor) -> Tensor:
        """(m,), or (m, targets): the likeliest class, or the expected numbers."""
        answers: Tensor = self.linear(features)
        if not self.numbers:
            return answers.argmax(1)
        return self.mean + self.deviation * answers.reshape(len(features), *self.mean.shape)


def solve(head: LabelHead, features: Tensor, y: Tensor, unseen: Tensor, unseen_y: Tensor) -> None:
    """Fit the head in place with the ridge that is best on unseen models; keep the initial weights if none improves."""

    @torch.no_grad()
    def validate() -> float:
        return float(head.loss(unseen, unseen_y))

    best = Best(head, validate)
    for ridge in LABEL_RIDGES:
        _minimise(head, features, y, ridge)
        best.update()
    best.restore()


def _minimise(head: LabelHead, features: Tensor, y: Tensor, ridge: float) -> None:
    nn.init.zeros_(head.linear.weight)
    nn.init.zeros_(head.linear.bias)
    optimiser: torch.optim.Optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=LABEL_ITERATIONS, line_search_fn="strong_wolfe"
    )

    def objective() -> float:
        optimiser.zero_grad()
        loss = head.loss(features, y) + ridge / 2 * head.linear.weight.square().sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    optimiser.step(objective)


class Trained(NamedTuple):
    """A prepared RecoNN.

    Confidence is minus the predicted mean squared error, in the coordinates of `Span`. The held-out shadow models
    behind it and `validation_error` also chose when to stop, so both are slightly optimistic.
    """

    net: nn.Module
    access: Access
    standardise: Standardise
    decoder: Committee
    label: LabelHead
    span: Span
    error_line: ErrorLine
    validation_error: float  # mean squared error on held-out shadow models, in the same coordinates
    attack: RecoNN
    notes: tuple[str, ...] = ()  # about its shadow models

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret. Labels and numbers that the hints give are returned unchanged."""
        seen = seen_and_given(self.access(self.net, release), hints)  # (m, features)
        home, ours = seen.device, self.span.shift
        features = self.standardise(seen.to(ours.device), ours.dtype)  # (m, kept)
        x = self.span.records(answer(self.decoder, features)).unsqueeze(1)  # (m, 1, ...)
        with torch.no_grad():
            y = self.label.guess(features).unsqueeze(1)  # (m, 1)
        if hints is not None and hints.labels is not None:
            y = hints.labels
        x = with_given(x, hints)
        return Guess(Records(x.to(home), y.to(home)), -self.error_line(features).unsqueeze(1).to(home))

    def examples(self, table: ShadowTable) -> Examples:
        """Shadow models as the decoder sees them, and their records in its coordinates."""
        features = self.standardise(table.seen, self.span.shift.dtype)
        return Examples(features, self.span.shares(table.records.x), table.records.y, table.target_mask)

    def with_errors(self, features: Tensor, errors: Tensor) -> Trained:
        """With a fit to its errors (v,) on held-out models (v, features)."""
        return self._replace(error_line=ErrorLine.fit(features, errors), validation_error=float(errors.mean()))

    def save(self, folder: str | Path) -> Path:
        """Write tensors (safetensors) and settings (JSON) into `folder`, for `RecoNN.load`."""
        tensors = {f"decoder.{name}": value for name, value in self.decoder.state_dict().items()}
        tensors |= {f"label.{name}": value for name, value in self.label.state_dict().items()}
        words = {"attack": redacted(repr(self.attack)), **self.attack._identity(self.access)}
        calibration = Calibration(self.standardise, self.span, self.error_line, self.validation_error)
        return SavedFolder.of(words, tensors, calibration, scale="standardise").write(folder)


def train(
    committee: Committee, shadows: Examples, unseen: Examples, attack: RecoNN, keeping: Checkpoints | None, *, seed: int
) -> Tensor:
    """Fit every member to the shadows, with its own draws; return the errors of their mean on unseen ones (v,)."""
    words = None if keeping is None else _words(committee, shadows, unseen, attack, seed)
    with progress("decoder epochs", attack.epochs * len(committee.members)) as advance:
        for number, member in enumerate(committee.members):
            state = keeping.state({**words, "member": str(number)}) if keeping is not None and words else None
            with torch_seed(adversary_seed(seed, f"decoder {number}"), shadows.features.device):
                epochs = _train_member(member, shadows, unseen, attack, state, advance)
            advance(attack.epochs - epochs)  # skipped
    return errors(committee, unseen)


def _words(
    committee: Committee, shadows: Examples, unseen: Examples, attack: RecoNN, seed: int
) -> dict[str, str] | None:
    """All that determines a training; None if no stable words do, or a term of the loss learns too."""
    if any(stated(term, TermFacts()).learns for term in attack.terms):
        return None
    settings = replace(attack, store=None, device=None, augment=None, engine=None)
    try:
        return describe("decoder", (settings, seed, dict(committee.state_dict()), shadows, unseen))
    except ValueError:
        return None


SECONDS = 60  # between two states that are kept, at least


def _train_member(
    decoder: nn.Module,
    shadows: Examples,
    unseen: Examples,
    attack: RecoNN,
    kept: KeptState | None,
    advance: Callable[[int], None],
) -> int:
    """Fit one decoder, and keep the weights with the least error on unseen models; how many epochs were needed.

    AdamW on a one-cycle schedule replaces the RMSProp of Balle et al. (2022), which overfits. The error is that of
    pixels whatever the loss: attacks are scored by it, and a discriminator changes while it learns. What is `kept` of
    an earlier run is taken up, its draws too.
    """
    features, truth = shadows.features, shadows.answers
    batches = -(-len(features) // attack.batch_size)  # per epoch, rounded up
    optimiser = torch.optim.AdamW(
        decoder.parameters(), lr=attack.lr, weight_decay=attack.weight_decay, fused=features.is_cuda
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, attack.lr, total_steps=attack.epochs * batches)
    criteria = [term.begin(truth) for term in attack.terms]
    best = Best(decoder, lambda: float(errors(decoder, unseen).mean()))
    done, written = 0, time.perf_counter()

    def save() -> None:
        """All that the next epoch depends on."""
        nonlocal written
        if kept is not None:
            group, written = optimiser.param_groups[0], time.perf_counter()
            numbers = [done, best.legs_since, best.error, group["lr"], *group["betas"]]
            draws = {"draws": torch.get_rng_state()}
            draws |= {"draws on the GPU": torch.cuda.get_rng_state(features.device)} if features.is_cuda else {}
            tensors = {**state_of(decoder, optimiser, best), **draws}
            kept.write({**tensors, "numbers": torch.tensor(numbers, dtype=torch.float64)})

    if kept is not None and (tensors := kept.read(str(features.device))) is not None:
        epochs_done, legs_since, best.error, lr, *betas = tensors["numbers"].tolist()
        done, best.legs_since = int(epochs_done), int(legs_since)
        resume(decoder, optimiser, best, tensors)
        optimiser.param_groups[0].update(lr=lr, betas=tuple(betas))
        schedule.last_epoch = done * batches  # in steps
        torch.set_rng_state(tensors["draws"].cpu())
        if features.is_cuda:
            torch.cuda.set_rng_state(tensors["draws on the GPU"].cpu(), features.device)
        advance(done)

    def epoch_losses() -> Iterator[Tensor]:
        order = torch.randperm(len(features), device=features.device)
        for rows in torch.tensor_split(order, batches):  # of even size: a small last batch would add noise
            wanted = truth[rows]  # (b, ...)
            answers = torch.where(shadows.target_mask, decoder(features[rows]), wanted)
            wrong = answers - wanted
            loss = attack.mae * wrong.abs().mean() + attack.mse * wrong.square().mean()
            yield sum((criterion(answers, wanted) for criterion in criteria), start=loss)
            schedule.step()
        advance(1)

    def epochs() -> Iterator[Iterator[Tensor]]:
        nonlocal done
        while done < attack.epochs and (attack.patience is None or best.legs_since < attack.patience):
            yield epoch_losses()
            done += 1
            if time.perf_counter() - written > SECONDS:
                save()

    fit(decoder, optimiser, epochs(), best=best)
    save()
    return done


OF_DECODER = 5  # in memory: its weights, their gradients, AdamW's two moments, and the best weights so far
TIMED_FEATURES = 1_024  # of the decoder that is timed, at most: a larger one might not fit into memory


@dataclass(frozen=True, kw_only=True)
class RecoNN(Shadowed):
    """Train shadow models on records of the prior, and a decoder that reads the record off the model.

    `shadows` models are trained, None for one per record of the prior; more need an `augment`. A share `validation` of
    the prior's records is held out: training stops after `patience` epochs without progress on their models (None:
    never), and the best weights are kept. The loss is  mae * mean |error| + mse * mean error^2  in the coordinates of
    `Span`, plus further `terms`, such as perceptual ones. The answers of several `members`, decoders trained with
    different draws, are averaged. All is computed on `device` (None: the prior's). Shadow models are kept in `store`, a
    folder or URL, and reused when the same game is run again. With `engine=LinearResponse()` most of them are not
    trained but computed by the linear response of training.
    """

    decoder: Decoder | RowReading = field(default_factory=MLPDecoder)
    mae: float = 1.0
    mse: float = 1.0
    terms: tuple[Term, ...] = ()
    members: int = 1
    epochs: int = 100
    batch_size: int = 128
    lr: float = 2e-3
    weight_decay: float = 0.01
    patience: int | None = 25

    def __post_init__(self) -> None:
        ranges = {"shadows": at_least(MIN_SHADOWS), "members": at_least(1), "batch_size": at_least(1)}
        check_fields(self, **RANGES, **ranges, patience=at_least(1))
        expect(self, "mse", "above 0 where mae is 0", self.mae + self.mse > 0)

    def objection(self, knowledge: Knowledge) -> str | None:
        if (reason := super().objection(knowledge)) is not None:
            return reason
        if isinstance(self.decoder, RowReading):
            if (reason := rows_objection(knowledge.net, knowledge.access)) is not None:
                return reason
            if self.engine is not None:
                return "its decoder reads single weights, which linear response does not give."
            return unlearnable(self.decoder.picture, self.terms, knowledge.prior.x)
        return unlearnable(self.decoder, self.terms, knowledge.prior.x)

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=20, device=self.device, cheaper=self.cheaper)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """Shadow models, and steps of the decoder's training, of which a few are timed if the rate was measured."""
        shadows, size = self.shadows or len(knowledge.prior), knowledge.prior.x.element_size()
        of_shadows = shadow_cost(self.engine, knowledge, shadows, rate, games)
        features = features_seen(self.engine, rate)
        steps = self.epochs * self.members * math.ceil(shadows / self.batch_size)
        step = self._step_seconds(knowledge, features) if rate.training else 0.0
        decoders = self.decoder_parameters(knowledge, features) * (OF_DECODER + self.members - 1)
        return Cost(of_shadows.seconds + steps * step, of_shadows.bytes + float(size * decoders))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Trained:
        """Train the shadow models and the decoder. Victims trained with the same seed share no draw."""
        return self.learn(*shadow_tables(self, knowledge, seed), seed=seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Trained:
        """The second half of `prepare`, from shadow models that were trained before, `unseen` on held-out records."""
        knowledge = accepted(self, knowledge)
        models, others = len(shadows.seen), len(unseen.seen)
        if min(models, others) < 2:
            raise ValueError(
                f"RecoNN.learn: expected at least two shadow models to learn from and two held-out ones, got {models} "
                f"and {others}."
            )
        shadows, unseen = (table.checked().to(knowledge.prior.x.device) for table in (shadows, unseen))
        standardise, span = Standardise.fit(shadows.seen, shadows.given), Span.of(knowledge.prior.x)
        with torch_seed(adversary_seed(seed, "decoder"), span.shift.device):
            decoder, label = self._nets(knowledge, standardise, span)
        start = Trained(knowledge.net, knowledge.access, standardise, decoder, label, span, *UNKNOWN_ERRORS, self)
        trained = self._trained(start, shadows, unseen, knowledge, seed)

        def held_out_errors(seen: Tensor) -> Tensor:
            return errors(trained.decoder, trained.examples(unseen._replace(seen=seen)))

        return trained._replace(notes=notes_on(unseen, held_out_errors))

    def tune(self, trained: Trained, knowledge: Knowledge, *, seed: int) -> Trained:
        """Adapt a copy of a reconstructor to another known set with fewer shadow models (Balle et al. 2022 Fig. 12)."""
        return self._trained(*self._transferred(trained, knowledge, seed), knowledge, seed)

    def zero_shot(self, trained: Trained, knowledge: Knowledge, *, seed: int) -> Trained:
        """Transfer a reconstructor to another known set without further training (Balle et al. 2022, appendix B).

        A few dozen shadow models suffice, to standardise the weights again.
        """
        start, _, unseen = self._transferred(trained, knowledge, seed)
        held_out = start.examples(unseen)
        return start.with_errors(held_out.features, errors(start.decoder, held_out))

    def load(self, folder: str | Path, knowledge: Knowledge) -> Trained:
        """A reconstructor that `save` wrote, for the knowledge's net and access, which are not saved."""
        prior = knowledge.prior.x[:1] if self.device is None else knowledge.prior.x[:1].to(self.device)
        saved = SavedFolder.read("RecoNN.load", folder, prior.device)
        check_same(f"RecoNN.load: {folder} was saved", saved.words, self._identity(knowledge.access), "Load it with")
        standardise, span, line, error = saved.calibration(scale="standardise")
        with torch_seed(0, prior.device):  # the draws are overwritten
            decoder, label = self._nets(knowledge, standardise, span)
        decoder.load_state_dict(part(saved.tensors, "decoder."))
        label.load_state_dict(part(saved.tensors, "label."))
        return Trained(knowledge.net, knowledge.access, standardise, decoder, label, span, line, error, self)

    def decoder_for(self, knowledge: Knowledge, standardise: Standardise, span: Span) -> nn.Module:
        """An untrained decoder of features standardised like this."""
        shape = tuple(span.shift.shape)
        if isinstance(self.decoder, RowReading):
            rows = SeenRows.of(knowledge.net, knowledge.access, standardise)
            return self.decoder.build_from_rows(rows, shape, bounded=span.bounded)
        return self.decoder.build(len(standardise.kept), shape, bounded=span.bounded)

    def decoder_parameters(self, knowledge: Knowledge, features: int) -> int:
        """How many parameters the decoder has, counted without allocating it."""
        span, standardise = Span.of(knowledge.prior.x), _unscaled(features)
        by_rows = isinstance(self.decoder, RowReading)  # a small one, whatever the number of features
        with torch.random.fork_rng(devices=[]), torch.device("cpu" if by_rows else "meta"):
            decoder = self.decoder_for(knowledge, standardise, span)
        return sum(value.numel() for value in decoder.parameters())

    def _step_seconds(self, knowledge: Knowledge, features: int) -> float:
        """Seconds per step of the decoder's training: the best of three of a small decoder, scaled to the full size."""
        small = features if isinstance(self.decoder, RowReading) else min(features, TIMED_FEATURES)
        like = knowledge.prior.x if self.device is None else knowledge.prior.x[:1].to(self.device)
        with torch.random.fork_rng(devices=[like.device] if like.is_cuda else []):
            decoder = self.decoder_for(knowledge, _unscaled(small), Span.of(like)).to(like)
            seen = torch.randn(self.batch_size, small, device=like.device, dtype=like.dtype)
            optimiser, seconds = torch.optim.AdamW(decoder.parameters()), math.inf
            for _ in range(3):
                start = time.perf_counter()
                fit(decoder, optimiser, [[decoder(seen).square().mean()]])
                if seen.is_cuda:
                    torch.cuda.synchronize()
                seconds = min(seconds, time.perf_counter() - start)
        if small == features:
            return seconds
        return seconds * self.decoder_parameters(knowledge, features) / self.decoder_parameters(knowledge, small)

    def _identity(self, access: Access) -> dict[str, object]:
        """What two attacks must share to exchange decoders."""
        return {"decoder": repr(self.decoder), "members": self.members, "access": repr(access)}

    def _transferred(
        self, trained: Trained, knowledge: Knowledge, seed: int
    ) -> tuple[Trained, ShadowTable, ShadowTable]:
        """A copy of the reconstructor standardised over another known set's shadow models, and these."""
        before, now = trained.attack._identity(trained.access), self._identity(knowledge.access)
        check_same("RecoNN: the reconstructor was trained", before, now, "Tune it with")
        knowledge, shadows, unseen = shadow_tables(self, knowledge, seed)
        start = trained._replace(
            net=knowledge.net,
            access=knowledge.access,
            standardise=trained.standardise.refit(shadows.seen),
            decoder=deepcopy(trained.decoder),
            label=deepcopy(trained.label),
            attack=self,
        )
        return start, shadows, unseen

    def _trained(
        self, start: Trained, shadows: ShadowTable, unseen: ShadowTable, knowledge: Knowledge, seed: int
    ) -> Trained:
        """Fit decoder and label head in place, and measure their errors."""
        examples, held_out = start.examples(shadows), start.examples(unseen)
        errors = train(start.decoder, examples, held_out, self, keeper(knowledge.engine), seed=seed)
        solve(start.label, examples.features, examples.y, held_out.features, held_out.y)
        return start.with_errors(held_out.features, errors)

    def _nets(self, knowledge: Knowledge, standardise: Standardise, span: Span) -> tuple[Committee, LabelHead]:
        decoder = Committee(self.decoder_for(knowledge, standardise, span) for _ in range(self.members))
        known = knowledge.facts.known
        labels = torch.cat([*([] if known is None else [known.y]), knowledge.prior.y])
        return decoder.to(span.shift).eval(), LabelHead(len(standardise.kept), labels).to(span.shift)


def _unscaled(features: int) -> Standardise:
    """Every feature as it is."""
    still = torch.zeros(features, dtype=torch.float64)
    return Standardise(torch.arange(features), still, still + 1, features, math.inf)
