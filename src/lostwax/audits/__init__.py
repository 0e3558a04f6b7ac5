"""The two kinds of audit, this very model and this way of training, and what they find."""

from lostwax.audits.audit import Audit, Finding, Verdict
from lostwax.audits.ceiling import with_mechanism
from lostwax.audits.checks import check_arguments, check_attacks, check_games, check_minutes
from lostwax.audits.fine_tuned_words import audit_words, is_about_words
from lostwax.audits.models import audit_model
from lostwax.audits.play import Settings
from lostwax.audits.procedure import audit_procedure
from lostwax.audits.several import Audits
from lostwax.audits.two_releases import audit_two_releases

__all__ = ["Audit", "Audits", "Finding", "Settings", "Verdict", "audit_model", "audit_procedure"]
__all__ += ["audit_two_releases", "audit_words", "check_arguments", "check_attacks", "check_games", "check_minutes"]
__all__ += ["is_about_words", "with_mechanism"]
