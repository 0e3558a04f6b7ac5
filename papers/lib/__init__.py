"""What only the scripts of papers/ use."""
