"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.adapters.torch import labels_in_net, scan_net
from lostwax.audits import given
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.ceiling import ceiling_of, check_membership_under, check_under, privacy_of
from lostwax.audits.checks import (
    Support,
    as_targets,
    check_alike,
    check_numbers,
    check_ranges,
    check_stated,
    check_trainable,
    check_varied,
    overlap_notes,
    widened,
)
from lostwax.audits.choice import Tried, answering, before_attacks, try_all
from lostwax.audits.luck import needs_swapped, swapped_games
from lostwax.audits.membership import NOT_MEASURED, Asked, was_in_it
from lostwax.audits.play import Answer, Dealt, Played, Settings, filled, judged, play
from lostwax.audits.scoring import Scoring, all_metrics
from lostwax.clock import Clock, TimeUp
from lostwax.defences import in_words, undefended
from lostwax.games import (
    Adversary,
    Attack,
    Cohort,
    Knowledge,
    Loss,
    Metric,
    Records,
    Release,
    Threat,
)
from lostwax.games.facts import access_facts, attack_name, states_facts, threat_facts, trainer_facts
from lostwax.games.judges import judge_of
from lostwax.games.notes import as_notes
from lostwax.games.nouns import with_records
from lostwax.games.protocols import prepared, refusal
from lostwax.inits import StartsFrom, trainable
from lostwax.learning.costs import Rate
from lostwax.progress import progress
from lostwax.provenance import fingerprint
from lostwax.seeds import generator
from lostwax.shadows import Game, gaussian_weights, models_of
from lostwax.trainers.stacked import Architecture

LOOKED_AT, RECORDS = 16, 1_024  # victims, and known records of each, whose training loss is computed
WORSE = 0.5  # of the loss of the best constant prediction: victims that are worse by this, and than at the start
NAMED = 5  # tensors that a note names
SCANNED_VICTIMS = 3  # whose arrays are compared with their training sets
MINUTES = 10.0  # where no attack is named, no limit given, and models are trained one by one
NOT_ASKED = f"{NOT_MEASURED} an attack is named. Without attack= the audit asks who was trained on, too."


def audit_procedure(
    knowledge: Knowledge,
    secrets: Records,
    settings: Settings,
    *,
    attacks: Sequence[Attack] = (),
    metrics: Sequence[Metric] = (),
    entrants: Sequence[Attack] | None = None,
    answered: bool = False,
) -> Audit:
    """Train one victim per game on secrets that the attack never sees, and score its guesses.

    If no attack is named, all that apply (of the `entrants`, if given) are run (`choice`) on the same victims, within
    `max_minutes`. Of several that are named, each has a line, named by its settings where their types are the same.
    Where none was done in time, the audit is undecided, with a blind guess; an error if it has to be `answered`. All
    that can be refused is refused before an attack is prepared, which may take hours.
    """
    knowledge, secrets = _with_targets(replace(knowledge, engine=settings.engine), secrets)
    automatic, minutes = not attacks and entrants is None, settings.max_minutes
    if automatic and minutes is None and trainer_facts(knowledge.trainer, knowledge.net, 1).one_by_one:
        minutes = MINUTES
    clock, prior = Clock.started(minutes), knowledge.prior
    attacks = tuple(answering(attack, knowledge) for attack in attacks)
    for attack in attacks:
        if (sentence := refusal(attack, knowledge)) is not None:
            raise ValueError(f"audit: {sentence}")
    knowledge, measured = _measured(knowledge, clock, automatic=automatic)
    dealt = _DealtGames.of(knowledge, secrets, settings, metrics)
    cohort, judging = dealt.cohort, dealt.judging
    knowledge, hints = replace(knowledge, prior=dealt.support.prior), judging.hints
    game, rate = before_attacks(
        lambda: _Trained(knowledge, cohort, judging, settings.seed), knowledge, games=len(cohort), clock=clock
    )
    asked = Asked()
    by_losses = knowledge.facts.given.candidates is None and not knowledge.facts.trainer.deterministic
    if automatic and knowledge.facts.given.candidates is None:
        asked = was_in_it(knowledge, cohort, game.release, seed=game.seed, clock=clock, rate=rate)
    if len(attacks) == 1 and clock.end is None:
        tried = Tried((play(game, attacks[0]),))
    else:
        rate, alone = rate or Rate.unknown(knowledge, game.release), len(attacks) == 1
        options: dict[str, Any] = {"games": len(cohort), "clock": clock, "rate": rate, "alone": alone}
        tried = try_all(knowledge, partial(play, game), entrants=attacks or entrants, **options)
        if not tried.lines and answered:
            raise ValueError(f"audit: no attack has an answer in time. {' '.join(tried.unanswered)}")
        lines = [_told_apart(line, attacks) for line in tried.lines] or [judged(judging, judging.blind_answer())]
        tried = tried._replace(lines=tuple(lines))
    metric = judging.scoring.headline.name
    lines = sorted(tried.lines, key=lambda line: (-line.finding.rebuilt.mean(), np.median(line.finding.errors[metric])))
    findings = tuple(line.finding for line in lines)
    each = len(findings[0].rebuilt) // len(cohort)
    with progress("ceiling"):
        mechanism, scoring, judge = knowledge.facts.trainer.mechanism, judging.scoring, judging.judge
        ceiling = ceiling_of(mechanism, hints, prior, scoring, secrets=cohort.secrets, judge=judge)
        privacy = privacy_of(mechanism)
    check_under(ceiling, findings, secrets=each)
    check_membership_under(privacy, asked.membership)
    said = [
        replace(note, text=f"{line.answer.name}: {note}")
        for line in lines
        for note in as_notes((*_certified(line.finding), *line.answer.notes))
    ]
    if len(attacks) == 1:
        lines = [lines[0]._replace(finding=replace(findings[0], name="as released"))]
    known_of = f"{len(cohort.shared)} of {cohort.records}"
    name = lines[0].answer.name + ("" if len(lines) == 1 else f", the best of {len(lines)},")
    return filled(
        judging,
        lines,
        subject=f"{type(knowledge.net).__name__} trained by {in_words(knowledge.trainer)}",
        kind="this procedure",
        adversary=Adversary.of(knowledge.access, len(cohort.shared), cohort.records),
        threat=f"{type(knowledge.threat).__name__} adversary, knows {known_of} records{given.in_words(hints)}",
        attack=f"{name} through {type(knowledge.access).__name__}",
        numbers=cohort.index,
        population=None if judging.judge.gaussian_null else len(secrets),
        chance=given.chance(hints),
        chance_by_victims=given.chance(hints, judging.groups(1)),
        ceiling=ceiling,
        privacy=privacy,
        labels_given=hints is not None and hints.labels is not None,
        seed=settings.seed,
        provenance=_provenance(knowledge, cohort, secrets, lines),
        notes=(
            *measured,
            *dealt.support.notes,
            *given.notes(hints),
            *said,
            *_several(len(cohort), each),
            *dealt.overlaps,
            *([NOT_ASKED] if not automatic and by_losses else []),
        ),
        unanswered=(
            *_not_learnt(knowledge, cohort, game.release, settings.seed),
            *_stored_records(knowledge, cohort, game.release),
            *dealt.copies,
            *dealt.support.unanswered,
            *tried.unanswered,
            *asked.unanswered,
        ),
        left_out=(*tried.left_out, *asked.left_out),
        membership=asked.membership,
        rungs=asked.rungs,
    )


class _DealtGames(NamedTuple):
    """The games, dealt and checked, before any victim is trained."""

    cohort: Cohort
    judging: Dealt
    support: Support
    copies: tuple[str, ...]
    overlaps: tuple[str, ...]

    @classmethod
    def of(cls, knowledge: Knowledge, secrets: Records, settings: Settings, metrics: Sequence[Metric]) -> _DealtGames:
        """By the seed; what cannot be audited is refused."""
        trainer, threat, prior, seed = knowledge.trainer, knowledge.threat, knowledge.prior, victims_seed(settings.seed)
        check_alike(secrets, prior)
        of_tokens = check_numbers(secrets, knowledge.facts)
        games = settings.games
        if games is None:
            games = len(secrets) // threat.deal(secrets, 1, seed=seed).secrets
        cohort = threat.deal(secrets, games, seed=seed)
        anew = knowledge.facts.given.candidates is not None
        if anew:
            cohort = _drawn_anew(threat, cohort, secrets, seed=seed)
        hints = threat.hints(cohort, secrets, seed=seed)
        if states_facts(threat):
            check_stated(knowledge.facts, cohort, hints, type(threat).__name__)
        known, unknown = cohort.shared, given.unknown(hints)
        check_trainable(knowledge.net, trainer, threat, prior, secrets, seed=seed)
        check_ranges(known, prior, secrets)
        copies = check_varied(known, prior, secrets)
        pool = Records.together([prior, known])  # all that the adversary has
        population, hidden = (part.double().cpu() for part in (pool.x, secrets.x))
        threshold = settings.threshold if given.chance(hints) is None else 0.0  # a candidate is named or not
        more = all_metrics(prior.x, metrics, whole=unknown is None, of_tokens=of_tokens)
        scoring = Scoring.of(population, threshold, more, unknown=unknown, secrets=hidden)
        scoring = Scoring.of_sentences(more) if of_tokens else scoring
        independent = anew and games <= len(torch.unique(secrets.matches(secrets)))
        return cls(
            cohort,
            Dealt(cohort.own, pool, prior, hints, scoring, judge_of(threat), independent),
            widened(prior, secrets),
            copies,
            overlap_notes(known, prior, secrets),
        )


def _drawn_anew(threat: Threat, cohort: Cohort, pool: Records, *, seed: int) -> Cohort:
    """The cohort with the secret of each game drawn from the whole pool, whatever those of other games are.

    An attack sees the candidates of all games. If each record were the secret of one game only, it could tell the
    secrets by that, without any model.
    """
    every = threat.deal(pool, max(1, len(pool) // cohort.secrets), seed=seed)
    rows = generator(seed, "secrets among candidates").integers(len(every), size=len(cohort))
    return Cohort(cohort.shared, every.own[torch.from_numpy(rows).to(every.own.x.device)], cohort.index)


def _with_targets(knowledge: Knowledge, secrets: Records) -> tuple[Knowledge, Records]:
    """Several whole numbers per record as labels become numbers, in the known records too."""
    known = threat_facts(knowledge.threat).known
    several = (knowledge.prior, secrets, *([] if known is None else [known]))
    trainer, (prior, secrets, *ours) = as_targets(knowledge.trainer, knowledge.net, *several)
    threat = with_records(knowledge.threat, lambda records: ours[0] if records is known else records)
    return replace(knowledge, trainer=trainer, threat=threat, prior=prior), secrets


def _measured(knowledge: Knowledge, clock: Clock, *, automatic: bool) -> tuple[Knowledge, list[str]]:
    """The trainer after it measured where a record tells most, and its randomness; a note on what it found.

    On the first games of the prior.
    """
    notes = list[str]()
    if len(knowledge.prior) < 2:
        return knowledge, notes
    net, threat, trainer = knowledge.net, knowledge.threat, knowledge.trainer
    games = partial(threat.deal, knowledge.prior, 2, seed=0)
    try:
        if (measure := trainer_facts(trainer, net, 1).where_it_tells) is not None:
            elsewhere = clock.run(partial(measure, net, games()))
            if elsewhere is not trainer:
                notes.append(
                    "A record at the end of the training set changes the weights little or not at all, as if it were "
                    "held out for validation. So the secret was put elsewhere."
                )
            trainer = elsewhere
        if automatic and (measure := trainer_facts(trainer, net, 1).settled) is not None:
            settled = clock.run(partial(measure, net, games()))
            if (noise := trainer_facts(settled, net, 1).noise) is not None:
                notes.append(
                    f"Training draws private random numbers: another seed moves the weights {noise:.2g} times as far "
                    "as another record does."
                )
            elif settled is not trainer:
                notes.append("Training is deterministic: another seed gives the same weights.")
            trainer = settled
    except TimeUp:
        raise ValueError(
            "audit: max_minutes is too short: training a few models was not done in time. Allow more minutes."
        ) from None
    return replace(knowledge, trainer=trainer), notes


def victims_seed(seed: int) -> int:
    """What victims are dealt and trained by: shadow models of `lw.simulate` with the same seed are others."""
    return int(generator(seed, "victims").integers(2**62))


class _Trained:
    """Victims that were trained, one per game, for one attack after the other.

    The adversary has its own seed: an attack that trained shadow models by the game's seed would draw the victims'
    private randomness.
    """

    def __init__(self, knowledge: Knowledge, cohort: Cohort, judging: Dealt, seed: int) -> None:
        self.knowledge, self.judging = knowledge, judging
        self.release = trained_victims(knowledge, cohort, seed)
        self.seed = int(generator(seed, "adversary").integers(2**62))
        self.untrained = None
        if judging.judge.gaussian_null:  # as many models that owe nothing to a training set
            own_seed = int(generator(self.seed, "untrained").integers(2**62))
            shadows = Game(knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior, own_seed)
            self.untrained = gaussian_weights(shadows, len(cohort), knowledge.engine)

    def answer(self, attack: Attack) -> Answer:
        """All games, by this attack."""
        secrets, hints = self.judging.secrets, self.judging.hints
        reconstruct = prepared(attack, self.knowledge, seed=self.seed)
        start = time.perf_counter()
        guess = reconstruct(self.release, hints)
        seconds = time.perf_counter() - start
        untrained = None if self.untrained is None else reconstruct(self.untrained, hints)
        swapped = None
        if hints is not None and needs_swapped(hints):
            games, others = swapped_games(secrets)
            if len(games):
                swapped = reconstruct(self.release.chosen(others), hints[games])
        return Answer(attack, guess, seconds, untrained, swapped, reconstruct.notes)


def _provenance(knowledge: Knowledge, cohort: Cohort, secrets: Records, lines: Sequence[Played]) -> dict[str, Any]:
    """Where the numbers come from."""
    steps = knowledge.facts.trainer.steps
    return {
        "net": repr(knowledge.net),
        "trainer": repr(knowledge.trainer),
        **({} if steps is None else {"steps": steps}),
        "attack": ", ".join(repr(line.answer.attack) for line in lines),
        "access": repr(knowledge.access),
        "data": {
            name: fingerprint(*(part for part in (records.x, records.y, records.features) if part is not None))
            for name, records in (("known", cohort.shared), ("prior", knowledge.prior), ("secrets", secrets))
        },
        "weights of the net": fingerprint(*trainable(knowledge.net).values()),
    }


class _AsDealt(NamedTuple):
    """Training sets that were dealt before."""

    cohort: Cohort

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """The training sets of these models."""
        return self.cohort[start : start + m]

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> None:
        """Nothing has to be given."""


def trained_victims(knowledge: Knowledge, cohort: Cohort, seed: int) -> Release:
    """One victim per game, in as many chunks as memory asks for: it is trained as shadow models are."""
    return trained(knowledge, cohort, victims_seed(seed))


def trained(knowledge: Knowledge, cohort: Cohort, seed: int) -> Release:
    """One model for each set of a cohort that was dealt before."""
    chunks = models_of(knowledge, _AsDealt(cohort), cohort.shared, models=len(cohort), seed=seed)
    releases = []
    with progress("victims", len(cohort)) as advance:
        for some, release in chunks:
            releases.append(release)
            advance(len(some))
    return releases[0] if len(releases) == 1 else Release.together(releases)


def _told_apart(line: Played, named: Sequence[Attack]) -> Played:
    """A line of one of several attacks of one type is named by the settings in which they differ."""
    attack: Any = line.answer.attack
    same = [each for each in named if attack_name(each) == line.answer.name]
    if len(same) < 2 or not is_dataclass(attack):
        return line
    own = {field.name: getattr(attack, field.name) for field in fields(attack)}
    differ = [f"{name}={value!r}" for name, value in own.items() if any(getattr(each, name) != value for each in same)]
    return line._replace(finding=replace(line.finding, name=f"{line.answer.name}({', '.join(differ)})"))


def _certified(found: Finding) -> tuple[str, ...]:
    guess = found.guess
    if guess.certified is None:
        return ()
    sure = f"{int(guess.certified.sum())} of {len(guess.certified)} guesses"
    notes = [f"{sure} reproduce the released weights to rounding, and no record near them or mirrored does."]
    if guess.undetermined is not None and guess.undetermined.any():
        left = guess.undetermined.flatten(1).double()  # (games, numbers)
        notes.append(
            f"The weights do not determine {left.sum(1).mean():.3g} of {left.shape[1]} features, mean over guesses "
            f"({int(left.all(0).sum())} in every guess); these were set near the prior mean."
        )
    return tuple(notes)


def _several(victims: int, each: int) -> tuple[str, ...]:
    if each == 1:
        return ()
    return (
        f"{victims} victims were trained, and each counts as {each} games, one per guess: guesses from one release are "
        "not independent. Intervals of shares count victims; those of true positives at a false-positive rate assume "
        "independent guesses, and are too narrow.",
    )


def _stored_records(knowledge: Knowledge, cohort: Cohort, release: Release) -> tuple[str, ...]:
    """Arrays in which a training function leaves records, their sums, their extremes or labels, as sentences.

    They are looked for by value, as in a fitted table. The attacks see them among the weights, but do not solve for
    them: a record follows from a sum and all other records.
    """
    if not knowledge.facts.trainer.one_by_one or not access_facts(knowledge.access).all_weights:
        return ()
    said = []
    for victim in range(min(SCANNED_VICTIMS, len(cohort))):
        records = torch.cat([cohort.shared.inputs, cohort.own.inputs[victim]])
        labels = torch.cat([cohort.shared.y, cohort.own.y[victim]])
        said.append((*scan_net(release[victim], records).notes, *labels_in_net(release[victim], labels)))
    return tuple(str(note) for note in said[0] if all(note in notes for notes in said))


def _not_learnt(knowledge: Knowledge, cohort: Cohort, release: Release, seed: int) -> tuple[str, ...]:
    """That victims hold no numbers, or predict worse than before training: finding nothing in them is no all-clear.

    Where the trainer states its loss and its start, training losses decide, before a defence changes the weights. A
    mechanism adds noise on purpose: it is not judged.
    """
    finite = {name: value.flatten(1).isfinite().all(1) for name, value in release.params.items()}  # (m,) each
    broken = int((~torch.stack(list(finite.values())).all(0)).sum())
    trainer, seed = undefended(knowledge.trainer), victims_seed(seed)
    loss = knowledge.facts.trainer.loss
    if broken and loss is None:
        where = ", ".join([name for name, each in finite.items() if not each.all()][:NAMED])
        return (f"{broken} of {len(release)} victims hold NaN or infinite numbers in {where}, and show nothing.",)
    if broken:
        said = f"{broken} of {len(release)} victims diverged (NaN or infinite weights), and show nothing"
        return (f"{said}: lower the learning rate.",)
    if loss is None or not isinstance(trainer, StartsFrom) or knowledge.facts.trainer.mechanism is not None:
        return ()
    some = cohort[:LOOKED_AT]
    trained = release.chosen(torch.arange(len(some)))
    if trainer is not knowledge.trainer:
        trained = trainer(knowledge.net, some, seed=seed)
    before = Release(trainer.init(knowledge.net, some.index, seed=seed))
    after, start, constant = (_losses(knowledge.net, loss, some, each) for each in (trained, before, None))  # (m,) each
    worse = ~(after <= torch.maximum(start, constant) + WORSE * constant.abs())
    if 2 * int(worse.sum()) <= len(worse):
        return ()
    return (
        f"{int(worse.sum())} of {len(worse)} victims did not learn: their training loss is {float(after.median()):.3g} "
        f"in the median, {float(start.median()):.3g} before training, and {float(constant.median()):.3g} for the best "
        "constant prediction. Finding nothing in them says nothing about models that learn: lower the learning rate.",
    )


def _losses(net: nn.Module, loss: Loss, cohort: Cohort, models: Release | None) -> Tensor:
    """(m,) each model's mean loss over its training set, of many known records some; None: of the best constant."""
    shared, dtype = cohort.shared[:RECORDS], torch.float64
    ours = Architecture.of(net, shared.inputs.device, dtype)
    found = []
    for number in range(len(cohort)):
        own = cohort.own[torch.tensor(number)]
        inputs, y = torch.cat([shared.inputs, own.inputs]), torch.cat([shared.y, own.y])
        inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
        params = ours.initial(inputs) if models is None else ours.beside(inputs, models[number])
        with torch.no_grad():
            outputs = ours(params, inputs)  # (n, c)
        found.append(float(loss(outputs, y).mean()) if models is not None else _best_constant(loss, outputs[0], y))
    return torch.tensor(found, dtype=dtype)


def _best_constant(loss: Loss, like: Tensor, y: Tensor) -> float:
    """The least mean loss of predictions (c,) that are the same for all records."""
    from scipy.optimize import minimize  # slow to import

    def mean_loss(constant: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        outputs = torch.from_numpy(constant).to(like).view_as(like).expand(len(y), *like.shape)
        slope = loss.residual(outputs, y).mean(0)
        return float(loss(outputs, y).mean()), slope.flatten().cpu().numpy()

    return float(minimize(mean_loss, np.zeros(like.numel()), jac=True, method="L-BFGS-B").fun)
