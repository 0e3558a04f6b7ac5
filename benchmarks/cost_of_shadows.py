"""What do 59 thousand, 2.56 million and a billion shadow models cost, in hours and bytes?

    python benchmarks/cost_of_shadows.py

A model of the cost, from rates measured by other scripts and nothing else: hours = models / rate, bytes = models times
(4 bytes a parameter, 8 for the secret's row). Rates: S1's MLP on MNIST from `shadows_per_second.py` (on one H200, and
on two cores), linear heads on digits from `store_scales.py` (one core, stored).
Checked against `store_scales.py`: its cost at 10 thousand predicts that of its million, and the bytes those on disk.
"""

import argparse
from pathlib import Path

import lostwax as lw
from lostwax_dev.results import Row, parse, read_rows, write_rows

SIZES = {"59K": 59_000, "2.56M": 2_560_000, "1B": 1_000_000_000}
HEAD = 170  # parameters


def main():
    parse(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    results = Path(__file__).parent / "results"
    rate = {row.id: row.value for row in read_rows(results / "shadows_per_second.json")}
    store = {row.id: row for row in read_rows(results / "store_scales.json")}
    costs = {int(name.removeprefix("cost.")): row.value for name, row in store.items() if name.startswith("cost.")}
    mlp = sum(value.numel() for value in lw.nets.mlp(784, 10, 10).parameters())
    kinds = {
        "mlp.h200": (f"S1's MLP ({mlp:,} parameters), one H200", mlp, rate["gpu stacked"]),
        "mlp.cpu": (f"S1's MLP ({mlp:,} parameters), two cores", mlp, rate["stacked"]),
        "head.cpu": (f"digits head ({HEAD} parameters), one core, stored", HEAD, 1e6 / costs[max(costs)]),
    }
    rows = []
    print("| models | " + " | ".join(words for words, _, _ in kinds.values()) + " |\n|---|" + "---|" * len(kinds))
    for size, models in SIZES.items():
        cells = []
        for kind, (words, parameters, speed) in kinds.items():
            hours, stored = models / speed / 3600, models * (4 * parameters + 8)
            rows.append(Row(f"{kind}.{size}.hours", f"{words}: hours for {size}", hours))
            rows.append(Row(f"{kind}.{size}.bytes", f"{words}: bytes for {size}", float(stored)))
            cells.append(f"{in_words(hours, TIMES)}, {in_words(stored, BYTES)}")
        print(f"| {size} | " + " | ".join(cells) + " |")
    predicted = costs[min(costs)] / costs[max(costs)]
    rows.append(
        Row(
            "check.cost", f"cost per shadow model predicted from {min(costs):,} / measured at {max(costs):,}", predicted
        )
    )
    rows.append(
        Row("check.bytes", "bytes per shadow model, predicted / on disk", (4 * HEAD + 8) / store["bytes"].value)
    )
    rows.append(
        Row("driver", "MB/s that one H200 sends to the process that writes", rate["gpu stacked"] * mlp * 4 / 1e6)
    )
    for row in rows[-3:]:
        print(f"{row.quantity}: {row.value:.3g}")
    write_rows(__file__, rows)


TIMES = {"s": 1 / 3600, "min": 1 / 60, "h": 1.0}
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


def in_words(number, units):
    """In the largest unit of which there is one or more, or the smallest."""
    unit = next((unit for unit in reversed(units) if number >= units[unit]), next(iter(units)))
    amount = number / units[unit]
    return f"{amount:,.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"


if __name__ == "__main__":
    main()
