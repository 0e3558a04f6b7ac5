from lostwax.games.notes import Note, Topic, as_notes, extreme_values, stored_rows, total_of_all_rows


def test_a_string_is_a_remark():
    note = stored_rows("X's rows", (5, 1_000))
    assert as_notes(["a fact.", note]) == (Note("a fact."), note)
    assert Note("a fact.").topic is Topic.REMARK


def test_notes_of_rows():
    note = stored_rows("X's rows", (5, 1_000), "age, town")
    assert str(note) == "X's rows holds 5 of 1,000 rows of this table as they reach it (age, town)."
    assert (note.subject, note.rows) == ("X's rows", (5, 1_000))
    assert note.cure.startswith("X's rows holds 5 of 1,000 rows of this table as they reach it: do not give out")
    assert str(stored_rows("it")) == "it holds the training data: anyone with this object has every row."
    assert stored_rows("it").cure.startswith("it holds the training data: do not give out this file.")


def test_notes_of_totals_and_ranges():
    total = total_of_all_rows("the mean", "reveals the row")
    assert str(total) == "the mean reveals the row, whatever the model after it. Fit it on public data."
    assert total.cure == "The mean reveals the row, whatever the model after it. Fit it on public data."
    assert (
        str(total_of_all_rows("theta_", "reveals it", of_model=True))
        == "theta_ reveals it. Release a model without such a total."
    )
    several = extreme_values("a and b", "reveal every value", plural=True)
    assert str(several) == "a and b reveal every value."
    assert several.cure == "a and b show the extreme values of columns: use limits that are known without the data."
