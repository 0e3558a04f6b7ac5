"""What maintainers, papers/ and benchmarks/ need and users do not: it is not in the wheel."""
