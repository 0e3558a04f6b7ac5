"""What is looked at before an audit of a way of training does any work: do net, trainer and records fit together?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lostwax.audits.pixels import pixel_range
from lostwax.games import Records, Threat, Trainer

ROWS_AT_A_TIME = 8_192
FEW = 30  # different records: a prior that is mostly copies of fewer teaches an attack little
SAME = 1e-3  # of the deviation of the other records: what varies less does not vary
RARE = 0.05  # of the numbers: those that hardly vary elsewhere do not count


def check_alike(secrets: Records, prior: Records) -> None:
    """Secrets that do not fit would be noticed only after the attack has been prepared."""
    if len(secrets) == 0:
        raise ValueError("audit: expected at least one record in secrets, got none. They are what is to be rebuilt.")
    if len(prior) == 0:
        raise ValueError(
            "audit: expected at least one record in prior, got none. Where the adversary has no side data, give it the "
            "records that it knows: prior=known."
        )
    for part in ("x", "y"):
        ours, theirs = getattr(secrets, part), getattr(prior, part)
        for what, got, wanted in (
            ("shape", tuple(ours.shape[1:]), tuple(theirs.shape[1:])),
            ("dtype", ours.dtype, theirs.dtype),
            ("device", ours.device, theirs.device),
        ):
            if got != wanted:
                raise ValueError(
                    f"audit: secrets.{part} and prior.{part} differ in {what}: {got} and {wanted}. "
                    "Convert one of them (Records.to)."
                )


def check_varied(known: Records, prior: Records, secrets: Records) -> tuple[str, ...]:
    """Refuse a prior whose records are all alike: whatever learns from it finds nothing, and proves nothing.

    A sentence where they are copies of a few.
    """
    cure = "Give the adversary records like the secrets: known, prior, secrets = records.split(..., seed=0)."
    rows = prior.matches(prior)  # (n,) the first of each record's copies
    different = int((rows == torch.arange(len(rows))).sum())
    if different < 2:
        raise ValueError(f"audit: the prior is one record, {len(prior):,} times: nothing can be learnt from it. {cure}")
    own, *more = (_deviation(part) for part in (prior, known, secrets) if len(part) > 1)  # (d,) each
    others = torch.stack(more).amin(0) if more else torch.zeros_like(own)
    varies = (own > SAME * others)[others > 0].double()
    if len(varies) and float(varies.mean()) < RARE and float(own.norm()) < SAME * float(others.norm()):
        raise ValueError(
            f"audit: the records of the prior hardly differ: their numbers have less than {SAME:g} of the deviation "
            f"that those of threat.known and secrets have. {cure}"
        )
    if different < min(FEW, len(prior) / 2):
        return (f"The prior's {len(prior):,} records are copies of {different}: too few to learn from.",)
    return ()


def check_ranges(known: Records, prior: Records, secrets: Records) -> None:
    """The prior states the range of a pixel: other images outside it, or in a much narrower one, are scaled wrong."""
    stated = pixel_range(prior.x)
    if stated is None:
        return
    for name, x in (("threat.known", known.x), ("secrets", secrets.x)):
        if len(x) and (not stated.holds(x) or (stated.high > 1 and 0 < float(x.max()) <= 1)):
            raise ValueError(
                f"audit: the images of {name} and of prior are not scaled alike: those of {name} have pixels "
                f"{_span(x)}, those of prior {_span(prior.x)}. Scale all to one range, best [0, 1]."
            )


def check_trainable(
    net: nn.Module, trainer: Trainer, threat: Threat, prior: Records, secrets: Records, *, seed: int
) -> None:
    """The trainer's own refusals, for every record that a model will ever be trained on."""
    for name, pool in (("secrets", secrets), ("prior", prior)):
        games = max(1, ROWS_AT_A_TIME // threat.deal(pool, 1, seed=seed).secrets)  # at a time
        for start in range(0, len(pool), games):
            cohort = threat.deal(pool, min(games, len(pool) - start), seed=seed, start=start)
            try:
                trainer.tile_size(net, cohort)
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"audit: the net cannot be trained on threat.known and {name} (shared and own records of a "
                    f"cohort): {error}"
                ) from error


def overlap_notes(known: Records, prior: Records, secrets: Records) -> tuple[str, ...]:
    """Records that stand in two places, each with its rows; an error where no secret is a secret.

    A few are no mistake: tables have equal rows. The headline survives them, for no guess beats an oracle that holds
    the secret itself.
    """
    doubled, in_known, in_prior = prior.matches(known), secrets.matches(known), secrets.matches(prior)
    if bool(((in_known >= 0) | (in_prior >= 0)).all()):
        places = [*_overlap("secrets", in_known, "threat.known"), *_overlap("secrets", in_prior, "prior")]
        raise ValueError(
            f"audit: the adversary has all {len(secrets)} secrets already, and nothing is left to rebuild: "
            f"{'; '.join(places)}. Deal disjoint parts: known, prior, secrets = records.split(..., seed=0)."
        )
    pairs = (
        (_overlap("prior", doubled, "threat.known"), "prior.without(known)", "A shadow model then holds one twice."),
        (_overlap("secrets", in_known, "threat.known"), "secrets.without(known)", "The adversary has them anyway."),
        (
            _overlap("secrets", in_prior, "prior"),
            "secrets.without(prior)",
            "The attack learns from these very records.",
        ),
    )
    return tuple(f"{found}. {why} {cure} leaves them out." for overlap, cure, why in pairs for found in overlap)


def _overlap(name: str, rows: Tensor, place: str) -> list[str]:
    """How many records called `name` match `rows` (n,) of the place, -1 for no match; nothing where none does."""
    found = (rows >= 0).nonzero().flatten().tolist()
    if not found:
        return []
    first = f"{name} row {found[0]} = {place} row {int(rows[found[0]])}"
    return [f"{name}: {len(found)} of {len(rows)} records are also in {place} (first: {first})"]


def _deviation(records: Records) -> Tensor:
    return records.x.flatten(1).double().cpu().std(0, correction=0)


def _span(x: Tensor) -> str:
    """The customary range of the pixels: no pixel is quoted."""
    limits = pixel_range(x)
    return "outside of [-1, 1] and [0, 255]" if limits is None else f"in {limits}"
