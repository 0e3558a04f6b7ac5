"""The words of the page, explained for readers who decide and do not compute."""

from __future__ import annotations

import re

# a pattern that finds the word on the page -> the word, and what it means
WORDS = {
    r"\battacks?\b": ("attack", "A computation that guesses a training record from the model."),
    r"\battribute inference\b": (
        "attribute inference",
        "To find one value of a person from the model and the person’s other values.",
    ),
    r"\bmembership\b": ("membership", "Whether a record was among those that the model was trained on."),
    r"\bgrade\b": ("grade", "How much the model reveals, in one word; the worst result of all attacks counts."),
    r"\bgames?\b": ("game", "One try to rebuild one record."),
    r"\brecords?\b": ("record", "What the model was trained on: a row of a table, a picture, the data of one person."),
    r"\brebuilt\b": ("rebuilt", "The attack’s guess equals the record, up to the threshold stated above."),
    r"\bthreshold\b": ("threshold", "How close a guess must be to count as rebuilt."),
    r"\bbaselines?\b": ("baseline", "A guess made without the model. Only what is closer comes from the model."),
    r"\bblind guess\b": ("blind guess", "The best guess without the model: an average record, or the likeliest."),
    r"\boracle\b|\bnearest\b": ("nearest record", "The record that the attacker has anyway which is closest."),
    r"\bluck\b|\bchance\b": ("chance, luck", "What a guess reaches that has nothing to do with the secret record."),
    r"\bcandidates?\b": ("candidate", "One of a few records, one of which is the secret."),
    r"\binterval\b": ("95 % interval", "Where the true share lies with 95 % confidence, since only some were tried."),
    r"\bstandard deviations?\b": ("standard deviation", "The usual spread of a column: the unit of errors here."),
    r"\boptimum\b|\bas converged\b": (
        "optimum",
        "The end point of training; a model that stopped before it may hide records by accident.",
    ),
    r"\bweights\b": ("weights", "The numbers inside a model, which training sets and a model file holds."),
    r"\bdifferential(ly)? priva|\bDP-SGD\b|\bDP\b": (
        "differential privacy (DP)",
        "Noise in training, so that the model would be nearly the same without any one record.",
    ),
    r"ε": ("ε (epsilon), δ (delta)", "The strength of differential privacy: the smaller, the stronger."),
    r"\bnoise multiplier\b": ("noise multiplier", "How much noise is added, relative to the effect of one record."),
    r"\bceiling\b": ("ceiling", "A limit on the success of every attack, known or not, that follows from the noise."),
    r"\bcertified\b": ("certified", "Proved by mathematics, not estimated from trials."),
    r"\bfalse-positive|\bfalse positives\b": (
        "false positives, true positives",
        "How often the attack claims a record by accident, and how often rightly.",
    ),
    r"\bpolicy\b": ("policy", "The limits that your organisation sets; each is checked against the audit."),
    r"\bverdicts?\b": ("verdict", "Why a record is or is not rebuilt: by the model, the solver or the attack."),
}


MARK = "<!-- glossary -->"  # where the glossary goes, once the words of the page are known


def with_glossary(page: str) -> str:
    """The page, with a section on the words that it uses in place of the mark."""
    entries = "".join(f"<div><dt>{word}</dt><dd>{meaning}</dd></div>\n" for word, meaning in used(page))
    heading = '<h2 id="glossary">Words used here</h2>'
    section = f'<section aria-labelledby="glossary">\n{heading}\n<dl class="glossary">\n{entries}</dl>\n</section>'
    return page.replace(MARK, section)


def used(page: str) -> list[tuple[str, str]]:
    """The words that occur in the text of the page, in alphabetical order, with their meanings."""
    text = re.sub(r"<(style|script|svg)\b.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    found = [entry for pattern, entry in WORDS.items() if re.search(pattern, text, re.IGNORECASE)]
    return sorted(found, key=lambda entry: entry[0].lower())
