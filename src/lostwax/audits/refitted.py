"""Audit of any estimator by refitting it: which record was in the training set, and what can be rebuilt of it?

For models without an equation that could be solved. The game is about the way of fitting: rows of the table are split
into known rows, rows that the adversary has as examples, and secrets; every victim is fitted on the known rows and one
secret. The released model itself was fitted on all of them, so that it cannot tell candidates apart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.adapters.sklearn.refitting import (
    FINGERPRINTS,
    OUTPUTS,
    PARAMETERS,
    Estimator,
    Refits,
    SealedEstimator,
    Trial,
    processes_for,
    tried,
)
from lostwax.attacks import CalibratedLosses, KernelRidge
from lostwax.attacks.membership import LikeliestRefit
from lostwax.audits.attributes import InferenceRows, Inferred, infer
from lostwax.audits.audit import Audit
from lostwax.audits.conclusion import LEVEL
from lostwax.audits.play import Settings, named
from lostwax.audits.procedure import audit_procedure
from lostwax.clock import Clock, TimeUp, in_words
from lostwax.games import (
    Access,
    Attack,
    Cohort,
    Columns,
    Engine,
    Guess,
    HintFacts,
    Hints,
    Informed,
    Knowledge,
    Records,
    Threat,
    ThreatFacts,
)
from lostwax.games.facts import access_facts
from lostwax.games.judges import OneToOne
from lostwax.games.notes import Note, Topic, as_notes
from lostwax.games.threats import line_up
from lostwax.progress import counted, progress
from lostwax.seeds import generator

log = logging.getLogger(__name__)
MINUTES = 5.0  # for the whole audit, where no limit is given
GAMES = 60  # at most, where no number is given
PART = 0.25  # of the rows of every class are secrets at most, and as many are examples
EXAMPLES = 100  # at most
CANDIDATES = (10, 5, 3, 2)  # per game, as many as classes allow
TRIED = 10  # examples: the model fitted with the first is compared with those fitted with the last ones
PROBES = 100  # known rows at which outputs are seen, at most
REFERENCE = (8, 64)  # reference models for all candidates, where fitting is random, at least and at most
REPEATS = (6, 4, 3, 2)  # refits per candidate, where fitting is random, as many as there is time for
# of the log-odds of success between splits: as large as most are in benchmarks/refitted_intervals.py
SPLIT_SPREAD = 0.75
MOST_VALUES = 30  # of a column of categories, for one number per value
LABELS_GIVEN = (
    "The adversary is given the secret's label, and labels were not attacked: whoever knows all other rows can often "
    "tell the label of the missing one, from class counts or an intercept."
)


def audit_refitted(
    model: Any,
    X: Any,
    y: Any,
    settings: Settings,
    *,
    table: Records,
    columns: Columns,
    sample_weight: Any,
    access: Access | None,
    reasons: tuple[str, ...],
    sampled: bool = False,
) -> Audit:
    """Fit the model many times on rows of its table, and try to tell which rows; the worse of two audits.

    One names the secret among candidates of its class, the other rebuilds it. `table` is (X, y) in numbers, in which
    guesses are scored, and `reasons` say why no equation applies. `sampled`: X is a sample of the model's rows.
    """
    clock = Clock.started(MINUTES if settings.max_minutes is None else settings.max_minutes)
    access, (games, seed, *_) = access or Weights(), settings
    split, encoding, stated = Split.of(table.y, games, seed), Encoding.of(table.x, columns), access_facts(access)
    if not (stated.all_weights or stated.outputs):
        raise TypeError(
            "audit: expected access=lw.access.Weights() or lw.access.Outputs() for a model that has no equation, got "
            f"{access!r}."
        )
    estimator = _estimator(model, X, y, sample_weight, split)
    try:
        with progress("trial fits"):
            game = clock.run(lambda: _Game.of(estimator, split, stated.all_weights, settings.engine, sampled=sampled))
    except TimeUp:
        raise ValueError(
            f"audit: max_minutes is too short: fitting {type(model).__name__} a few times was not done in time. Allow "
            "more minutes, or pass a sample of the rows."
        ) from None
    records = Records(encoding(table.x), table.y, torch.arange(len(table), dtype=torch.float64).unsqueeze(1))
    known, prior, secrets = (records[part] for part in split.parts)
    repeats, by_class = game.repeats(len(secrets), len(prior), clock.left), _are_classes(table.y)
    split = split._replace(candidates=min(split.candidates, _fewest_distinct(secrets, by_class=by_class)))
    audits: dict[str, Audit] = {}
    unanswered = game.unanswered(split, table.y)
    for name, threat, entrants, trainer in game.questions(known, split, repeats, by_class=by_class):
        log.info("%s by refitting %s ...", name, game.name)
        some = None if games is None else min(games, len(secrets))
        left = settings._replace(games=some, max_minutes=max(clock.left, 1e-3) / 60)
        knowledge = Knowledge(nn.Identity(), trainer, threat, access, prior)
        try:
            played = audit_procedure(knowledge, secrets, left, entrants=entrants, answered=bool(audits))
            audits[name] = replace(played, split_spread=SPLIT_SPREAD)
        except ValueError as error:
            if not audits:
                raise
            unanswered.append(f"{name} was not tried: {str(error).removeprefix('audit: ')}")
    rows = InferenceRows(game.trial.estimator, table, columns, encoding, *split.parts)
    inferred, skipped = game.attributes(rows, access, repeats, clock, seed)
    worst = max(audits, key=lambda name: audits[name].conclusion.grade.severity)
    others = [f"{name}: {audits[name].conclusion}" for name in audits if name != worst]
    shown = _in_cells(audits[worst], encoding, columns)
    if not shown.grade.leaks:
        told = [column for column in inferred if column.chance <= LEVEL / len(inferred)]
        unanswered += [f"Values of a column can be inferred. {column}" for column in told]
    labels = [LABELS_GIVEN] if by_class and y is not None else []
    return replace(
        shown,
        subject=f"{game.name}, refitted",
        notes=(
            *as_notes((*reasons, *game.notes(split, repeats), *others, *labels)),
            *(column.note() for column in inferred),
            *skipped,
            *shown.notes,
        ),
        unanswered=(*shown.unanswered, *unanswered),
    )


def _are_classes(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()


def _estimator(model: Any, X: Any, y: Any, weight: Any, split: Split) -> Estimator:
    """The model with its rows; of a search with the settings that it chose."""
    model = getattr(model, "best_estimator_", model)
    model = model.estimator if isinstance(model, FrozenEstimator) else model
    known, examples, secrets = (part.numpy() for part in split.parts)
    some = known[np.linspace(0, len(known) - 1, min(PROBES, len(known))).astype(int)]
    X, y = (part.detach().cpu().numpy() if isinstance(part, Tensor) else part for part in (X, y))
    weight = None if weight is None else np.asarray(weight, dtype=np.float64)
    return Estimator(model, X, y, weight, {"known": some, "examples": examples, "candidates": secrets}, {})


def _fewest_distinct(secrets: Records, *, by_class: bool) -> int:
    """How many different records there are to choose candidates from, in the class that has fewest."""
    groups = [secrets.x[secrets.y == label] for label in torch.unique(secrets.y)] if by_class else [secrets.x]
    fewest = min(len(torch.unique(group.flatten(1), dim=0)) for group in groups)
    if fewest < 2:
        raise ValueError(
            "audit: the model has to be refitted, but in one class all rows that were drawn are the same, so "
            "candidates cannot be distinguished. Pass another seed, or a table with columns that differ."
        )
    return fewest


class Split(NamedTuple):
    """Which rows are known, which are examples, and which are secrets."""

    known: Tensor
    examples: Tensor
    secrets: Tensor
    candidates: int  # per game
    left_out: tuple[int, ...]  # classes with too few rows for a game

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Known rows, examples, secrets."""
        return self.known, self.examples, self.secrets

    @classmethod
    def of(cls, y: Tensor, games: int | None, seed: int) -> Split:
        """Drawn by the seed, class by class; labels that are numbers are one class.

        Candidates must be of one class, for a model's class counts give the label away. Classes that are too rare for
        that are known.
        """
        classes = torch.zeros(len(y), dtype=torch.long) if y.is_floating_point() or y.ndim > 1 else y
        sizes = torch.unique(classes, return_counts=True)
        wanted = GAMES if games is None else games
        share = min(PART, max(wanted, CANDIDATES[0] * len(sizes[0])) / len(y))
        taken = {int(label): int(share * int(size)) for label, size in zip(*sizes, strict=True)}
        enough = [c for c in CANDIDATES if 2 * sum(n for n in taken.values() if n >= c) >= sum(taken.values())]
        if not enough or not sum(taken.values()):
            raise ValueError(
                f"audit: {len(y)} rows are too few to refit the model: {PART:.0%} of the rows of a class are secrets, "
                f"and {CANDIDATES[-1]} or more are needed."
            )
        count = enough[0]
        secrets, examples = [], []
        for label, n in taken.items():
            rows = (classes == label).nonzero().flatten()
            rows = rows[torch.from_numpy(generator(seed, "refitted", "split", label).permutation(len(rows)))]
            if n >= count:
                secrets.append(rows[:n])
                most = max(2, int(EXAMPLES * len(rows) / len(y)))
                examples.append(rows[n : n + min(int(PART * len(rows)), most)])
        hidden, seen = torch.cat(secrets).sort().values, torch.cat(examples).sort().values
        known = torch.ones(len(y), dtype=torch.bool)
        known[hidden] = known[seen] = False
        rare = tuple(label for label, n in taken.items() if n < count)
        return cls(known.nonzero().flatten(), seen, hidden, count, rare)


class _Game(NamedTuple):
    """The estimator with its rows, and what a few fits have shown."""

    trial: Trial
    sealed: SealedEstimator
    sees_parameters: bool
    engine: Engine | None  # its workers fit; None: processes here
    reproduced: bool  # a fit on all rows gives the released model, where fitting is deterministic
    more: tuple[str, ...]  # attributes in which the released model holds more than that fit

    @classmethod
    def of(
        cls, estimator: Estimator, split: Split, sees_parameters: bool, engine: Engine | None, *, sampled: bool
    ) -> _Game:
        """Fit a few models on known rows and examples."""
        known, examples, secrets = (part.numpy() for part in split.parts)
        one, *others = (np.append(known, example) for example in (examples[0], *examples[:-TRIED:-1]))
        trial = tried(estimator, one, *others)
        again = trial.estimator.reproduced() if trial.deterministic and not sampled else (True, ())
        return cls(trial, SealedEstimator(trial.estimator, secrets.tolist()), sees_parameters, engine, *again)

    @property
    def name(self) -> str:
        """What the model is called."""
        return type(self.trial.estimator.model).__name__

    @property
    def public_draws(self) -> bool:
        """Can its randomness be replayed from what is seen?"""
        return self.sees_parameters and self.trial.stores_seeds

    def questions(
        self, known: Records, split: Split, repeats: int, *, by_class: bool
    ) -> list[tuple[str, Threat, tuple[Attack, ...], Refits]]:
        """Who is in it, and what can be rebuilt: name, threat, attacks, trainer."""
        fits, probes = repeats * len(split.secrets), tuple(split.secrets.tolist())
        naming: tuple[Attack, ...] = (LikeliestRefit(repeats, probes),)
        if repeats > 1:  # private draws
            naming = (*naming, CalibratedLosses(max(REFERENCE[0], min(REFERENCE[1], fits)), probes))
        candidates = split.candidates
        threat: Threat = SameClass(known, candidates) if by_class else Informed(known, candidates=candidates)
        membership = ("Membership", threat, naming, self.trainer(fits, candidates_seen=True))
        if self.trial.constant_numbers:
            return [membership]
        rebuilding = Informed(known, label_known=by_class)
        return [membership, ("Reconstruction", rebuilding, (KernelRidge(),), self.trainer(fits))]

    def unanswered(self, split: Split, y: Tensor) -> list[str]:
        """What refits say nothing about."""
        sentences = []
        if split.left_out:
            rows, classes = int(torch.isin(y, torch.tensor(split.left_out)).sum()), len(split.left_out)
            which = "1 class, which has" if classes == 1 else f"{classes} classes, which have"
            sentences.append(
                f"{rows:,} rows of {which} too few for a game, were not attacked. They may leak more than others."
            )
        if self.sees_parameters and not self.trial.complete:
            sentences.append(f"{self.name} holds more objects than were looked into.")
        sentences += [
            f"{part} inside {self.name} is not fitted again by fit, so that refits say nothing about it. Pass it "
            "alone, with the rows that it was fitted on, or the steps after it, with X as they see it."
            for part in self.trial.frozen
        ]
        return sentences + [
            f"{self.name}'s {name} holds more than a fit on these rows puts there, which refits do not show."
            for name in self.more
        ]

    def processes(self, fits: int) -> int:
        """In how many processes of this machine so many models are fitted; an engine has its own."""
        return 1 if self.engine is not None else processes_for(self.trial.seconds * fits)

    def repeats(self, secrets: int, examples: int, seconds: float) -> int:
        """Refits per candidate: one where fitting is deterministic, else as many as fit into half of the time."""
        if self.trial.deterministic or self.public_draws:
            return 1
        processes = self.processes(secrets * REPEATS[0])
        fits = seconds / 2 / self.trial.seconds * processes - 2 * secrets - examples - REFERENCE[1]
        return next((each for each in REPEATS if each * secrets <= fits), REPEATS[-1])

    def trainer(self, fits: int, sealed: SealedEstimator | None = None, *, candidates_seen: bool = False) -> Refits:
        """The trainer whose release shows parameters, and outputs at rows that the adversary has; for `fits` models."""
        places = ("known", "examples", "candidates") if candidates_seen else ("known", "examples")
        numbers = sum(self.trial.estimator.sizes.values())
        parameters = (PARAMETERS,) if self.sees_parameters and numbers else ()
        # a fingerprint tells candidates apart, and nothing of what a record is like
        fingerprints = (FINGERPRINTS,) if self.sees_parameters and candidates_seen else ()
        return Refits(
            sealed or self.sealed,
            self.name,
            (*parameters, *fingerprints, *(f"{OUTPUTS}.{place}" for place in places)),
            self.trial.deterministic,
            self.public_draws,
            self.processes(fits),
        )

    def attributes(
        self, rows: InferenceRows, access: Access, repeats: int, clock: Clock, seed: int
    ) -> tuple[tuple[Inferred, ...], tuple[Note, ...]]:
        """Which value a secret has in each column of categories, and which were not tried for want of time."""
        found: list[Inferred] = []
        skipped: list[Note] = []
        columns = list(rows.guessable())
        for column in counted(columns, "attribute inference: columns", len(columns)):
            fits = rows.fits(column, repeats)
            trainer = partial(self.trainer, fits, candidates_seen=True)
            work = partial(infer, rows, column, trainer=trainer, access=access, repeats=repeats, seed=seed)
            work = partial(work, engine=self.engine)
            seconds = fits * self.trial.seconds / self.processes(fits)
            try:
                if seconds > clock.left:
                    raise TimeUp
                found.append(clock.run(work))
            except TimeUp:
                name = rows.columns.listed([column])
                text = f"Attribute inference of {name} was not tried: it takes {in_words(seconds)}."
                skipped.append(Note(text, Topic.ATTRIBUTE, name))
        return tuple(found), tuple(skipped)

    def notes(self, split: Split, repeats: int) -> tuple[str, ...]:
        """How the games were made."""
        known, examples = len(split.known), len(split.examples)
        found = [
            f"{self.name} was fitted anew for every game, on {known:,} known rows and one secret; {examples:,} other "
            f"rows are the adversary's examples. A fit takes {in_words(self.trial.seconds)}.",
            "The audit is about this way of fitting: the released model was fitted on all rows, and was not attacked.",
            "All games share one split of the table into known rows, examples and secrets. Intervals allow for other "
            "splits; several seeds show them.",
        ]
        if not self.reproduced:
            found.append(
                "A fit on all rows that were passed gives another model than the released one. Check that these are "
                "the rows, in their order, and the sample weights that it was fitted on."
            )
        if self.trial.constant_numbers:
            what = "gave the same model" if self.trial.constant else "differ only in texts or bytes"
            found.append(f"Fits on different rows {what}, so reconstruction was not tried.")
        if self.public_draws and not self.trial.deterministic:
            found.append("The fitted model stores the seeds of its parts (random_state), so its randomness is public.")
        elif not self.trial.deterministic:
            found.append(f"Fitting is random, and private: every candidate was refitted {repeats} times.")
        return tuple(found)


@dataclass(frozen=True)
class SameClass:
    """An informed adversary who knows the secret's class, and candidates of that class."""

    known: Records
    candidates: int | None = None

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """One secret per model."""
        return Informed(self.known).deal(pool, m, seed=seed, start=start)

    def facts(self) -> ThreatFacts:
        """All other records are known, and the class."""
        return ThreatFacts(self.known, 1, HintFacts(labels=True, candidates=self.candidates))

    def judge(self) -> OneToOne:
        """How guesses are paired with secrets."""
        return OneToOne()

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints:
        """The classes of the secrets, and for each secret a line-up of records of its class."""
        labels = cohort.own.y  # (m, 1)
        if self.candidates is None:
            return Hints(labels)
        order, parts = [], []
        chances = torch.full((len(cohort), self.candidates), 1 / self.candidates, dtype=torch.float64)
        for label in torch.unique(labels):
            games = (labels[:, 0] == label).nonzero().flatten()
            candidates, own = line_up(cohort[games], pool[pool.y == label], self.candidates, seed=seed)
            chances[games] = chances[games] if own is None else own
            order.append(games)
            parts.append(candidates)
        back = torch.cat(order).argsort()
        return Hints(labels, candidates=Records.together(parts)[back], chances=chances)


@dataclass(frozen=True, eq=False)
class Encoding:
    """Cells of a table as numbers that can be regressed, without missing ones, and back.

    Numbers are standardised, with a number beside them where some are missing; categories have one number per value, or
    where they have many, their code.
    """

    mean: Tensor  # (d,)
    scale: Tensor  # (d,)
    values: tuple[int, ...]  # (d,) how many values a column has if each gets a number, else 0
    missing: tuple[bool, ...]  # (d,) does a column have missing cells?
    whole: tuple[bool, ...]  # (d,) codes

    @classmethod
    def of(cls, x: Tensor, columns: Columns) -> Encoding:
        """Of a table (n, d)."""
        absent = x.isnan()
        held = (~absent).sum(0).clamp_min(1)
        mean = x.nan_to_num().sum(0) / held
        scale = (torch.where(absent, 0.0, x - mean).square().sum(0) / held).sqrt()
        values = tuple(len(each) if len(each) <= MOST_VALUES else 0 for each in columns.categories)
        missing, whole = tuple(absent.any(0).tolist()), tuple(columns.categorical.tolist())
        return cls(mean, torch.where(scale > 0, scale, 1.0), values, missing, whole)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) cells -> (n, e) numbers."""
        parts = []
        for column, cells in enumerate(x.double().unbind(1)):
            absent = cells.isnan()
            if self.values[column]:
                parts.append((cells.unsqueeze(1) == torch.arange(self.values[column])).double())
            else:
                parts.append(((cells - self.mean[column]) / self.scale[column]).nan_to_num().unsqueeze(1))
            if self.missing[column]:
                parts.append(absent.double().unsqueeze(1))
        return torch.cat(parts, 1)

    def cells(self, numbers: Tensor) -> Tensor:
        """(..., e) -> (..., d): the likeliest category, and missing where that is likelier than not."""
        parts, start = [], 0
        for column, (values, missing) in enumerate(zip(self.values, self.missing, strict=True)):
            block = numbers[..., start : start + max(values, 1)]
            start += block.shape[-1] + missing
            if values:
                cells = block.argmax(-1).double()
            else:
                cells = block[..., 0] * self.scale[column] + self.mean[column]
                cells = cells.round() if self.whole[column] else cells
            parts.append(torch.where(numbers[..., start - 1] > 0.5, torch.nan, cells) if missing else cells)
        return torch.stack(parts, -1)


def _in_cells(audit: Audit, encoding: Encoding, columns: Columns) -> Audit:
    """The same audit, with records as cells of the table."""

    def shown(records: Records) -> Records:
        return Records(encoding.cells(records.x), records.y)

    def decoded(guess: Guess) -> Guess:
        others = None if guess.alternatives is None else shown(guess.alternatives)
        return replace(guess, records=shown(guess.records), alternatives=others, undetermined=None)

    findings = tuple(replace(finding, guess=decoded(finding.guess)) for finding in audit.findings)
    return replace(audit, truth=shown(audit.truth), findings=findings, **named(columns))
