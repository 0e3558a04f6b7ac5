"""Links of a Markdown page to files beside it."""

import re


def dead_links(page):
    """What it points to and is not there."""
    links = re.findall(r"\]\((?!https?:)([^)#:]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text())
    return [f"{page.name}: {link or source}" for link, source in links if not (page.parent / (link or source)).exists()]
