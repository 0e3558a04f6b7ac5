"""A result as a small card of HTML for notebooks: no script, no image, and no style that reaches outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# every rule starts with the class of the card
STYLE = """
.lostwax-card { --ink: #1f1d1b; --muted: #6f6a63; --line: #ddd7cd; --tone: #1f1d1b; --paper: #fdfcfa;
  box-sizing: border-box; max-width: 46rem; padding: 1rem 1.25rem; border: 1px solid var(--line); border-radius: .6rem;
  color: var(--ink); background: var(--paper); font: 14px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
  text-align: left; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.lostwax-card.lostwax-alarm { --tone: #a8491f; }
.lostwax-card.lostwax-warning { --tone: #8a6500; }
@media (prefers-color-scheme: dark) {
  .lostwax-card { --ink: #ece8e1; --muted: #a59e93; --line: #3a3631; --tone: #ece8e1; --paper: #171513; }
  .lostwax-card.lostwax-alarm { --tone: #e58d63; }
  .lostwax-card.lostwax-warning { --tone: #d9b24c; }
}
.lostwax-card p { margin: 0 0 .5rem; color: inherit; font-size: 1em; }
.lostwax-card .lostwax-muted { color: var(--muted); font-size: .85em; margin: 0; }
.lostwax-card .lostwax-grade { display: inline-block; border: 1px solid currentColor; border-radius: 1rem;
  padding: 0 .6rem; font-size: .85em; font-weight: 600; color: var(--tone); margin: .35rem 0; }
.lostwax-card .lostwax-headline { font-size: 1.45em; line-height: 1.2; font-weight: 650; color: var(--tone); }
.lostwax-card .lostwax-lead { font-weight: 600; }
.lostwax-card .lostwax-facts { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin: .75rem 0;
  padding: .6rem 0; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); }
.lostwax-card .lostwax-fact { flex: 1 1 9rem; }
.lostwax-card .lostwax-fact b { display: block; font-size: 1.35em; line-height: 1.2; font-weight: 600; }
.lostwax-card .lostwax-fact i { display: block; font-style: normal; font-weight: 600; }
.lostwax-card .lostwax-fact span { display: block; color: var(--muted); font-size: .85em; line-height: 1.35; }
"""


def card(
    tone: str,
    *,
    kicker: str,
    headline: str,
    grade: str = "",
    lead: str = "",
    text: Sequence[str] = (),
    facts: Sequence[tuple[str, str, str]] = (),
    small: str = "",
) -> str:
    """HTML that can stand in any page; every string is text. `facts` are (value, name, detail)."""
    shown = "".join(
        f'<div class="lostwax-fact"><b>{escape(value)}</b><i>{escape(name)}</i><span>{escape(detail)}</span></div>'
        for value, name, detail in facts
    )
    parts = [
        _paragraph("lostwax-muted", kicker),
        _paragraph("lostwax-grade", grade),
        _paragraph("lostwax-headline", headline),
        _paragraph("lostwax-lead", lead),
        *(_paragraph("lostwax-text", paragraph) for paragraph in text),
        f'<div class="lostwax-facts">{shown}</div>' if shown else "",
        _paragraph("lostwax-muted", small),
    ]
    return f'<style>{STYLE}</style><div class="lostwax-card lostwax-{escape(tone)}">{"".join(parts)}</div>'


def _paragraph(kind: str, text: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""
