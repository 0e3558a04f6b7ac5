"""The verbs: `audit`, `simulate`, `report`, `compare`. Light to import: torch is loaded on first use."""

from __future__ import annotations

import difflib
from functools import wraps
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

from lostwax.exits import exits_refused
from lostwax.fields import shown
from lostwax.progress import counted, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import nn

    from lostwax.audits import Audit, Audits
    from lostwax.games import Access, Attack, Cohort, Metric, Records, Release, Threat, Trainer
    from lostwax.policies import Policy
    from lostwax.reports.comparison import Comparison
    from lostwax.shadows import Engine


P = ParamSpec("P")
SEED_BITS = 128
MAX_THRESHOLD = 1_000_000  # standard deviations; squares of much larger ones overflow


class _BySeed(Protocol[P]):
    """A verb that takes one seed, and gives `Audits` for several."""

    @overload
    def __call__(self, *positional: P.args, **named: P.kwargs) -> Audit: ...
    @overload
    def __call__(self, model: Any, data: Any = None, *, seed: Sequence[int], **others: Any) -> Audits: ...


def _by_seed(verb: Callable[P, Audit]) -> _BySeed[P]:
    """The verb once for each seed; with a helpful TypeError when it is called like `fit(X, y)`."""

    @wraps(verb)
    def called(*positional: Any, **named: Any) -> Any:
        if len(positional) > 2 or {"X", "y"} & set(named):
            raise TypeError(
                "audit: pass the data as one argument, lw.audit(model, (X, y)), and settings by name: games=100."
            )
        if "device" in named:
            raise TypeError(
                "audit: there is no argument device. Computation follows the records: pass known, prior and secrets as "
                "records.to('cuda'). Attacks that learn take their own device: lw.RecoNN(device='cuda')."
            )
        arguments = signature(verb).parameters
        for name in named.keys() - arguments.keys():
            alike = difflib.get_close_matches(name, arguments, n=1)
            cure = f"Did you mean {alike[0]}?" if alike else f"Its arguments are: {', '.join(arguments)}."
            raise TypeError(f"audit: there is no argument {name}. {cure}")
        seeds = named.get("seed", 0)
        with progress("audit"), exits_refused("audit: user code"):
            if not isinstance(seeds, list | tuple | range):
                return verb(*positional, **named)
            from lostwax.audits import Audits

            if any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
                raise TypeError(f"audit: expected seed to be a whole number, or a list of them, got {shown(seeds)}.")
            if len(set(seeds)) < len(seeds) or not seeds:
                raise ValueError(f"audit: expected different seeds, one or more, got {shown(seeds)}.")
            every = counted(seeds, "seeds", len(seeds))
            return Audits({f"seed {seed}": called(*positional, **{**named, "seed": seed}) for seed in every})

    return called


@_by_seed
def audit(
    model: Any,
    data: Any = None,
    *,
    games: int | None = None,
    seed: int = 0,
    sample_weight: Any = None,
    trainer: Trainer | None = None,
    threat: Threat | None = None,
    attack: Attack | Sequence[Attack] | None = None,
    access: Access | None = None,
    prior: Records | None = None,
    secrets: Records | None = None,
    threshold: float = 0.05,
    metrics: Sequence[Metric] = (),
    max_minutes: float | None = None,
    attackers: Sequence[str] | None = None,
    mechanism: Mapping[str, Any] | None = None,
    before: Any = None,
    tokenizer: Any = None,
    engine: Engine | None = None,
) -> Audit:
    """Can training records be rebuilt from this model?

    There are two kinds of audit. *This model*: pass the fitted model and the table it was fitted on; an adversary who
    knows all other rows tries to rebuild each one.

        model = make_pipeline(encoder, LogisticRegression()).fit(X, y)
        print(lw.audit(model, (X, y)))

    X is what the pipeline takes: a DataFrame, an array, a sparse matrix or texts. Equations, published sums and stored
    rows are attacked, in the units of X; a model with none of these is refitted many times instead (docs/tables.md).

    *This way of training*: pass a torch module and how it is trained. Models are trained on secret records that the
    attack never sees, and attacked.

        known, prior, secrets = lw.records.digits().split(100, 1_000, 400, seed=0)
        lw.audit(net, trainer=lw.GD(lr=0.2, steps=50), threat=lw.Informed(known), prior=prior, secrets=secrets)

    Args:
        model: A fitted scikit-learn estimator or pipeline, results of statsmodels, any object with fit and predict, the
            path of a .skops, .onnx, .rds or .RData file, or a torch module.
        data: `(X, y)` or `Records`, all that the model was trained on; with it, this model is audited.
        games: Number of records to attack, drawn by `seed`; None for all, or for 1,000 rows of a large table.
        seed: Seed of every random draw. A sequence of seeds gives `Audits`: one audit for each, and their spread.
        sample_weight: The sample weights a fitted model was fitted with.
        trainer: How the module is trained. With `data`: how its weights came about, `Optimum(...)` for a linear layer
            at the minimum of an objective, `GD(...)` for any net.
        threat: What the adversary knows: `Informed(known)` all records but one, `Weak(size)` none of them. With a
            fitted forest: None for all rows but one, `Weak(size=len(y))` for none: the whole table is rebuilt.
        attack: The attack to run; None runs all that apply, the strongest first. Several, `[lw.Newton(), lw.RecoNN()]`,
            run on the same victims, each in its own line of the audit (not with `data`).
        access: What the adversary sees of the release; None for all weights. With a fitted model:
            `lw.access.Outputs()` for its predictions alone.
        prior: Records that attacks learn from.
        secrets: Records to rebuild, one per game.
        threshold: A record counts as rebuilt if its error is at most this many feature standard deviations.
        metrics: Further metrics, beside the mean errors, and for images PSNR, SSIM and LPIPS (if its weights are
            available).
        max_minutes: Time limit for the whole audit; None for no limit, except 10 minutes with `OwnTraining` where no
            `attack` is named. The audit keeps what is done then, and says what is not. With a fitted model: for
            refitting it, 5 minutes if None; with `Weak`, for the search for its table, 40 seconds if None.
        attackers: Who is tried beside the adversary of the games: "anyone", "outsider", "insider" (who misses several
            rows). None tries all who take little time; a name, or `max_minutes`, allows a longer search. With `data`.
        mechanism: With a fitted model: the noise that its training added, as arguments of `lw.bound`, such as
            `{"epsilon": 1.0}`. It is believed. A way of training states its own: `OwnTraining(train, mechanism=...)`.
        before: `(model, data)`, an earlier release and what it was trained on: the adversary has both releases and
            knows no record, and the audit is about the records that changed (docs/updates.md). With a fine-tuned
            language model: the public model that it was made of; each is a folder as the Hugging Face hub lays it out,
            a .gguf file, or a state_dict, and `data` are the texts (docs/text.md).
        engine: Where models are trained or refitted: `lw.shadows.Local()` if None, `lw.shadows.Ray()` on a cluster, or
            `lw.shadows.Checkpoints(folder)`, which keeps them: an audit that was stopped continues (docs/scaling.md).
        tokenizer: Of a language model: its tokenizer.json, or an object that encodes texts; None for the one in the
            folder.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TypeError(f"audit: expected threshold to be an int or a float, got {shown(threshold)}.")
    if not 0 < threshold <= MAX_THRESHOLD:
        raise ValueError(f"audit: expected 0 < threshold <= {MAX_THRESHOLD:,}, got {shown(threshold)}.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"audit: expected seed to be a whole number, or a list of them, got {shown(seed)}.")
    if seed.bit_length() > SEED_BITS:
        raise ValueError(f"audit: expected seed to have at most {SEED_BITS} bits, got {shown(seed)}.")
    from lostwax import audits
    from lostwax.access import Weights
    from lostwax.adapters.net_state import unwrapped
    from lostwax.audits.checks import as_attackers, check_kind, check_unused
    from lostwax.games import Knowledge

    if engine is not None:
        check_kind("audit", "engine", engine)
    settings = audits.Settings(games, seed, threshold, max_minutes, as_attackers(attackers), engine)
    maybe_words = before is not None or tokenizer is not None or isinstance(model, str | PathLike)
    if maybe_words and audits.is_about_words(model, before, tokenizer):
        unused: dict[str, Any] = {"trainer": trainer, "threat": threat, "attack": attack, "prior": prior}
        unused |= {"secrets": secrets, "access": access, "attackers": attackers, "mechanism": mechanism}
        check_unused("a fine-tuned language model", unused)
        return audits.audit_words(model, data, settings, before=before, tokenizer=tokenizer)
    if data is not None:
        game = {"threat": threat, "attack": attack, "access": access, "prior": prior, "secrets": secrets}
        no_metrics = isinstance(metrics, tuple | list) and not metrics
        options = {**game, "metrics": None if no_metrics else metrics, "max_minutes": max_minutes}
        if before is not None:
            more = {"trainer": trainer, "games": games, "sample_weight": sample_weight}
            more |= {"attackers": attackers, "mechanism": mechanism}
            return audits.audit_two_releases(model, data, before, settings, {**options, **more})
        result = audits.audit_model(
            model, data, settings, trainer=trainer, sample_weight=sample_weight, options=options
        )
        return result if mechanism is None else audits.with_mechanism(result, mechanism)
    if mechanism is not None:
        raise TypeError("audit: mechanism is that of a fitted model, with data=. State it in the trainer instead.")
    for name, value in (("sample_weight", sample_weight), ("attackers", attackers), ("before", before)):
        if value is not None:
            raise TypeError(f"audit: {name} applies only with data=(X, y). Leave it out.")
    if trainer is None or threat is None or prior is None or secrets is None:
        needed = {"trainer": trainer, "threat": threat, "prior": prior, "secrets": secrets}
        absent = [name for name, value in needed.items() if value is None]
        if absent[-3:] != ["threat", "prior", "secrets"]:  # a trainer alone fits both kinds of audit
            raise TypeError(f"audit: to audit this way of training, pass {', '.join(absent)} too.")
        raise TypeError(
            "audit: pass data=(X, y), the table the model was fitted on, to audit this model; or "
            f"{', '.join(absent)} to audit this way of training."
        )
    several = tuple(attack) if isinstance(attack, list | tuple) and not hasattr(attack, "prepare") else ()
    parts = {"trainer": trainer, "threat": threat, "attack": None if several else attack, "access": access}
    audits.check_arguments("audit", model, {"prior": prior, "secrets": secrets}, metrics, **parts)
    model = unwrapped(model)
    audits.check_attacks(several)
    prior, secrets = prior.detached(), secrets.detached()
    if len(secrets):  # an empty set is refused later
        audits.check_games(games, len(secrets), "one secret per game")
    audits.check_minutes(max_minutes)
    knowledge = Knowledge(model, trainer, threat, access or Weights(), prior)
    named = several or (() if attack is None else (attack,))
    return audits.audit_procedure(knowledge, secrets, settings, attacks=named, metrics=tuple(metrics))


def simulate(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    prior: Records,
    models: int,
    seed: int = 0,
    store: str | Path | None = None,
    engine: Engine | None = None,
    allow_mixed: bool = False,
    part: tuple[int, int] = (1, 1),
) -> Iterator[tuple[Cohort, Release]]:
    """Train shadow models with the victim's trainer; yields chunks of (training sets, weights).

    Model i is the same for every chunk size and engine. Memory is bounded by the chunk.

    Args:
        net: The architecture, and the initial weights unless the trainer has an `init`.
        trainer: How each model is trained.
        threat: How the training sets are drawn.
        prior: The records they are drawn from.
        models: Number of models.
        seed: Seed of every random draw.
        store: A folder or fsspec URL. Missing models are trained and written before this returns; after a crash, call
            it again. None: models are trained as they are iterated over, and not kept.
        engine: `lw.shadows.Local()`, the default, or `lw.shadows.Ray()`.
        allow_mixed: Add to stored models of another version of lostwax, torch or numpy; the store notes it.
        part: (i, n) trains every n-th chunk of the store, from the i-th: for n processes that share it. What is
            returned can be iterated over once all parts are done.
    """
    from lostwax.adapters.net_state import unwrapped
    from lostwax.audits import check_arguments
    from lostwax.shadows import Game, Local, Store

    check_arguments("simulate", net, {"prior": prior}, trainer=trainer, threat=threat, engine=engine)
    net = unwrapped(net)
    for name, value in (("models", models), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"simulate: expected {name} to be a whole number, got {type(value).__name__}.")
    if seed.bit_length() > SEED_BITS:
        raise ValueError(f"simulate: expected seed to have at most {SEED_BITS} bits, got {shown(seed)}.")
    if not 1 <= models < 2**63:
        raise ValueError(f"simulate: expected 1 <= models < 2**63, got {shown(models)}.")
    engine, prior = engine or Local(), prior.detached()
    if store is None and part != (1, 1):
        raise TypeError("simulate: a part is that of a store. Pass store=, or leave part out.")
    game = Game(net, trainer, threat, prior, seed)
    if store is None:
        return engine(game, models)
    return Store(store, allow_mixed).simulate(game, models=models, engine=engine, part=part)


def report(
    audit: Audit,
    folder: str | Path,
    *,
    records: bool | None = None,
    title: str | None = None,
    model: str | None = None,
    version: str | None = None,
    data_set: str | None = None,
    owner: str | None = None,
    date: str | None = None,
    report_id: str | None = None,
    policy: Policy | None = None,
    compared: Comparison | None = None,
) -> Path:
    """Write a report and return the path of its page, `report.html`, which opens offline on its own.

    Beside it: `audit.json` (every number), `records.csv` (one row per game), `figures/`, and `records.safetensors`
    (originals and reconstructions).

    Args:
        audit: What `lw.audit` returned.
        folder: A new or empty folder, or one that holds an earlier report.
        records: False writes no record, neither originals nor reconstructions. None writes them, except over a report
            that was written without.
        title: Heading of the report.
        model: Name of the model.
        version: Version of the model.
        data_set: Name of the data set, as its owner calls it.
        owner: The person or unit that answers for the model.
        date: Date of the report; None for today.
        report_id: Number of the report in your files; None for a fingerprint of the audit.
        policy: Limits to check the audit against; the result stands on the first screen.
        compared: What `lw.compare` returned; the page then says what the defences cost.
    """
    from lostwax.reports import write

    texts = {"title": title, "model": model, "version": version, "data_set": data_set, "owner": owner}
    texts |= {"date": date, "report_id": report_id}
    return write(audit, folder, records=records, fields=texts, policy=policy, compared=compared)


def compare(
    *audits: Audit, names: Sequence[str] | None = None, accuracy: Sequence[float | None] | None = None
) -> Comparison:
    """Audits side by side: undefended, defended, with differential privacy.

        both = lw.compare(before, after, names=("as it is", "epsilon = 8"), accuracy=(0.91, 0.86))
        both.to_html("comparison.html")

    Args:
        audits: What `lw.audit` returned for each; the first is what the others are compared with.
        names: A short name for each; None for "before" and "after", or what was audited.
        accuracy: The share of right predictions of each model on records that it was not trained on, or None.
    """
    from lostwax.reports.comparison import compare as side_by_side

    return side_by_side(*audits, names=names, accuracy=accuracy)
