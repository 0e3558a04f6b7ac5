import csv
import io

import numpy as np

from lostwax.reports.folder import as_csv


def cells(text):
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row]


def test_labels_come_only_with_the_records(audit_of):
    audit = audit_of("by_accident")
    with_labels, without = as_csv(audit, records=True), as_csv(audit, records=False)
    assert "virginica" in cells(with_labels)
    assert not any(str(name) in cell for name in audit.classes for cell in cells(without))


def test_no_spreadsheet_takes_a_name_for_a_formula(audit_of):
    found = cells(as_csv(audit_of("by_accident"), records=True))
    assert "'=HYPERLINK(1)" in found
    assert not any(cell.startswith(("=", "@", "+")) for cell in found)


def test_every_game_of_every_line_is_a_row(audit):
    rows = list(csv.DictReader(io.StringIO(as_csv(audit, records=True))))
    assert len(rows) == len(audit.games) * len(audit.findings)
    for finding in audit.findings:
        part = [row for row in rows if row["line"] == finding.name]
        assert [int(row["game"]) for row in part] == audit.games.tolist()
        np.testing.assert_allclose([float(row[audit.metric]) for row in part], finding.errors[audit.metric], rtol=1e-8)
        assert [row["rebuilt"] == "yes" for row in part] == finding.rebuilt.tolist()
