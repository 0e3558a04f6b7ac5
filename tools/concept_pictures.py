"""Draw the pictures of docs/concepts.md: `python tools/concept_pictures.py`. They follow a light or a dark theme."""

import math
from pathlib import Path

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
STYLE = """
  text { font: 15px system-ui, sans-serif; fill: #1f2933; }
  .small { font-size: 13px; fill: #52606d; } .strong { font-weight: 600; } .middle { text-anchor: middle; }
  .end { text-anchor: end; }
  .known { fill: #4a7fb5; } .secret { fill: #c2410c; } .guess { fill: #b7791f; } .like { fill: #9fb3c8; }
  .line { stroke: #52606d; stroke-width: 1.6; fill: none; } .dash { stroke-dasharray: 5 4; }
  .box { fill: #f0f4f8; stroke: #9fb3c8; } .zone { fill: #b7791f; opacity: 0.14; }
  .white { fill: #ffffff; font-weight: 700; }
  .ceiling { stroke: #c2410c; stroke-width: 2.5; fill: none; } .attack { fill: #b7791f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb; } .small { fill: #b8c4d0; } .line { stroke: #b8c4d0; }
    .known { fill: #6fa8dc; } .secret { fill: #f0764a; } .guess { fill: #e0a84a; } .like { fill: #62788f; }
    .box { fill: #243240; stroke: #62788f; } .zone { fill: #e0a84a; opacity: 0.18; } .white { fill: #10202f; }
    .ceiling { stroke: #f0764a; } .attack { fill: #e0a84a; }
  }
"""
ARROW = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" class="like"/></marker>'
)
EPSILON = (1, 2, 4, 8, 16, 32, 64, 100)  # papers/s3_attacks.py, the table of docs/dpsgd.md
CEILING = (0.155, 0.218, 0.361, 0.650, 0.948, 1.0, 1.0, 1.0)
ATTACK = (0.142, 0.190, 0.288, 0.425, 0.679, 0.895, 0.976, 0.992)


def text(x, y, words, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def arrow(x0, y0, x1, y1, kind="line"):
    return f'<path d="M{x0} {y0}L{x1} {y1}" class="{kind}" marker-end="url(#tip)"/>'


def box(x, y, width, height, *lines):
    middle = y + height / 2 + 5 - 9 * (len(lines) - 1)
    words = [
        text(x + width / 2, middle + 19 * row, line, "middle strong" if row == 0 else "middle small")
        for row, line in enumerate(lines)
    ]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="box"/>' + "".join(words)


def records(x, y, kinds, columns=6, size=18):
    """Small squares, one per record; a secret one has a question mark."""
    drawn = []
    for number, kind in enumerate(kinds):
        left, top = x + (size + 4) * (number % columns), y + (size + 4) * (number // columns)
        drawn.append(f'<rect x="{left}" y="{top}" width="{size}" height="{size}" rx="3" class="{kind}"/>')
        if kind == "secret":
            drawn.append(text(left + size / 2, top + 14, "?", "middle white"))
    return "".join(drawn)


def game():
    """One game: deal, train, release, attack, judge."""
    one_secret = ["known"] * 11 + ["secret"]
    yield text(20, 26, "The owner", "strong")
    yield records(20, 44, one_secret)
    yield text(20, 112, "known records and one secret", "small")
    yield arrow(165, 65, 222, 65)
    yield box(228, 40, 120, 50, "training")
    yield arrow(350, 65, 407, 65)
    yield box(413, 40, 150, 50, "released model")
    yield '<path d="M20 140H780" class="line dash"/>'
    yield text(20, 170, "The adversary", "strong")
    yield records(20, 188, ["known"] * 11)
    yield text(20, 256, "knows these,", "small")
    yield records(20, 268, ["like"] * 6)
    yield text(20, 310, "and records like the secret", "small")
    yield arrow(165, 230, 407, 230)
    yield arrow(488, 92, 488, 196)
    yield box(413, 202, 150, 56, "attack", "never sees the secret")
    yield arrow(565, 230, 622, 230)
    yield records(628, 221, ["guess"])
    yield text(654, 235, "guess")
    yield records(700, 56, ["secret"])
    yield text(726, 70, "secret")
    yield arrow(640, 216, 696, 82)
    yield text(682, 160, "how close?", "strong")
    yield text(682, 179, "by chance?", "small")


def threats():
    """Who knows what: three adversaries."""
    heads = (
        ("Informed", "knows all records but one", ["known"] * 17 + ["secret"], "worst case; the default", "for tables"),
        ("Weak", "knows none of them,", ["secret"] * 18, "has similar records", "and knows how it was trained"),
        ("Predictions only", "knows all records but one,", ["known"] * 17 + ["secret"], "sees outputs,", "no weights"),
    )
    for number, (name, line, kinds, below, last) in enumerate(heads):
        left = 20 + 260 * number
        yield text(left, 28, name, "strong")
        yield text(left, 48, line, "small")
        yield records(left, 62, kinds)
        yield text(left, 148, below, "small")
        yield text(left, 167, last, "small")
    yield records(20, 186, ["known"]) + text(46, 200, "known", "small")
    yield records(120, 186, ["secret"]) + text(146, 200, "secret", "small")


def baselines():
    """The error of a guess, beside those that need no model."""
    left, right, y = 40, 760, 110
    yield f'<rect x="{left}" y="60" width="120" height="50" class="zone"/>'
    yield f'<path d="M{left} {y}H{right}" class="line" marker-end="url(#tip)"/>'
    yield text(right, y + 48, "error of a guess", "end small")
    for x, kind, words, more in (
        (95, "guess", "a guess here:", "rebuilt"),
        (260, "guess", "a guess here:", "recognisable"),
    ):
        yield f'<circle cx="{x}" cy="{y}" r="7" class="{kind}"/>' + text(x, 32, words, "middle small")
        yield text(x, 50, more, "middle strong")
    yield f'<path d="M160 60V{y + 8}" class="line dash"/>' + text(160, y + 26, "threshold", "middle small")
    for x, name, more in ((420, "nearest record", "the adversary has"), (610, "blind guess", "mean of known records")):
        yield f'<path d="M{x} 70V{y + 8}" class="line"/>' + text(x, 44, name, "middle strong")
        yield text(x, 62, more, "middle small")
    yield text(40, y + 48, "0: the secret itself", "small")


def ceiling():
    """Success by epsilon: the ceiling, an attack, a blind guess (measured: docs/dpsgd.md)."""

    def at(epsilon, success):
        return 70 + 560 * math.log(epsilon) / math.log(100), 270 - 220 * success

    points = [at(*pair) for pair in zip(EPSILON, CEILING, strict=True)]
    path = "L".join(f"{x:.0f} {y:.0f}" for x, y in points)
    yield f'<path d="M{path}L630 50L70 50Z" class="zone"/>'
    yield text(150, 90, "no attack gets here", "strong")
    yield f'<path d="M{path}" class="ceiling"/>'
    yield f'<path d="M70 {270 - 22}H630" class="line dash"/>' + text(640, 253, "blind guess", "small")
    yield from (f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" class="attack"/>' for x, y in (at(*one) for one in ROWS))
    yield text(640, 48, "ceiling", "strong") + text(640, 68, "attack (dots)", "small")
    yield '<path d="M70 40V270H640" class="line"/>'
    for epsilon in (1, 2, 4, 8, 16, 32, 64):
        yield text(f"{at(epsilon, 0)[0]:.0f}", 290, epsilon, "middle small")
    for success in (0, 0.5, 1):
        yield text(60, 275 - 220 * success, f"{success:.0%}", "end small")
    yield text(350, 312, "epsilon (less noise to the right)", "middle small")


ROWS = tuple(zip(EPSILON, ATTACK, strict=True))
PICTURES = {"game": (game, 330), "threats": (threats, 215), "baselines": (baselines, 165), "ceiling": (ceiling, 325)}


def picture(name):
    draw, height = PICTURES[name]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" width="800" height="{height}">'
    body = "\n".join(draw())
    return f"{head}\n<style>{STYLE}</style>\n<defs>{ARROW}</defs>\n{body}\n</svg>\n"


def main():
    for name in PICTURES:
        (FIGURES / f"concept_{name}.svg").write_text(picture(name))


if __name__ == "__main__":
    main()
