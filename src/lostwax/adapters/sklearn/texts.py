"""Texts as bags of words: a table with a column for each word of the vocabulary, and what a vectoriser tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import Pipeline

from lostwax.adapters.sklearn.inputs import chosen, steps_of
from lostwax.adapters.sklearn.pipelines import FEW, PipelineReader, Place, is_large, own_facts
from lostwax.adapters.sklearn.steps import Back, step_of
from lostwax.games import Cells, Extremes, Fitted, Kept, Records, Sums
from lostwax.games.folding import SparseFitted, SparseRecords

COUNT_ERROR = 0.05  # a count is a whole number to this
NOISE = 1e-3  # of the largest weight of a text: smaller ones are rounding


def are_texts(X: Any) -> bool:
    """A sequence of strings, not a table."""
    if isinstance(X, str | Mapping) or getattr(X, "ndim", 1) != 1 or not hasattr(X, "__iter__"):
        return False
    values = list(X)
    return bool(values) and all(isinstance(value, str) for value in values)


def counts_of(vectoriser: Any, texts: Any) -> Any:
    """(n, words) sparse: how often each word of the vocabulary occurs in each text."""
    if isinstance(vectoriser, HashingVectorizer) or not isinstance(vectoriser, CountVectorizer):
        raise TypeError(
            f"audit: expected X to be read by CountVectorizer or TfidfVectorizer where it holds texts, got "
            f"{type(vectoriser).__name__}, which keeps no vocabulary. Pass the numbers that it gives, and the steps "
            "after it."
        )
    binary, vectoriser.binary = vectoriser.binary, False
    try:
        return CountVectorizer.transform(vectoriser, texts)
    finally:
        vectoriser.binary = binary


def words_of(vectoriser: Any) -> tuple[str, ...]:
    """The vocabulary in the order of its columns."""
    return tuple(str(word) for word in vectoriser.get_feature_names_out())


def first_step(estimator: Any) -> tuple[Any, Any]:
    """The vectoriser of a pipeline, and the pipeline without it; a search is its best model."""
    estimator = chosen(estimator)
    if not isinstance(estimator, Pipeline) or len(estimator.steps) == 1:
        return estimator, "passthrough"
    (_, first), *later = estimator.steps
    inner, left = first_step(first) if isinstance(first, Pipeline) else (first, "passthrough")
    return inner, Pipeline([("first", left), *later])


Words = Callable[[PipelineReader, Any], tuple[Any, Place]]  # the steps after a vectoriser, and where they begin


def text_columns(estimator: Any, X: Any) -> tuple[dict[int, Words], list[Any], tuple[str, ...]]:
    """The columns of texts in a table, by number, which vectorisers in a ColumnTransformer read.

    Beside it the counts of their words (n, words), sparse, and the names of all words: these come after the columns of
    the table.
    """
    transformer = next(iter(steps_of(estimator)), None)
    columns_of_texts, counts, names = dict[int, Words](), list[Any](), list[str]()
    if not isinstance(transformer, ColumnTransformer):
        return columns_of_texts, counts, ()
    for name, step, columns in transformer.transformers_:
        vectoriser = None if isinstance(step, str) else first_step(step)[0]
        if not isinstance(columns, str | int) or not isinstance(vectoriser, CountVectorizer):
            continue
        place = int(transformer._transformer_to_input_indices[name][0])
        counts.append(counts_of(vectoriser, X.iloc[:, place]))
        columns_of_texts[place] = partial(_read_words, counts=counts[-1], start=X.shape[1] + len(names))
        names += [f"{X.columns[place]}: {word}" for word in words_of(vectoriser)]
    return columns_of_texts, counts, tuple(names)


def _read_words(reader: PipelineReader, step: Any, *, counts: Any, start: int) -> tuple[Any, Place]:
    """The steps after the vectoriser of a column, whose words begin at `start`, and the place where they begin."""
    vectoriser, later = first_step(step)
    words, width = slice(start, start + counts.shape[1]), max(reader.used) + 1
    place = Place(counts, lambda values: values.placed(words, width).columns(reader.used))
    return later, read_vocabulary(vectoriser, reader, place)


def read_vocabulary(vectoriser: Any, reader: PipelineReader, place: Place) -> Place:
    """A word that occurs in no known text occurs in the missing one; the place after the vectoriser."""
    least, name = vectoriser.min_df, type(vectoriser).__name__
    present = (place.rows > 0).astype(np.float64)
    if not vectoriser.fixed_vocabulary_:
        if isinstance(least, int) and least <= 1:  # of a share of texts one is not enough
            never = torch.full((present.shape[1],), torch.inf, dtype=torch.float64)
            words = Extremes(f"{name}'s vocabulary", never, torch.ones_like(never))
            publish_indicators(reader, name, present, place, extremes=(words,))
        texts = np.asarray(present.sum(0)).ravel()  # (words,)
        reader.note_rare(f"the words of {name}", int(((texts > 0) & (texts < FEW)).sum()))
        by_count = vectoriser.max_df != 1.0 or vectoriser.max_features is not None
        if by_count or not isinstance(least, int) or least > 1:  # a word of the least number is in the missing text
            reader.unread.append(
                f"{name} was not read completely: which words it keeps depends on how many texts have them (min_df, "
                "max_df, max_features), and that was not attacked."
            )
    if vectoriser.binary:
        place = place.through(occurs, present)
    return reader.through(vectoriser._tfidf, place) if isinstance(vectoriser, TfidfVectorizer) else place


def publish_indicators(
    reader: PipelineReader,
    name: str,
    present: Any,
    place: Place,
    sums: tuple[Sums, ...] = (),
    extremes: tuple[Extremes, ...] = (),
) -> None:
    """Note what is published about zeros and ones, (n, words) sparse: which words occur in which text."""
    place = place.through(occurs, present)
    if is_large(present):
        table = SparseRecords(present.tocsr(), reader.y)
        fitted = SparseFitted(name, table, reader.weight, sums=sums, extremes=extremes)
        reader.publish_sparse(fitted, place, labelled=False)
    else:
        rows = Records(torch.from_numpy(present.toarray()), reader.y)
        reader.publish(Fitted(name, rows, reader.weight, None, sums, extremes), place, labelled=False)


def occurs(values: Cells) -> Cells:
    """Zeros and ones as counts: none, or one or more."""
    numbers = np.nan_to_num(values.values.astype(np.float64))
    counts = (numbers > 0.5).astype(np.float64)
    return Cells(counts, np.minimum(values.kept, np.where(counts > 0, Kept.SET, Kept.EXACT)).astype(np.uint8))


@step_of.register(TfidfTransformer)
def _(transformer: Any, inputs: Any, outputs: Any) -> Back:
    """Weights over idf are counts, up to a factor where they are normalised: then one of them is taken for a one."""
    idf = np.asarray(transformer.idf_, dtype=np.float64) if transformer.use_idf else np.ones(inputs.shape[1])

    def back(rebuilt: Cells) -> Cells:
        shares = np.nan_to_num(rebuilt.values.astype(np.float64)) / idf  # (g, words)
        occurs = shares > NOISE * shares.max(1, keepdims=True, initial=0.0)
        if transformer.norm is not None:
            shares = shares / np.where(occurs, shares, np.inf).min(1, keepdims=True, initial=1e300)
        counts = np.exp(shares - 1) if transformer.sublinear_tf else shares
        rounded = np.rint(counts).clip(1)
        # counts are whole numbers: weights that give none were not rebuilt to the last digits
        off = np.where(occurs, np.abs(counts - rounded), 0.0).max(1, keepdims=True, initial=0.0)
        kept = np.minimum(rebuilt.kept.min(1, keepdims=True), np.where(off < COUNT_ERROR, Kept.EXACT, Kept.ESTIMATED))
        return Cells(np.where(occurs, rounded, 0.0), np.broadcast_to(kept, counts.shape).astype(np.uint8))

    return back


@own_facts.register(TfidfTransformer)
def _(transformer: Any, reader: PipelineReader, place: Place) -> None:
    """How many texts each word occurs in: idf = ln((s + n) / (s + df)) + 1 with s = 1 where it is smoothed."""
    if not transformer.use_idf:
        return
    texts, name = place.rows.shape[0], type(transformer).__name__
    smooth = float(transformer.smooth_idf)
    frequency = np.rint((smooth + texts) / np.exp(np.asarray(transformer.idf_, dtype=np.float64) - 1) - smooth)
    total = torch.from_numpy(frequency)[None]
    present = (csr_matrix(place.rows) > 0).astype(np.float64)
    if not bool((total[0] == torch.from_numpy(np.asarray(present.sum(0)).ravel())).all()):
        reader.notes.append("TfidfTransformer was not fitted on these texts and is assumed public.")
        reader.public.append("TfidfTransformer")
        return
    number = total.new_full((1,), float(texts))
    sums = Sums("the idf weights", total, number, by_label=False, weighted=False)
    publish_indicators(reader, name, present, place, sums=(sums,))
    reader.notes.append(
        "the idf weights tell in how many texts each word occurs, and so all words of the missing text, whatever the "
        "model after them. Fit them on public texts."
    )
