"""Any estimator as a trainer: it is fitted anew for every model, and seen by its numbers and its outputs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count, pairwise
from numbers import Integral
from operator import itemgetter
from pickle import PicklingError
from typing import Any, NamedTuple, final

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from joblib import hash as joblib_hash
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter
from torch import nn

from lostwax.adapters.objects import Contents, Numbers, Walk, attributes, contents, fingerprint
from lostwax.adapters.own_training import generators_kept, seed_all
from lostwax.adapters.sklearn.inputs import dense
from lostwax.games import Cohort, Release, TrainerFacts
from lostwax.games.nouns import is_sent
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.shadows.identity import code_of, parts

PARAMETERS, FINGERPRINTS, OUTPUTS = "parameters", "fingerprints", "outputs"
METHODS = ("predict_proba", "decision_function", "score_samples", "predict", "transform")  # the first one is seen
MOST_NUMBERS = 20_000  # of a model's parameters, the smallest arrays first
MOST_FINGERPRINTS = 500  # of what is not among them
PLACES, PAIRS = 5, 2  # places among the rows at which a row is replaced, and by how many pairs of rows
PARTS = 10  # of the fits, at most, so that progress shows
BATCHES = 4  # per process, so that no process waits long for another
SLOW = 20.0  # seconds of fitting in all, from which processes are worth starting: each has to import torch
DRAWS = 2**31 - 1  # seeds that numpy takes
MORE = 100  # numbers that an attribute of the release may hold beyond those of a fit
CONTINUES = ("keras", "tf_keras")  # libraries whose models fit from where they are
BY_FUNCTION = (
    "Pass how a model is trained: lw.audit(lw.adapters.TrainedBy(train).fit(X, y), (X, y)), where train(X, y) builds a "
    "new model, fits it and returns it."
)
SURE = 1e-3  # probabilities nearer to 0 or 1 than this are hardly told apart


class Fit(NamedTuple):
    """Which rows one model is fitted on, and what its random numbers derive from."""

    rows: NDArray[np.int64]  # (n,)
    draw: int
    asked_by: int = 0  # the seed of whoever asks for it: victims are never taken for the refits of an attack

    def key(self) -> str:
        """Equal for equal fits, and short however many rows there are.

        A victim and a refit on the same rows are two fits even where fitting is deterministic: a model that stores the
        time or an address would be recognised by it if they were one.
        """
        return f"{self.draw} {self.asked_by} {blake2b(self.rows.tobytes(), digest_size=16).hexdigest()}"


@dataclass(frozen=True, eq=False)
class Estimator:
    """The owner's estimator and rows: what must not be reached from an attack."""

    model: Any
    X: Any
    y: Any  # None: it is fitted on X alone
    sample_weight: NDArray[np.float64] | None
    probes: Mapping[str, NDArray[np.int64]]  # by name, the rows at which outputs are seen
    sizes: Mapping[str, int]  # by path, how many numbers of each part of the fitted model are seen
    opaque: tuple[str, ...] = ()  # paths of parts of which a fingerprint is seen
    width: int | None = None  # numbers that are seen of an answer; None: all. Encoders may give fewer in another fit
    place: int | None = None  # of the last row among the others when a model is fitted; None: after them

    def seen(self, fits: Sequence[Fit]) -> list[dict[str, Numbers]]:
        """Fit one model after the other, and keep its parameters and its outputs at the probes.

        NaN and infinity are values that models hold (limits, missing values): they are seen as 0, and by a fingerprint.
        """
        seen = []
        for fit in fits:
            _, held, outputs = self.look(fit.rows, fit.draw)
            parts = [np.empty(0)]
            for path, size in self.sizes.items():
                value = held.numbers.get(path, np.empty(0))[:size]  # a list of losses is as long as its training was
                parts.append(np.pad(value, (0, size - value.size)))
            numbers = {PARAMETERS: np.concatenate(parts), **outputs}
            special = np.concatenate([np.where(np.isfinite(part), 0.0, part) for part in numbers.values()])
            fingerprints = np.concatenate([held.fingerprints(self.opaque), fingerprint(special.tobytes())])
            finite = {name: np.where(np.isfinite(part), part, 0.0) for name, part in numbers.items()}
            seen.append({FINGERPRINTS: fingerprints, **finite})
        return seen

    def fitted(self, rows: NDArray[np.int64], draw: int) -> Any:
        """The estimator fitted on these rows, with its own settings; where it has no random_state, `draw` is used."""
        model = _unfitted(self.model, draw)
        rows = rows if self.place is None else np.insert(rows[:-1], self.place, rows[-1])
        X, y = _safe_indexing(self.X, rows), None if self.y is None else _safe_indexing(self.y, rows)
        weight = {} if self.sample_weight is None else {_weight_name(model): self.sample_weight[rows]}
        try:
            model.fit(X, **weight) if y is None else model.fit(X, y, **weight)
        except Exception as error:
            raise ValueError(
                f"audit: {type(model).__name__}.fit failed on {len(rows)} rows of the table "
                f"({type(error).__name__}). An audit by refitting fits the model's own settings on most of the rows."
            ) from error
        return model

    def outputs(self, model: Any, rows: NDArray[np.int64]) -> Numbers:
        """(q, c) what a fitted model answers at these rows, by the first of METHODS that it has.

        Probabilities are seen as log-odds, which are closer to Gaussian (Carlini et al. 2022, section IV-C).
        """
        method = next(name for name in METHODS if hasattr(model, name))
        answer = getattr(model, method)(_safe_indexing(self.X, rows))
        if method == "predict" and (hasattr(model, "classes_") or np.asarray(answer).dtype.kind not in "fiub"):
            classes = np.unique(np.asarray(self.y))
            answer = np.asarray(answer)[..., None] == classes
        parts = answer if isinstance(answer, list) else [answer]  # one per output of a multi-output model
        try:
            numbers = np.concatenate(
                [np.asarray(dense(part)).astype(np.float64).reshape(len(rows), -1) for part in parts], 1
            )
        except (ValueError, TypeError):
            raise TypeError(
                f"audit: {type(model).__name__}.{method} was asked for {len(rows)} rows, and did not answer with "
                "numbers for each of them. Return one row of numbers per row of X."
            ) from None  # the cause may quote them
        if method == "predict_proba":
            numbers = np.log((numbers + SURE) / (1 - numbers + SURE))
        width = numbers.shape[1] if self.width is None else self.width
        return np.pad(numbers, ((0, 0), (0, max(0, width - numbers.shape[1]))))[:, :width]

    def look(self, rows: NDArray[np.int64], draw: int) -> Look:
        """Fit one model, with every generator seeded by `draw`."""
        with generators_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence, a thousand times
            seed_all(draw)
            model = self.fitted(rows, draw)
            outputs = {}
            if self.probes:
                answers = self.outputs(model, np.concatenate([*self.probes.values()]))  # (q, c)
                cuts = np.cumsum([len(rows) for rows in self.probes.values()])[:-1]
                parts = zip(self.probes, np.split(answers, cuts), strict=True)
                outputs = {f"{OUTPUTS}.{name}": part.ravel() for name, part in parts}
            return Look(model, contents(model), outputs)

    def reproduced(self) -> tuple[bool, tuple[str, ...]]:
        """Whether a fit on all rows, in their order, gives the model that was passed; attributes that hold more in it.

        Those hold many numbers where the fit leaves fewer, which refits do not show.
        """
        rows = np.arange(self.X.shape[0] if hasattr(self.X, "shape") else len(self.X))
        again, released = replace(self, place=None).look(rows, 1), contents(self.model)
        sizes = again.contents.sizes()
        more = tuple(name for name, size in released.sizes().items() if size > sizes[name] + MORE)
        return Look(self.model, released, {}).agrees(again._replace(outputs={}), 1e-6), more


class Look(NamedTuple):
    """A fitted model, and what can be seen of it."""

    model: Any
    contents: Contents
    outputs: Mapping[str, Numbers]

    def agrees(self, other: Look, tolerance: float, *, numbers_alone: bool = False) -> bool:
        """The same numbers and outputs, within a relative tolerance, and the same of everything else."""
        ours, theirs = (
            {**each.contents.numbers, **({} if numbers_alone else each.contents.others), **each.outputs}
            for each in (self, other)
        )
        return ours.keys() == theirs.keys() and all(
            value.shape == theirs[name].shape
            and np.allclose(value, theirs[name], tolerance, tolerance / 1e3, equal_nan=True)
            for name, value in ours.items()
        )

    def distance(self, other: Look) -> float:
        """The sum of relative distances |a - b| / (|a| + |b|) of what both hold and answer in the same shape.

        NaN and infinity are equal to themselves, and as far from another value as 0 and 1 are.
        """
        ours, theirs = ({**each.contents.numbers, **each.outputs} for each in (self, other))
        total = 0.0
        for name, value in ours.items():
            if name not in theirs or value.shape != (reference := theirs[name]).shape:
                continue
            both = np.isfinite(value) & np.isfinite(reference)
            differ = ~both & ~((value == reference) | (np.isnan(value) & np.isnan(reference)))
            a, b = np.where(both, value, 0.0), np.where(both, reference, differ)
            total += float(np.linalg.norm(a - b) / (np.linalg.norm(a) + np.linalg.norm(b) + 1e-300))
        return total


class Trial(NamedTuple):
    """What a few fits show about an estimator."""

    estimator: Estimator  # with what is seen of every fit, and the place of the secret among the rows
    seconds: float  # per fit, outputs included
    deterministic: bool  # other random numbers give the same model
    constant: bool  # other rows do, too
    constant_numbers: bool  # they give the same numbers, but texts or bytes may differ
    stores_seeds: bool  # a fitted model holds the seeds of its parts: its randomness can be replayed
    complete: bool  # every object that the models hold was looked into
    frozen: tuple[str, ...]  # models inside that are fitted before `fit` is called, and not fitted again


def tried(estimator: Estimator, one: NDArray[np.int64], other: NDArray[np.int64], *more: NDArray[np.int64]) -> Trial:
    """Fit on two sets of rows of the same size, and on the first again with other random numbers.

    Where both give the same model, `more` sets of rows are tried: one row of many often changes nothing in a tree.

    Refuses an object that is no estimator, or whose `fit` continues from an earlier one: every model would then hold
    all rows that the object was fitted on before.
    """
    model = estimator.model
    answers = any(callable(getattr(model, name, None)) for name in METHODS)
    if isinstance(model, type) or not callable(getattr(model, "fit", None)) or not answers:
        raise TypeError(
            f"audit: expected a fitted object with fit and one of {', '.join(METHODS)}, got {type(model).__name__}."
        )
    if any(base.__module__.partition(".")[0] in CONTINUES for base in type(model).__mro__):
        raise TypeError(
            f"audit: fit of {type(model).__name__} continues from the weights that it has, so that every model would "
            f"hold all rows. {BY_FUNCTION}"
        )
    estimator = replace(estimator, place=_telling_place(estimator, one, other, *more))
    looks, seconds = [], []
    for rows, draw in ((one, 1), (one, 2), (other, 1)):
        start = time.perf_counter()
        looks.append(estimator.look(rows, draw))
        seconds.append(time.perf_counter() - start)
    for rows in more:
        if not looks[0].agrees(looks[-1], 0, numbers_alone=True):
            break
        looks.append(estimator.look(rows, 1))
    if _cloned(model) is None:
        again = replace(estimator, model=looks[2].model).look(one, 1)
        if not looks[0].agrees(again, 1e-6):
            raise ValueError(
                f"audit: {type(model).__name__}.fit continues from an earlier fit, or draws random numbers that cannot "
                "be seeded. Give it get_params and set_params (sklearn.base.BaseEstimator), so that it can be cloned. "
                f"Or: {BY_FUNCTION}"
            )
    first, later = looks[0].contents, [look.contents for look in looks[1:]]
    sizes: dict[str, int] = {}
    for path, value in sorted(first.numbers.items(), key=lambda item: item[1].size):
        if all(path in each.numbers for each in later) and sum(sizes.values()) + value.size <= MOST_NUMBERS:
            sizes[path] = value.size
    hidden = (path for path in (*first.others, *first.numbers) if path not in sizes)
    opaque = [path for path in hidden if any((first.of(path) != each.of(path)).any() for each in later)]
    probes = sum(map(len, estimator.probes.values()))
    width = max(sum(part.size for part in look.outputs.values()) // probes for look in looks)
    return Trial(
        replace(estimator, sizes=sizes, opaque=tuple(opaque[:MOST_FINGERPRINTS]), width=width),
        min(seconds),
        deterministic=looks[0].agrees(looks[1], 1e-9),
        constant=all(looks[0].agrees(look, 0) for look in looks[2:]),
        constant_numbers=looks[0].agrees(looks[-1], 0, numbers_alone=True),
        stores_seeds=_stores_seeds(looks[0].model),
        complete=all(look.contents.complete for look in looks),
        frozen=tuple(dict.fromkeys(_frozen(_unfitted(model, 1)))) if _cloned(model) is not None else (),
    )


def _telling_place(estimator: Estimator, *sets: NDArray[np.int64]) -> int | None:
    """Where among the others the last row of a set changes the model most; None where it does not matter.

    With a fixed random_state, the row at some place is drawn into no bootstrap sample, or is held out for early
    stopping, in every fit. Games with all secrets at such a place would find nothing, whatever the model leaks.
    """
    one = sets[0]
    if estimator.look(one, 1).agrees(estimator.look(generator(0, "order").permutation(one), 1), 1e-6):
        return None
    by_label: dict[str, list[int]] = {}  # splits that are stratified depend on the labels
    for number, rows in enumerate(() if estimator.y is None else sets):
        by_label.setdefault(repr(np.asarray(estimator.y)[rows[-1]]), []).append(number)
    twice = sorted((numbers[:2] for numbers in by_label.values() if len(numbers) > 1), key=itemgetter(1))
    pairs = [(sets[first], sets[second]) for first, second in twice or [[0, 1]]][:PAIRS]

    def change(place: int) -> float:
        here = replace(estimator, place=place)
        return min(here.look(one, 1).distance(here.look(other, 1)) for one, other in pairs)

    places = [int(place) for place in np.linspace(len(one) - 1, 0, PLACES)]
    return max(places, key=change)


def _frozen(model: Any) -> Iterator[str]:
    """Models inside one that has not been fitted which are fitted already: frozen, or enclosed by a function."""
    found: list[str] = []
    for path, value in Walk(model):
        own, inside = attributes(value), path.startswith(tuple(f"{outer}." for outer in found))
        fits = callable(getattr(type(value), "fit", None)) and any(name[0] != "_" == name[-1] for name in own)
        if path and fits and not inside:
            found.append(path)
            yield type(value).__name__


@final
@dataclass(frozen=True, eq=False, repr=False)
class Refits:
    """Fits a clone of an estimator on the known rows and the secret one, which comes last.

    Records carry their row numbers as features; the rows themselves are sealed. A random_state that is a number is
    public. Where it is None, every model has its own random numbers, unless `public_draws`.
    """

    sealed: SealedEstimator
    shown: str  # the estimator, in words
    shows: tuple[str, ...]  # parts of the release: PARAMETERS, FINGERPRINTS, and OUTPUTS at which probes
    deterministic: bool
    public_draws: bool = False
    processes: int = 1

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Fit one model for each set of the cohort, in processes."""
        known = cohort.shared.inputs[:, 0].long().numpy()
        own = cohort.own.inputs[:, :, 0].long().numpy()  # (m, k)
        draws = [0] * len(cohort)
        if not (self.deterministic or self.public_draws):
            draws = [int(generator(seed, "refit", number).integers(DRAWS)) for number in cohort.index.tolist()]
        fits = [Fit(np.concatenate([known, rows]), draw, seed) for rows, draw in zip(own, draws, strict=True)]
        size = max(BATCHES * self.processes, -(-len(fits) // PARTS))
        parts = [fits[start : start + size] for start in range(0, len(fits), size)]
        every = counted(parts, "refits: parts", len(parts))
        seen = [one for part in every for one in self.sealed(part, self.processes)]
        return Release({name: torch.from_numpy(np.stack([one[name] for one in seen])) for name in self.shows})

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """Whether its random numbers matter and are private."""
        return TrainerFacts(deterministic=self.deterministic or self.public_draws)

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """One model per process."""
        return self.processes

    def __repr__(self) -> str:
        return f"Refits({self.shown})"


def processes_for(seconds: float) -> int:
    """How many processes to fit in, if all fits take these seconds in one."""
    return 1 if seconds < SLOW else int(cpu_count())


# As steps of a release are (`games/nouns.py`), rows are kept here under a number, and an attack gets only the number.
_numbers = count()
_estimators: dict[int, tuple[Estimator, frozenset[int], dict[str, dict[str, Numbers]]]] = {}


@final
class SealedEstimator:
    """Fits models on the owner's rows by their numbers, and gives no access to the rows. Only an engine pickles it.

    Models whose last row is one of the `remembered`, which several games ask for, are fitted once. All others are
    fitted whenever they are asked for: they measure how long that takes.
    """

    __slots__ = ("_number",)

    def __init__(self, estimator: Estimator, remembered: Iterable[int] = ()) -> None:
        self._number = next(_numbers)
        _estimators[self._number] = estimator, frozenset(remembered), {}

    def __call__(self, fits: Sequence[Fit], processes: int) -> list[dict[str, Numbers]]:
        """What is seen of every model, in order."""
        estimator, remembered, seen = _estimators[self._number]
        keys = [fit.key() for fit in fits]
        new = {key: fit for key, fit in zip(keys, fits, strict=True) if key not in seen}
        waiting, batches = list(new.values()), min(len(new), BATCHES * processes) if processes > 1 else 1
        cuts = np.linspace(0, len(waiting), max(batches, 1) + 1).astype(int)
        work = [delayed(estimator.seen)(waiting[start:end]) for start, end in pairwise(cuts)]
        try:
            parts = Parallel(n_jobs=min(processes, len(work)))(work)
        except PicklingError:  # a class or a function inside cannot be sent to other processes
            parts = Parallel(n_jobs=1)(work)
        looks = [look for part in parts for look in part]
        fresh = dict(zip(new, looks, strict=True))
        seen.update({key: look for key, look in fresh.items() if int(new[key].rows[-1]) in remembered})
        return [fresh[key] if key in fresh else seen[key] for key in keys]

    def __deepcopy__(self, memo: object) -> SealedEstimator:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        if not is_sent():
            raise TypeError("Refits: cannot be pickled, since it holds the rows of the table.")
        return type(self), _estimators[self._number][:2]

    def __del__(self) -> None:
        _estimators.pop(self._number, None)


@parts.register(SealedEstimator)
def _(sealed: SealedEstimator) -> dict[str, object]:
    """What its fits depend on, in hashes: settings and their code, the table, and what is seen of a fit."""
    estimator, _, _ = _estimators[sealed._number]
    model = _unfitted(estimator.model, 0)
    return {"code": code_of(value for _, value in Walk(model)), "content": joblib_hash(replace(estimator, model=model))}


def _stores_seeds(model: Any) -> bool:
    """Do models inside a fitted one hold other seeds than its settings, as the trees of a forest do?"""
    settings = model.get_params(deep=True) if hasattr(model, "get_params") else {}
    stated = {settings[name] for name in _seed_names(settings) if isinstance(settings[name], Integral)}
    seeds = (attributes(value).get("random_state") for path, value in Walk(model) if path)
    return any(isinstance(seed, Integral) and seed not in stated for seed in seeds)


def _seed_names(settings: Mapping[str, Any]) -> list[str]:
    return [name for name in settings if name.rpartition("__")[2] == "random_state"]


def _cloned(model: Any) -> Any | None:
    """The same settings, not fitted; None if a model does not say how it is constructed."""
    try:
        return clone(model)
    except TypeError:
        return None
    except RuntimeError:  # the constructor changes a setting, as CatBoost's does
        try:
            return _rebuilt(model)
        except Exception:  # of a user's class
            return None


def _rebuilt(value: Any) -> Any:
    """A model by its constructor, and models among its settings: a fitted copy of CatBoost can hang in a later fit."""
    if type(value) in (list, tuple):
        return type(value)(_rebuilt(each) for each in value)
    if not hasattr(value, "get_params") or isinstance(value, type):
        return deepcopy(value)
    return type(value)(**{name: _rebuilt(each) for name, each in value.get_params(deep=False).items()})


def _unfitted(model: Any, draw: int) -> Any:
    """A clone with its own settings, and `draw` for every random_state that is no number; a copy of other objects."""
    if (fresh := _cloned(model)) is None:
        return deepcopy(model)
    settings = fresh.get_params(deep=True)
    private = [name for name in _seed_names(settings) if not isinstance(settings[name], Integral)]
    return fresh.set_params(**dict.fromkeys(private, draw))


def _weight_name(model: Any) -> str:
    """What sample weights are called in a call of fit."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        return f"{name}__{_weight_name(last)}"
    if not has_fit_parameter(model, "sample_weight"):
        raise TypeError(f"audit: {type(model).__name__}.fit takes no sample_weight. Leave it out.")
    return "sample_weight"
