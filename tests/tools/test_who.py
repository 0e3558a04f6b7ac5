from pathlib import Path

from lostwax_dev import who

ROOT = Path(__file__).parent.parent.parent


def test_the_table_of_the_weakest_attackers_is_up_to_date():
    """Grades and attackers; how much comes back depends a little on the machine."""
    text = (ROOT / who.PAGE).read_text()
    printed = text.partition(who.BEGIN)[2].partition(who.END)[0].strip().splitlines()
    assert [line.split("|")[1:4] for line in printed] == [line.split("|")[1:4] for line in who.table().splitlines()]
    assert len(printed) == 2 + len(who.models()) >= 2 + 12
