"""S1 Figure 20, CIFAR-10: the error by the number of epochs that the released model was trained for.

    python papers/s1_figure20.py --device cuda --engine linear --directions 512 --shadows 54000 --targets 1000 \\
        --seed 1 [--rows epochs_240 epochs_250 ...] [--data FOLDER]
    python papers/s1_figure20.py --device cuda --store FOLDER [--rows epochs_240 ...] [--data FOLDER]

S1 appendix: 5,000 known records, 1,000 targets. In words: the error grows slowly with the epochs, and jumps at 240 to
250. S1 has it as a curve; its numbers are those of Tables II (200 epochs) and IX (100, 250 and 500). Shadow models are
by linear response (see `s1_cifar.py`), as many as S1's, one sweep per number of epochs; where the response no longer
holds the script says so, and the row is left out: then trained ones, with --store. The attack is our regression in
closed form, or in rows that end in "newton" the response inverted, where S1 has its reconstructor network. S1 does not
name the learning rate, so our epochs may not be worth as much as S1's.
"""

from dataclasses import replace

from s1_cifar import GD, Game, arguments, table

EPOCHS = {  # S1's mean squared error
    **{50: None, 100: 0.0049, 150: None, 200: 0.0094, 230: None, 240: None},
    **{250: 0.0201, 260: None, 300: None, 400: None, 500: 0.0761},
}
GAMES = {
    f"epochs_{epochs}": Game(paper=error, trainer=replace(GD, steps=epochs), kernel=True)
    for epochs, error in EPOCHS.items()
}
GAMES |= {f"{name}_newton": replace(game, kernel=False, newton=True) for name, game in GAMES.items()}

if __name__ == "__main__":
    table(__file__, GAMES, arguments(__doc__, GAMES))
