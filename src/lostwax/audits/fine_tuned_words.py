"""Which words of private texts can be read from a fine-tuned language model, beside the public model it was made of?

The games are the distinct words (tokens) of the owner's texts. A word comes back if it is in the list that `TunedWords`
makes of the two files. What anybody could list without them is as many of the most frequent words of the language:
tokenizers number their words by frequency.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.adapters.language_models import (
    LanguageModel,
    Vocabulary,
    is_language_model,
    open_model,
    tokens_of,
    vocabulary_of,
    with_adapter,
)
from lostwax.attacks.text.words import TunedWords, WordList
from lostwax.audits.audit import Audit
from lostwax.audits.luck import Luck
from lostwax.audits.play import Answer, OneGamePerRow, Settings, filled, judged
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Guess, Note, Records

FREQUENT = "most frequent words of the language"
PERSONAL = re.compile(r"[0-9@]|^\W?[A-Z][a-z]{2}")  # numbers, mail addresses, names
ADAPTERS = (
    "Train adapters of low rank on q and v: hardly a word was read from them. To freeze the table of embeddings "
    "is not enough: there is no list of words then, but the first words of a ranking still occur."
)
OTHER_TEXTS = 2.0  # times the predicted share of wrong words


class ListedWords(NamedTuple):
    """What both files tell anybody, with the tokens as text."""

    words: WordList
    vocabulary: Vocabulary | None

    @property
    def texts(self) -> list[str]:
        """The listed words, those that may be personal first."""
        if self.vocabulary is None:
            return [str(token) for token in self.words.words.tolist()]
        texts = [self.vocabulary.tokens[token] for token in self.words.words.tolist()]
        return sorted(texts, key=lambda text: PERSONAL.search(text) is None)


def is_about_words(model: Any, before: Any, tokenizer: Any) -> bool:
    """Is this the audit of a fine-tuned language model?"""
    return tokenizer is not None or isinstance(before, Mapping) or is_language_model(model)


def listed_words(base: Any, tuned: Any, tokenizer: Any = None, *, fdr: float = 0.05) -> ListedWords:
    """What anybody can list who has both; each a folder, a file, a net, or tensors by name."""
    before, after = _opened(base), _opened(tuned)
    after = with_adapter(before, after)
    places = [place for place in (tokenizer, tuned, base) if isinstance(place, str | PathLike)]
    vocabulary = next((read for place in places if (read := vocabulary_of(Path(place))) is not None), None)
    silent = () if vocabulary is None else vocabulary.silent
    return ListedWords(TunedWords(fdr=fdr)(before.tensors, after.tensors, silent=silent), vocabulary)


def audit_words(model: Any, texts: Any, settings: Settings, *, before: Any, tokenizer: Any) -> Audit:
    """The audit of words that come back; `texts` are texts, or their token numbers."""
    if before is None:
        raise TypeError("audit: a fine-tuned language model is audited beside its base: pass before=, the public one.")
    if texts is None or isinstance(texts, str | bytes):
        raise TypeError("audit: expected the texts that the model was fine-tuned on, as a list of strings.")
    start = time.perf_counter()
    listed, vocabulary = listed_words(before, model, tokenizer)
    seconds = time.perf_counter() - start
    if tokenizer is None:
        folders = [place for place in (model, before) if isinstance(place, str | PathLike)]
        tokenizer = next((folder for folder in folders if (Path(folder) / "tokenizer.json").is_file()), None)
    inputs = getattr(texts, "x", texts)
    special = frozenset[int]() if vocabulary is None else vocabulary.special
    distinct = {number for text in tokens_of(inputs, tokenizer) for number in text} - special
    if not distinct:
        raise ValueError("audit: the texts have no word. Pass the texts that the model was fine-tuned on.")
    if max(distinct) >= len(listed.order):
        raise ValueError(
            f"audit: the texts have token {max(distinct)}, but the model has {len(listed.order):,} tokens. Pass the "
            "tokenizer of this model."
        )
    judging = _Judging.of(listed, sorted(distinct), vocabulary)
    names: dict[str, Any] = {} if vocabulary is None else {"columns": ("word",)}
    if vocabulary is not None:
        names["categories"] = (tuple(vocabulary.tokens[token] for token in judging.tokens.tolist()),)
    answer = Answer(TunedWords(), judging.guess(judging.ours), seconds)
    right = int(judging.ours.sum())
    return filled(
        judging,
        [judged(judging, answer)],
        subject=f"{_opened(model).name}, fine-tuned from {_opened(before).name}",
        kind="this model",
        adversary=Adversary(known=0, records=len(distinct), unit="word", files=2),
        threat="the adversary knows no word of the texts, and has both files",
        attack=answer.name,
        numbers=torch.arange(len(distinct)),
        seed=settings.seed,
        provenance={
            "attack": repr(TunedWords()),
            "movement": str(listed.movement),
            "listed": listed.listed,
            "right": right,
            "predicted_wrong": listed.fdr,
            "ranked_right": judging.ranked,
        },
        notes=tuple(_notes(listed, judging, right)),
        unanswered=(f"Which words of the texts can be listed: {listed.unlisted_because}",) if not listed.listed else (),
        labels_given=True,
        **names,
    )


def _notes(listed: WordList, judging: _Judging, right: int) -> list[Note]:
    words = len(judging.tokens)
    notes = [Note(f"{listed.movement}.")]
    if listed.listed:
        wrong = 1 - right / listed.listed
        notes.append(
            Note(
                f"{listed.listed:,} words are listed, {right:,} of them occur: {100 * wrong:.2g} % are wrong, "
                f"{100 * listed.fdr:.2g} % were predicted. {listed.assumption}",
                cure=ADAPTERS,
            )
        )
        if wrong > OTHER_TEXTS * max(listed.fdr, 0.05):
            notes.append(Note("More words are wrong than predicted: the model was fine-tuned on other texts too."))
    notes.append(
        Note(f"Of the first {words:,} words of the ranking, {judging.ranked:,} occur; of the {FREQUENT}, "
             f"{judging.frequent:,}.")
    )  # fmt: skip
    return notes


@dataclass(frozen=True, eq=False)
class _Judging(OneGamePerRow):
    """Each distinct word of the texts is a game, won if it is listed."""

    secrets: Records  # (n, 1) the numbers of the games
    scoring: Scoring  # the very word or none
    tokens: Tensor  # (n,) the words of the texts, those that come back first
    ours: NDArray[np.bool_]  # (n,) which of them are listed ...
    theirs: NDArray[np.bool_]  # (n,) ... and which by an equally long list of frequent words
    ranked: int  # how many are among the first n of the ranking
    frequent: int  # ... and among the n most frequent words

    @classmethod
    def of(cls, listed: WordList, tokens: list[int], vocabulary: Vocabulary | None) -> _Judging:
        """Games of these words; those that may be personal come first among those that are listed."""
        place = torch.empty_like(listed.order)
        place[listed.order] = torch.arange(len(place))
        left_out = set() if vocabulary is None else {*vocabulary.special, *vocabulary.silent}
        common = np.array([token for token in range(len(place)) if token not in left_out])
        texts = [""] * len(place) if vocabulary is None else vocabulary.tokens

        def order(token: int) -> tuple[bool, bool, int]:
            at = int(place[token])
            return at >= listed.listed, PERSONAL.search(texts[token]) is None, at

        numbers = torch.tensor(sorted(tokens, key=order))
        places = torch.arange(len(numbers), dtype=torch.float64)[:, None]
        return cls(
            Records(places, torch.zeros(len(numbers))),
            Scoring.of(places, 0.0, with_secrets=True),
            numbers,
            (place[numbers] < listed.listed).numpy(),
            np.isin(numbers.numpy(), common[: listed.listed]),
            int((place[numbers] < len(numbers)).sum()),
            int(np.isin(numbers.numpy(), common[: len(numbers)]).sum()),
        )

    def guess(self, won: NDArray[np.bool_]) -> Guess:
        """The listed words, and nothing for the others."""
        x = self.secrets.x.masked_fill(torch.from_numpy(~won)[:, None], torch.nan)
        return Guess(Records(x[:, None], torch.zeros(len(won), 1)), torch.from_numpy(won).double()[:, None])

    def without_model(self) -> dict[str, Tensor]:
        """An equally long list of frequent words."""
        return {FREQUENT: self.guess(self.theirs).records.x[:, 0]}

    def luck(self, guess: Guess) -> Luck:
        """A sign test of the words that only one of the two lists has."""
        more, less = int((self.ours & ~self.theirs).sum()), int((self.theirs & ~self.ours).sum())
        share, games = float(self.theirs.mean()), len(self.tokens)
        return Luck(games, int(self.ours.sum()), share, 1.0, more, less / games, 0.5, (more, less), (more, less))


def _opened(model: Any) -> LanguageModel:
    if isinstance(model, nn.Module):
        return LanguageModel(type(model).__name__, model.state_dict())
    if isinstance(model, Mapping):
        return LanguageModel("a language model", model)
    return open_model(model)
