"""Audit of this very net: one release, its training set, and the game "which record is missing?" for every record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.attacks import Ensemble, KernelRidge, Newton, Secant
from lostwax.audits.audit import Audit
from lostwax.audits.checks import widened
from lostwax.audits.choice import available_bytes, in_bytes, predicted
from lostwax.audits.clock import Clock, TimeUp, in_words
from lostwax.audits.judging import Answer, LeaveOneOut
from lostwax.audits.play import filled, play
from lostwax.audits.procedure import MINUTES
from lostwax.audits.scoring import Scoring
from lostwax.games import Attack, Cohort, Guess, Knowledge, Records, Release, Table, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.inits import FromNet, StartsFrom, start_of, trainable
from lostwax.learning.costs import Rate
from lostwax.progress import progress
from lostwax.provenance import fingerprint
from lostwax.seeds import generator
from lostwax.trainers.dropout import drops

MISS = 0.02  # how far from the release retraining may end, over how far one record moves the weights
APART = 1.5  # the same with private draws, over how far retrainings end from each other
REPLACED, FEWEST_REPLACED = 8, 3  # records that are replaced, one after the other, to see how far that is
CHECKING = 0.2  # of the time, for that
ENOUGH = 5  # games that an attack must have time for; otherwise a cheaper one runs
FEWEST_SHADOWS = 20  # of the cheapest
WORTH_SAYING = 1e9  # bytes of memory


class _Retrained(NamedTuple):
    """The trainer run on the whole table again, beside the release."""

    release: Release  # (1, ...) where it ends
    released: Release  # (1, ...) the weights of the net, and its buffers if they are published
    seconds: float  # per model
    miss: float  # |where it ends - the released weights|, over the length of the way from the start
    note: str  # how well the released weights come out
    private: str | None = None  # which of them depend on private draws, if any are drawn

    @property
    def rate(self) -> Rate:
        """How fast models are trained, and their size."""
        size = self.release.flat().shape[1]
        return Rate(self.seconds, size, size)


def audit_released(
    net: nn.Module,
    table: Records,
    *,
    trainer: Trainer,
    attack: Attack | None,
    games: int | None,
    seed: int,
    threshold: float,
    max_minutes: float | None = None,
) -> Audit:
    """Play `games` records (all when None), drawn by `seed`, against the weights that the net holds.

    In each the adversary knows all other records and how the net was trained; the attack is prepared anew. Unless named
    it is Newton, Secant where training cannot be differentiated, or one that averages over private draws. Models that
    are trained one by one take long: an attack that fits into `max_minutes` is chosen, and as many games as fit are
    played, unless `games` says how many.

    That the trainer, on this very data, ends at these very weights is checked first; with private draws, that they are
    as near to retrained weights as those are to each other. A small miss can still hide records: each one that is not
    rebuilt is played for again, against the weights that the trainer does end at, and where it is rebuilt from those,
    the audit is undecided.
    """
    clock = Clock.started(MINUTES if max_minutes is None else max_minutes)
    trainer, randomness = _known(trainer, net, table)
    facts = trainer_facts(trainer, net, len(table))
    rows = Table(table).draw(games, seed)
    limit = 60 * (MINUTES if max_minutes is None else max_minutes)
    retrained = _retrained(net, table, trainer, rows, CHECKING * limit)
    left = (1 - CHECKING) * limit
    at_start = deepcopy(net)  # what an attack prepares with holds no release
    at_start.load_state_dict(start_of(trainer.init if isinstance(trainer, StartsFrom) else FromNet(), net, 0, seed=0))
    one = _without(at_start, table, trainer, rows[0])
    skipped: tuple[str, ...] = ()
    if attack is None and facts.differentiable and facts.deterministic:
        attack = Newton(bank=100)
    elif attack is None:
        strict = max_minutes is not None or games is None
        attack, skipped = _chosen(one, retrained.rate, left, len(rows) if games is not None else ENOUGH, strict)
    if (objection := attack.objection(one)) is not None:
        raise ValueError(f"audit: {objection}")
    fitted = games is None and (facts.one_by_one or not facts.deterministic)
    if fitted:
        rows = Table(table).draw(min(_affordable(attack, one, retrained.rate, left), len(table)), seed)
    release = retrained.released
    x = table.x.double().cpu()
    blind = (x.sum(0) - x[rows]) / (len(x) - 1)  # (games, ...) mean of the known
    scoring = Scoring.of(x, threshold, with_secrets=True)
    judging = LeaveOneOut(Records(x, table.y.cpu()), rows, scoring, blind, noun="record")
    limited, bytes_needed = fitted or max_minutes is not None, predicted(attack, one, 1, retrained.rate).bytes
    memory = (f"The attack needs about {in_bytes(bytes_needed)} of memory.",) if bytes_needed >= WORTH_SAYING else ()
    game = _Released(judging, at_start, table, trainer, release, retrained, seed, clock if limited else Clock(), memory)
    line, planned = play(game, attack), len(rows)
    judging, rows = game.judging, game.judging.rows
    certified = 0 if line.answer.guess.certified is None else int(line.answer.guess.certified.sum())
    kind = type(trainer).__name__
    hidden = (
        f"{game.hidden} of {len(rows)} records are not rebuilt from the released weights, but are from the weights "
    )
    hidden += (
        f"that {kind} itself ends at: {retrained.note} Pass the very trainer (init, lr, steps, weight_decay, dtype, "
        "...) that made them."
        if retrained.private is None
        else "of another retraining, with other private draws."
    )
    return filled(
        judging,
        [line],
        subject=f"{type(net).__name__} with these weights, trained by {kind}",
        kind="this model",
        threat="the adversary knows every record but one",
        attack=type(attack).__name__,
        numbers=rows,
        population=len(table),
        seed=seed,
        provenance={
            "net": repr(net),
            "trainer": repr(trainer),
            **({} if facts.steps is None else {"steps": facts.steps}),
            "attack": repr(attack),
            "data": fingerprint(table.x, table.y),
            "weights": fingerprint(*release.params.values()),
        },
        notes=(
            *randomness,
            *(() if retrained.private is None else (retrained.private,)),
            retrained.note,
            *memory,
            *([f"the time was over after {len(rows)} of {planned} records."] if len(rows) < planned else []),
            *([f"the attack itself certifies {certified} of {len(rows)} guesses."] if certified else []),
        ),
        unanswered=(*((hidden,) if game.hidden else ()), *skipped, *sorted(game.unanswered)),
    )


def _chosen(
    knowledge: Knowledge, rate: Rate, seconds: float, games: int, strict: bool
) -> tuple[Attack, tuple[str, ...]]:
    """The strongest attack that plays these games in time and in memory, and what is said of stronger ones.

    Where none does, it is the cheapest; if the time is `strict`, that must be done with one game in it.
    """
    fewer = min(len(knowledge.prior), max(FEWEST_SHADOWS, int(seconds / max(rate.training, 1e-9) / games)))
    forms = (Secant(), Ensemble(members=100, rounds=4, restarts=0), KernelRidge(), KernelRidge(shadows=fewer))
    objections = [(form, form.objection(knowledge)) for form in forms]
    able = [form for form, objection in objections if objection is None]
    if not able:
        raise ValueError(f"audit: no attack is applicable. {' '.join(str(objection) for _, objection in objections)}")
    costs = [predicted(form, knowledge, 1, rate) for form in able]
    free = available_bytes(knowledge.prior.x.device)
    fits = [cost.bytes <= free for cost in costs]
    if not any(fits):
        least = min(cost.bytes for cost in costs)
        raise ValueError(
            f"audit: {rate.parameters:,} numbers are released, and an attack would need about {in_bytes(least)} of "
            f"memory; {in_bytes(free)} are free. Audit fewer layers: set requires_grad=False for all parameters but "
            "those of the last layers, in the net and in its training."
        )
    said: list[str] = []
    for form, cost, fit in zip(able, costs, fits, strict=True):
        if fit and games * cost.seconds <= seconds:
            return form, tuple(said)
        takes = in_words(cost.seconds) + (f" and {in_bytes(cost.bytes)} of memory" if not fit else "")
        said.append(f"{type(form).__name__} would take {takes} per record. It might find more.")
    last = able[max(place for place, fit in enumerate(fits) if fit)]
    needed = predicted(last, knowledge, 1, rate).seconds
    if strict and needed > seconds:
        raise ValueError(
            f"audit: max_minutes is too short: one training takes {in_words(rate.training)}, and the cheapest attack "
            f"{in_words(needed)} per record. Allow more, such as max_minutes={math.ceil(2 * needed / 60)}, train in "
            "several processes (OwnTraining(train, processes=...)), or freeze all layers but the last ones."
        )
    return last, tuple(said[:-1])


def _affordable(attack: Attack, knowledge: Knowledge, rate: Rate, seconds: float) -> int:
    """How many games fit into the time, at least one."""
    cost = predicted(attack, knowledge, 1, rate).seconds
    return max(1, int(seconds / max(cost, 1e-9))) if cost < math.inf else 1


@dataclass(eq=False)
class _Released:
    """One release and its training set; each game has its own adversary, who knows all records but one."""

    judging: LeaveOneOut
    net: nn.Module  # as training starts
    table: Records
    trainer: Trainer
    release: Release
    retrained: _Retrained
    seed: int
    clock: Clock
    memory: tuple[str, ...]  # what it needs, in words, if that is much: said before it is taken
    hidden: int = 0  # records that only the retrained weights give away
    unanswered: set[str] = field(default_factory=set)  # what no adversary could have tried

    def answer(self, attack: Attack) -> Answer:
        """Prepare the attack for each game anew, and play it; the games that are done when the time is over."""
        start, rows, found = time.perf_counter(), self.judging.rows, dict[int, Guess]()
        self.hidden, self.unanswered = 0, set()
        order = generator(self.seed, "games of a release").permutation(len(rows)).tolist()  # what is cut is no choice
        with progress(" ".join((*self.memory, "games")), len(rows)) as advance:
            for game in order:
                try:
                    found[game], hidden = self.clock.run(partial(self._played, attack, rows[game]))
                except TimeUp:
                    break
                self.hidden += hidden
                self.unanswered |= set(widened(Table(self.table).without(int(rows[game])).known, self.table).unanswered)
                advance(1)
        if not found:
            raise ValueError(
                "audit: max_minutes is too short: the attack on the first record was not done in time. Allow twice as "
                "much, name a quicker attack, train in several processes (OwnTraining(train, processes=...)), or "
                "freeze all layers but the last ones."
            )
        if len(found) < len(rows):
            done = torch.tensor(sorted(found))
            self.judging = replace(self.judging, rows=rows[done], blind=self.judging.blind[done])
        return Answer(attack, _join([found[game] for game in sorted(found)]), time.perf_counter() - start)

    def _played(self, attack: Attack, row: Tensor) -> tuple[Guess, bool]:
        """One game; and whether only the retrained weights give the record away."""
        reconstruct = attack.prepare(_without(self.net, self.table, self.trainer, row), seed=self.seed)
        guess = reconstruct(self.release)
        if self.retrained.miss == 0 or self._rebuilt(guess, row):
            return guess, False
        return guess, self._rebuilt(reconstruct(self.retrained.release), row)

    def _rebuilt(self, guess: Guess, row: Tensor) -> bool:
        """Is the one guess within the threshold of the record?"""
        scoring, truth = self.judging.scoring, self.judging.table.x[row]
        x = guess.records.x[:, 0].double().cpu().reshape(1, *truth.shape)
        return bool(scoring.rebuilt(scoring.errors(x, truth.unsqueeze(0)))[0])


def _without(net: nn.Module, table: Records, trainer: Trainer, row: Tensor) -> Knowledge:
    """What the adversary of one game knows: in a known order of records, also where the missing one stands."""
    threat, ours = Table(table).without(int(row)), trainer
    if _in_order(trainer) and is_dataclass(trainer) and not isinstance(trainer, type):
        ours = replace(trainer, place=int(row))
    return Knowledge(net, ours, threat, Weights(), widened(threat.known, table).prior)


def _in_order(trainer: Trainer) -> bool:
    """Can the weights depend on the order of the records?"""
    batches = getattr(trainer, "batches", None)
    return batches is None or batches.size is not None


def _known(trainer: Trainer, net: nn.Module, table: Records) -> tuple[Trainer, tuple[str, ...]]:
    """The trainer, with a seed where it needs none, and what is private in it; a private start is refused."""
    measure = getattr(trainer, "settled", None)
    found: Trainer = trainer if measure is None else measure(net, _replaced_in_order(table, torch.arange(1)))
    facts = trainer_facts(found, net, len(table))
    if facts.private_start:
        raise ValueError(
            "audit: the initialisation is private, so training again does not give these weights. "
            "Name the start, init=lw.inits.Given(state), or audit this way of training."
        )
    if not facts.deterministic:
        in_order = hasattr(trainer, "order_seed") and not drops(net)
        worse = f"{type(trainer).__name__}(..., order_seed=...)" if in_order else "OwnTraining(train, seed=...)"
        return found, (
            "Training draws private random numbers, and attacks average over them. If the adversary may know the seed, "
            f"audit the worse case: {worse}.",
        )
    if measure is None:
        return found, ()
    if found is trainer:
        return found, ("Training is deterministic given its seed, which counts as known to the adversary.",)
    return found, ("Training is deterministic: another seed gives the same weights. Nothing in it is private.",)


def _retrained(net: nn.Module, table: Records, trainer: Trainer, rows: Tensor, seconds: float) -> _Retrained:
    """Train on the table, and refuse where that ends too far from the weights of the net.

    A miss is compared with how far the weights move when one of `rows` is replaced by the mean record; with private
    draws, with how far other draws move them. About as many models are trained as there are `seconds` for.
    """
    kind, facts = type(trainer).__name__, trainer_facts(trainer, net, len(table))
    init = trainer.init if isinstance(trainer, StartsFrom) else FromNet()
    before = start_of(init, net, 0, seed=0)
    weights = trainable(net) or dict(net.named_parameters())  # all may be frozen for use
    held = {name: before[name] for name in weights}
    by_itself = init == FromNet() and facts.one_by_one  # a function may draw its start
    cure = (
        "init=lw.inits.Given(state), with the net's state_dict() before training, or the draw that made them, such "
        "as init=lw.inits.LeCunNormal()."
    )
    if torch.equal(_flat(held), _flat(weights)) and not by_itself:
        raise ValueError(
            f"audit: {kind} starts from the released weights themselves. Name the weights that training started from: "
            f"{cure}"
        )
    deal, start = _replaced_in_order if _in_order(trainer) else _replaced, time.perf_counter()
    with progress("retraining"):
        first = trainer(net, deal(table, rows[:1])[:1], seed=0)
        taken = time.perf_counter() - start
        several = min(len(rows), REPLACED, max(FEWEST_REPLACED, int(seconds / taken)))
        _check_memory(first, several)
        others = trainer(net, deal(table, rows[:several])[1:], seed=0)
        seconds = min(taken, (time.perf_counter() - start - taken) / several)
        draws = (
            None
            if facts.deterministic
            else _drawn(trainer, net, deal(table, rows[:1])[:1], max(several, FEWEST_REPLACED))
        )
    again = first.flat()[0].double().cpu()
    if not again.isfinite().all():
        raise ValueError(
            f"audit: {kind} on this data diverges: its weights are NaN or infinite. Pass the very trainer (init, lr, "
            "steps, ...) that made the weights of the net."
        )
    state = net.state_dict()
    weights = {name: state[name].detach().to(value).unsqueeze(0) for name, value in first[0].items()}
    released = _flat({name: value[0] for name, value in weights.items()})
    effects = (others.flat().double().cpu() - again).norm(dim=1)  # (r,)
    if not effects.any():
        raise ValueError(
            f"audit: the weights do not depend on the records: {kind} ends at the same weights when each of {several} "
            "records is replaced by the mean record, so that there is nothing to attack. Check that the net is trained "
            "on x and y, and that no rounding hides single records."
        )
    effect, miss = float(effects.median()), float((again - released).norm())
    way = _over(miss, float((again - _flat({name: before[name] for name in first.params})).norm()))
    if draws is not None:
        apart = _apart(draws, released)
        if not apart <= APART:
            raise ValueError(
                f"audit: {kind} on this data does not end near the weights of the net: they are {apart:.2g} times as "
                "far from the retrained weights as those are from each other. Pass the very trainer and data that made "
                "them." + (f" Training may have to start from other weights: {cure}" if by_itself else "")
            )
        return _Retrained(
            first,
            Release(weights),
            seconds,
            way,
            f"The released weights are {apart:.2g} times as far from the mean of {len(draws)} retrainings as those "
            "are, at most, from each other's.",
            _private(draws, first, others),
        )
    over = _over(miss, effect)
    if not miss <= MISS * effect:
        raise ValueError(
            f"audit: {kind} on this data does not end at the weights of the net: it misses them by "
            f"{over:.2g} of what one record changes in the weights, and {MISS:g} is allowed. Pass the "
            "very trainer (init, lr, steps, weight_decay, dtype, ...) and data, in their order, that made them, and "
            "load the weights into the net (lw.adapters.load_weights)."
            + (f" Training may have to start from other weights than the released ones: {cure}" if by_itself else "")
        )
    note = (
        f"retraining on this data reproduces the released weights to a relative error of {way:.1g}, or {over:.1g} of "
        "what one record changes in the weights."
    )
    return _Retrained(first, Release(weights), seconds, way, note)


def _check_memory(one: Release, several: int) -> None:
    """Retrained models are in memory twice while they are put together, and once more in double precision."""
    size = one.flat().shape[1]
    needed, free = 4 * 8.0 * size * (several + 1), available_bytes(one.flat().device)
    if needed > free:
        raise ValueError(
            f"audit: retraining {several} times, with {size:,} released numbers each, would need about "
            f"{in_bytes(needed)} of memory, and {in_bytes(free)} are free. Freeze all layers but the last ones "
            "(requires_grad=False), in the net and in its training."
        )


def _drawn(trainer: Trainer, net: nn.Module, one: Cohort, several: int) -> Release:
    """The same training set with other private draws: models of other numbers."""
    numbers = torch.arange(1, several + 1, device=one.index.device)
    return trainer(net, Cohort(one.shared, one.own[torch.zeros_like(numbers)], numbers), seed=0)


def _apart(draws: Release, released: Tensor) -> float:
    """How far the release is from the mean of the draws, over how far they are, at most, from that of the others."""
    flat = draws.flat().double().cpu()  # (r, p)
    mean, r = flat.mean(0), len(flat)
    distances = (flat - mean).norm(dim=1) * r / (r - 1)  # each from the mean of the others
    return _over(float((released - mean).norm()), float(distances.max()))


def _private(draws: Release, first: Release, others: Release) -> str:
    """Which of the weights depend on private draws, and how much, beside what one record changes."""
    noise, effect = {}, {}
    for name, value in draws.params.items():
        base = first.params[name].double()
        noise[name] = float((value.double() - base).flatten(1).norm(dim=1).median())
        effect[name] = float((others.params[name].double() - base).flatten(1).norm(dim=1).median())
    same = [name for name in noise if noise[name] == 0 and effect[name] > 0]
    ratios = {name: noise[name] / effect[name] for name in noise if effect[name] > 0 and noise[name] > 0}
    if not ratios:
        return f"No private draw changes {', '.join(same)}."
    steadiest = min(ratios, key=lambda name: ratios[name])
    whole = math.hypot(*noise.values()) / max(math.hypot(*effect.values()), 1e-300)
    said = f"Private draws move the weights {whole:.2g} times as far as one record does; least in {steadiest}, "
    said += f"{ratios[steadiest]:.2g} times."
    return said + (f" Deterministic are {', '.join(same[:5])}{' and others' if len(same) > 5 else ''}." if same else "")


def _replaced_in_order(table: Records, rows: Tensor) -> Cohort:
    """The same as `_replaced`, where all records keep their places: none is shared."""
    models = len(rows) + 1

    def replaced(part: Tensor) -> Tensor:
        own = part.repeat(models, *(1 for _ in part.shape))  # (1 + r, n, ...)
        own[torch.arange(1, models), rows.to(part.device)] = part.mean(0)
        return own

    y = table.y.repeat(models, *(1 for _ in table.y.shape))
    own = Records(replaced(table.x), y, None if table.features is None else replaced(table.features))
    return Cohort(table[:0], own, torch.zeros(models, dtype=torch.long, device=table.x.device))


def _replaced(table: Records, rows: Tensor) -> Cohort:
    """The table itself, and for each of these r rows the table with the mean record in place of that row."""
    device, places = table.x.device, torch.arange(len(rows))
    others = torch.ones(len(table), dtype=torch.bool)
    others[rows] = False

    def replaced(part: Tensor) -> Tensor:
        own = part[rows.to(device)].repeat(len(rows) + 1, *(1 for _ in part.shape))  # (1 + r, r, ...)
        own[places + 1, places] = part.mean(0)
        return own

    y = table.y[rows.to(device)].repeat(len(rows) + 1, *(1 for _ in table.y.shape))
    own = Records(replaced(table.x), y, None if table.features is None else replaced(table.features))
    number = torch.zeros(len(rows) + 1, dtype=torch.long, device=device)  # all are model 0
    return Cohort(table[others.to(device)], own, number)


def _over(miss: float, whole: float) -> float:
    """miss / whole; no miss is none, however small the whole."""
    return miss / whole if whole > 0 else math.inf if miss > 0 else 0.0


def _flat(params: Mapping[str, Tensor]) -> Tensor:
    """All parameters of one model side by side."""
    return torch.cat([value.double().flatten().cpu() for value in params.values()])


def _join(guesses: list[Guess]) -> Guess:
    """One game each, together."""
    certified = [one.certified for one in guesses if one.certified is not None]
    return Guess(
        Records(torch.cat([one.records.x for one in guesses]), torch.cat([one.records.y for one in guesses])),
        torch.cat([one.confidence for one in guesses]),
        certified=torch.cat(certified) if len(certified) == len(guesses) else None,
    )
