"""S1 Figure 5, MNIST: the error over the number of shadow models, and whether other metrics tell the same story.

    python papers/s1_figure5.py --device cuda [--rows 100 1000 ...] [--data FOLDER]

(c, d) mean squared error and KL under a judge, a LeNet trained on the prior, for 100 to 59,000 shadow models, without
changed copies; (a, b) correlations over the targets of the mean squared error with LPIPS and with KL, at the most
shadows. S1 in words: better than the oracle from 8,000 shadows; MSE and LPIPS strongly correlated; a small MSE implies
a small KL, but not the converse.
"""

from s1_mnist import Game, Judges, arguments, correlation_rows, mean_row, scores, split, table, write

from lostwax_dev.results import Row

COUNTS = (100, 300, 1_000, 3_000, 8_000, 20_000, 59_000)
GAMES = {str(count): Game(prior=count, copies=1) for count in COUNTS}


def main() -> None:
    options = arguments(__doc__, GAMES)
    data = split(options)
    judges = Judges.of(data, options)
    accuracy = Row("judge", "accuracy of the judge on held-out prior records", judges.accuracy, paper=0.994)
    write(__file__, [accuracy], options)
    played = table(__file__, GAMES, data, options)
    divergences = {name: scores(judges.kl, game, data) for name, game in played.items()}
    for name, numbers in divergences.items():
        write(__file__, [mean_row(f"{name}.kl", f"{name}: mean KL in nats ({played[name].sizes})", numbers)], options)
    most = max(played, key=int)
    for metric, numbers in (("LPIPS", scores(judges.lpips, played[most], data)), ("KL", divergences[most])):
        rows = correlation_rows(metric, played[most].errors, numbers, played[most].sizes, seed=options.seed)
        write(__file__, rows, options)


if __name__ == "__main__":
    main()
