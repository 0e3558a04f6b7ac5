import re
from xml.etree import ElementTree

import pytest

from lostwax.reports import charts


@pytest.mark.parametrize("kind", ["by_accident", "of_pictures", "all_diverged", "under_a_ceiling"])
def test_drawings_take_the_colours_of_the_page(kind, audit_of):
    for name, chart in charts.drawn(audit_of(kind)).items():
        svg = charts.as_svg(chart, name)
        ElementTree.fromstring(svg)
        assert "var(--accent)" in svg
        colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{3,6})\b", svg))
        assert not colours, f"{name} has colours of its own: {colours}"
        assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", svg)
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert ids
        assert all(one.startswith(f"{name}-") for one in ids)
        assert charts.as_svg(chart, name) == svg


def test_rates_are_the_audits(audit_of):
    (found,) = charts.rates(audit_of("of_pictures"))  # 120 null games tell 1 %, not 0.1 %
    assert found == audit_of("of_pictures").tpr(0.01)


def test_a_ceiling_must_be_there(audit_of):
    with pytest.raises(ValueError, match="not differentially private"):
        charts.draw_ceiling(audit_of("one_game"))
