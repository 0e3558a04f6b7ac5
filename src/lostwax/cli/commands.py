"""All commands by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lostwax.cli import audits, bounds, kappa, lists

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": audits.demo,
    "init": audits.init,
    "audit": audits.audit,
    "report": audits.report,
    "simulate": audits.simulate,
    "list": lists.show,
    "bound": bounds.bound,
    "calibrate": bounds.calibrate,
}
KAPPAS: dict[str, Callable[..., Any]] = {
    prior.__name__: prior for prior in (kappa.candidates, kappa.ball, kappa.gaussian, kappa.pixels, kappa.sample)
}
