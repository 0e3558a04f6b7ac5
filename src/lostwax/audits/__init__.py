"""The two kinds of audit, this very model and this way of training, and what they find."""

from lostwax.audits.audit import Audit, Finding, Verdict
from lostwax.audits.checks import check_arguments, check_attacks, check_games, check_minutes
from lostwax.audits.fitted import audit_fitted
from lostwax.audits.models import audit_model
from lostwax.audits.procedure import audit_procedure
from lostwax.audits.refitted import audit_refitted
from lostwax.audits.released import audit_released
from lostwax.audits.several import Audits
from lostwax.audits.tables import audit_table

__all__ = ["Audit", "Audits", "Finding", "Verdict", "audit_fitted", "audit_model", "audit_procedure", "audit_refitted"]
__all__ += ["audit_released", "audit_table", "check_arguments", "check_attacks", "check_games", "check_minutes"]
