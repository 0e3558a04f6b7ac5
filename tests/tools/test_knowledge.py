from pathlib import Path

import pytest

from lostwax_dev import knowledge

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("page", knowledge.TABLES)
def test_tables_are_those_of_the_results(page):
    text = (ROOT / "docs" / page).read_text()
    printed = text.partition(knowledge.BEGIN)[2].partition(knowledge.END)[0]
    assert printed.strip() == knowledge.table(page, ROOT)
