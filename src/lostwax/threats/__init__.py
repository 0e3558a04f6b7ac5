"""Threats: what the adversary knows of a training set, and how training sets are dealt."""

from lostwax.threats.informed import Informed

__all__ = ["Informed"]
