"""An audit that names no attack: a net of a million parameters, 50,000 known records, and a few minutes.

    python benchmarks/million_parameters.py --device cuda --data FOLDER [--minutes 3]

Shadow models are too slow to train, so attacks take cheaper forms: those that learn from linear responses, in as many
directions as there is time for. On a CPU the victims alone take hours, and the audit says so after their first steps.
"""

import argparse
import sys
import time
from pathlib import Path

import lostwax as lw
from lostwax_dev.results import Row, parse, write_rows

sys.path.insert(0, str(Path(__file__).parent))
from linear_response import SETTINGS

GAMES = 20
PRIOR = 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of mnist.npz; else LOSTWAX_DATA")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--known", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser)
    setting, start = SETTINGS["million"], time.monotonic()
    parts = lw.records.mnist("all", root=options.data).split(options.known, PRIOR, GAMES, seed=options.seed)
    known, prior, secrets = (part.to(options.device) for part in parts)
    name = f"{options.device} {options.known} {options.minutes:g}"
    where = f"{setting.title}, {options.known:,} known, {options.minutes:g} minutes, {options.device}"

    def row(kind, what, value, interval=(None, None)):
        return Row(f"{name} {kind}", f"{where}: {what}", float(value), *interval, seed=options.seed)

    try:
        audit = lw.audit(
            setting.net,
            trainer=setting.trainer,
            threat=lw.Informed(known),
            prior=prior,
            secrets=secrets,
            max_minutes=options.minutes,
            seed=options.seed,
        )
    except ValueError as refusal:
        print(refusal)
        seconds = time.monotonic() - start
        rows = [row("said", "seconds until the audit says that victims take too long", seconds)]
    else:
        print(audit)
        rows = [row("seconds", "seconds of the audit", time.monotonic() - start)]
        rows += [
            row(f"{one.name} nearer", f"{one.name}, share of guesses nearer than any made without the model", share)
            for one in audit.findings
            for share in [audit.beats_baselines(one).mean()]
        ]
    for one in rows:
        print(f"{one.value:11.4g}  {one.quantity}")
    write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
