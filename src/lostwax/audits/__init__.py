"""The two kinds of audit, this very model and this way of training, and what they find."""

from lostwax.audits.audit import Audit, Finding, Verdict
from lostwax.audits.checks import check_arguments
from lostwax.audits.fitted import audit_fitted
from lostwax.audits.procedure import audit_procedure
from lostwax.audits.refitted import audit_refitted
from lostwax.audits.released import audit_released
from lostwax.audits.tables import audit_table

__all__ = ["Audit", "Finding", "Verdict", "audit_fitted", "audit_procedure", "audit_refitted", "audit_released"]
__all__ += ["audit_table", "check_arguments"]
