import time
from dataclasses import replace

import numpy as np
import pytest

from lostwax.access import Neuron
from lostwax.reports.charts import as_svg, cells, draw_neurons
from reports.conftest import held


def test_a_cell_says_what_its_neuron_holds(audit_of):
    audit = audit_of("held_by_neurons")
    place = audit.findings[0].neurons.places[0]
    found = cells(audit, place)
    assert [(cell.share, cell.clear) for cell in found[:3]] == [(0.37, True), (-0.2, True), (0.02, False)]
    chart = draw_neurons(audit, place)
    svg = as_svg(chart, "neurons_best")
    assert ">37\N{NO-BREAK SPACE}%<" in svg
    assert ">2\N{NO-BREAK SPACE}%<" not in svg
    assert "module 3" in svg
    assert chart.alt == "1 of 14 neurons hold this record: neuron 0 of layer “1” 37\N{NO-BREAK SPACE}%."


def test_a_record_that_no_neuron_holds(audit_of):
    audit = audit_of("held_by_neurons")
    chart = draw_neurons(audit, audit.findings[0].neurons.places[1])
    assert chart.alt == "None of 14 neurons holds this record."


def test_wide_layers_fold(audit_of):
    audit = audit_of("held_by_neurons")
    rows = tuple(Neuron("1", number) for number in range(200))
    shares = np.linspace(-0.1, 0.1, 600).reshape(3, 200)
    wide = held(audit, replace_with=(rows, shares, np.full((3, 200), 0.001)))
    figure = draw_neurons(wide, wide.findings[0].neurons.places[0]).figure
    width, height = figure.get_size_inches() * 72
    assert width < 400
    assert height < 250


def test_an_audit_that_does_not_say(audit_of):
    with pytest.raises(ValueError, match="expected one of the games with neurons"):
        draw_neurons(audit_of("of_pictures"), 0)
    audit = audit_of("held_by_neurons")
    without = replace(audit, findings=(replace(audit.findings[0], neurons=None),))
    with pytest.raises(ValueError, match=r"games with neurons \(none\)"):
        draw_neurons(without, 0)


def test_thousands_of_neurons_are_drawn_in_seconds(audit_of):
    audit = audit_of("held_by_neurons")
    rows = tuple(Neuron("1", number) for number in range(4_000))
    shares = np.linspace(-0.1, 0.1, 12_000).reshape(3, 4_000)
    wide = held(audit, replace_with=(rows, shares, np.full((3, 4_000), 0.001)))
    start = time.process_time()
    draw_neurons(wide, wide.findings[0].neurons.places[0])
    assert time.process_time() - start < 5
