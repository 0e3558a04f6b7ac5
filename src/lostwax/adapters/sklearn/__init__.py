"""Read a fitted scikit-learn model, alone or in a pipeline, as equations about its training table."""

from lostwax.adapters.sklearn.inputs import some_rows, unpack
from lostwax.adapters.sklearn.reading import released

__all__ = ["released", "some_rows", "unpack"]
