"""An audit as something a person reads."""
