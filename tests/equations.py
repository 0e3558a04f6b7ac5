"""The equation that an adapter reads in a scikit-learn model, for tests."""

from dataclasses import replace

from lostwax.adapters.sklearn import released
from lostwax.games import Fitted


def read(model, data, sample_weight=None) -> Fitted:
    """What a release states about rows of the table itself; an error that says why nothing of it was read."""
    release = released(model, data, sample_weight)
    if not release.parts:
        raise TypeError(" ".join(release.unread))
    return release.equation or replace(release.parts[-1].stated, notes=release.notes)
