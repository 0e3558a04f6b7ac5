"""What attacks that learn share: shadow tables, standardising, decoders, kernel regression, saving."""
