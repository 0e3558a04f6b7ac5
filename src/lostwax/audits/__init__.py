"""The two kinds of audit: this very model, and this way of training."""

from lostwax.audits.fitted import audit_fitted
from lostwax.audits.procedure import audit_procedure

__all__ = ["audit_fitted", "audit_procedure"]
