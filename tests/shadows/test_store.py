"""What is stored is what was trained: once, by whoever, in whatever order."""

import json
import os
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Records, Release
from lostwax.inits import FromNet
from lostwax.provenance import build_of, versions
from lostwax.shadows import Local, Store
from lostwax.shadows.identity import key
from lostwax.shadows.location import Location
from lostwax.shadows.store import Layout
from shadows.game import CHUNK, KNOWN, PRIOR, fill, game, tree
from shadows.warm import children


class Counting:
    """An engine that counts what it is asked to train."""

    def __init__(self):
        self.spans = []

    def parts(self, game, spans):
        for span in spans:
            self.spans.append(span)
            yield from Local().parts(game, [span])


def flat(chunks):
    return torch.cat([release.flat() for _, release in chunks])


def secrets(chunks):
    return torch.cat([cohort.own.x for cohort, _ in chunks])


@pytest.mark.parametrize("where", ["folder", "memory://store"])
def test_reads_what_simulate_gives(where, tmp_path):
    where = tmp_path / where if where == "folder" else f"{where}/{tmp_path.name}"
    net, trainer, threat, pool, seed = game(tile=8)
    plain = list(lw.simulate(net, trainer=trainer, threat=threat, prior=pool, models=200, seed=seed))
    for _ in range(2):  # trained, then read
        stored = list(lw.simulate(net, trainer=trainer, threat=threat, prior=pool, models=200, seed=seed, store=where))
        assert [len(cohort) for cohort, _ in stored] == [16] * 12 + [8]
        assert torch.equal(flat(stored), flat(plain))
        assert torch.equal(secrets(stored), secrets(plain))
        assert torch.cat([cohort.index for cohort, _ in stored]).tolist() == list(range(200))
        assert stored[0][1].params["1.weight"].shape == (16, 10, 64)
        assert stored[0][0].shared is KNOWN


def test_top_up_trains_only_what_is_missing_and_says_so(tmp_path, capsys):
    engine = Counting()
    fill(tmp_path, 100, engine)
    assert engine.spans == [range(64), range(64, 128)]
    fill(tmp_path, 250, engine)
    assert engine.spans[2:] == [range(128, 192), range(192, 256)]
    fill(tmp_path, 60, engine)
    assert len(engine.spans) == 4
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == f"{tmp_path}: no shadow models of this game yet, training 128 in chunks of 64."
    assert second == f"{tmp_path}: found 128 shadow models of this game, training 128 in chunks of 64."
    assert third == f"{tmp_path}: found all 60 shadow models of this game."


def test_a_miss_says_why_field_by_field(tmp_path, capsys):
    fill(tmp_path, 1)
    fill(tmp_path, 1, lr=0.2, momentum=0.5)
    said = capsys.readouterr().err.splitlines()[1:]
    assert said[0].endswith(
        "no shadow models of this game yet, training 64 in chunks of 64. The nearest game differs in"
    )
    assert said[1:] == [
        "  trainer.lr: store has 0.1, this run has 0.2",
        "  trainer.momentum: store has 0.0, this run has 0.5",
    ]
    fill(tmp_path, 1, lr=0.3)
    assert capsys.readouterr().err.splitlines()[1:] == ["  trainer.lr: store has 0.1, this run has 0.3"]


def older(folder, **made_with):
    """Make a store one of an earlier version, which did not hold a digest of the code."""
    (header,) = folder.glob("*/zarr.json")
    content = json.loads(header.read_text())
    attributes = content["attributes"]
    attributes["made_with"] = {**versions(), **made_with}
    attributes["checksum"] = key({name: value for name, value in attributes.items() if name != "checksum"})
    header.write_text(json.dumps(content))


def test_models_of_another_version_are_read_but_not_silently_added_to(tmp_path, capsys):
    fill(tmp_path, 100)
    older(tmp_path, lostwax="0.2.0")
    before = tree(tmp_path)
    capsys.readouterr()
    assert len(flat(fill(tmp_path, 128))) == 128
    assert "other versions: lostwax: store has 0.2.0, this run has" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"lostwax: store has 0\.2\.0, .*code: store has not stated.*new folder.*mix"):
        fill(tmp_path, 200)
    assert tree(tmp_path) == before
    net, trainer, threat, pool, seed = game()
    setup = {"trainer": trainer, "threat": threat, "prior": pool, "models": 200, "seed": seed, "store": tmp_path}
    lw.simulate(net, **setup, allow_mixed=True)
    assert [made_with["lostwax"] for made_with in Store(tmp_path).open(game()).builds()] == ["0.2.0", lw.__version__]
    fill(tmp_path, 300)  # noted before, so nothing new is mixed
    assert {name: content for name, content in tree(tmp_path).items() if name in before} == before


def test_a_damaged_note_of_versions_is_named(tmp_path):
    fill(tmp_path, 100)
    older(tmp_path, torch="2.8.0")
    list(Store(tmp_path, allow_mixed=True).simulate(game(), models=200, engine=Local()))
    (note,) = tmp_path.glob("*/made_with.*/zarr.json")
    note.write_text(note.read_text().replace(lw.__version__, "0.9.9"))
    with pytest.raises(ValueError, match=r"made_with\.[0-9a-f]{16}/zarr\.json is damaged"):
        fill(tmp_path, 300)


def test_torch_for_another_device_is_no_other_version(tmp_path):
    assert build_of({"torch": "2.8.0+cpu"}) == build_of({"torch": "2.8.0+cu130"})


@pytest.mark.parametrize("chunk", [1, 16, 1000])
def test_the_engines_chunk_changes_no_byte(chunk, tmp_path):
    fill(tmp_path / "one", 200, tile=8)
    fill(tmp_path / "other", 200, Local(chunk), tile=8)
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_any_order_and_any_stops_change_no_byte(tmp_path):
    fill(tmp_path / "one", 300)
    for models in (1, 70, 300):
        fill(tmp_path / "other", models)
    assert tree(tmp_path / "one") == tree(tmp_path / "other")
    ((file,),) = [list((tmp_path / "other").glob("*/weights/2.0"))]
    file.unlink()  # as if another machine had it
    fill(tmp_path / "other", 300)
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_several_writers_at_once_share_the_work(tmp_path):
    """Each would train 40 chunks alone."""
    fill(tmp_path / "alone", 40 * CHUNK)
    where = tmp_path / "crowd"
    writers = [children().Process(target=fill, args=(where, 40 * CHUNK)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert tree(where) == tree(tmp_path / "alone")


def test_a_crowded_writer_leaves_chunks_to_others(tmp_path):
    class Overtaken(Counting):
        """While it trains its first chunk, somebody else stores that and the next."""

        def parts(self, game, spans):
            for number, part in enumerate(super().parts(game, spans)):
                if number == 0:
                    fill(tmp_path, 2 * CHUNK)
                yield part

    engine = Overtaken()
    fill(tmp_path, 10 * CHUNK, engine)
    assert len(engine.spans) == 9
    assert range(CHUNK, 2 * CHUNK) not in engine.spans


def test_shuffled_reading_is_a_permutation_by_seed(tmp_path):
    fill(tmp_path, 300)
    stored = Store(tmp_path).open(game())
    in_order = flat(stored.read(300))
    batches = list(stored.shuffled(300, batch=50, seed=1, buffer=2))
    numbers = torch.cat([cohort.index for cohort, _ in batches])
    assert sorted(numbers.tolist()) == list(range(300))
    assert numbers.tolist() != list(range(300))
    assert max(len(cohort) for cohort, _ in batches) == 50
    assert torch.equal(flat(batches), in_order[numbers])
    assert torch.equal(secrets(batches), game().deal(range(300)).own.x[numbers])
    again = torch.cat([cohort.index for cohort, _ in stored.shuffled(300, batch=50, seed=1, buffer=2)])
    other = torch.cat([cohort.index for cohort, _ in stored.shuffled(300, batch=50, seed=2, buffer=2)])
    assert torch.equal(numbers, again)
    assert not torch.equal(numbers, other)
    with pytest.raises(ValueError, match="expected batch >= 1, got 0"):
        next(stored.shuffled(300, batch=0, seed=0))


def test_what_killed_writers_left_is_swept_up(tmp_path):
    fill(tmp_path / "one", 100)
    fill(tmp_path / "other", 1)
    (stored,) = [path for path in (tmp_path / "other").iterdir() if path.is_dir()]
    for half in ("zarr.0a.partial", "weights/1.0b.partial", "rows/0.0c.partial"):
        (stored / half).write_bytes(b"half of it")
    (stored / "weights" / "7.0d.partial").write_bytes(b"somebody is at work")
    fill(tmp_path / "other", 100)
    (stored / "weights" / "7.0d.partial").unlink()
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_several_games_share_a_store(tmp_path):
    one, other = fill(tmp_path, 10, lr=0.1), fill(tmp_path, 10, lr=0.2)
    assert not torch.equal(flat(one), flat(other))
    assert torch.equal(flat(fill(tmp_path, 10, lr=0.1)), flat(one))


def test_models_of_zeros_are_kept_too(tmp_path):
    """zarr would leave out a chunk that looks empty."""

    class Zeros(Counting):
        def parts(self, game, spans):
            for cohort, release in super().parts(game, spans):
                yield cohort, Release({name: torch.zeros_like(value) for name, value in release.params.items()})

    engine = Zeros()
    for _ in range(2):
        assert flat(fill(tmp_path, CHUNK, engine)).eq(0).all()
    assert len(engine.spans) == 1


def test_features_come_back_with_their_records(tmp_path):
    def features(records):
        return replace(records, features=records.x.flatten(1)[:, 10:50])

    head = game()._replace(net=nn.Linear(40, 10), threat=lw.Informed(features(KNOWN)), pool=features(PRIOR))
    ((cohort, _),) = Store(tmp_path).simulate(head, models=20, engine=Local())
    assert torch.equal(cohort.own.features, head.deal(range(20)).own.features)


@pytest.mark.parametrize("part", ["x", "y"])
def test_records_that_are_not_in_the_prior_cannot_be_stored(part, tmp_path):
    class Noisy(NamedTuple):
        known: Records

        def deal(self, pool, m, *, seed, start=0):
            cohort = lw.Informed(self.known).deal(pool, m, seed=seed, start=start)
            return Cohort(
                cohort.shared, replace(cohort.own, **{part: (getattr(cohort.own, part) + 1) % 10}), cohort.index
            )

    with pytest.raises(ValueError, match="Noisy deals records that are not rows of the prior"):
        Store(tmp_path).simulate(game()._replace(threat=Noisy(KNOWN)), models=10, engine=Local())


def test_parameters_of_several_dtypes_are_refused():
    release = Release({"a": torch.zeros(2, 3), "b": torch.zeros(2, 3, dtype=torch.float64)})
    with pytest.raises(ValueError, match=r"of float16, float32, float64, got torch\.float32, torch\.float64"):
        Layout.of(release, 1)


@contextmanager
def may_only_read(folder):
    """A folder that this process may not write to; root first becomes nobody."""
    root = os.geteuid() == 0
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)


def test_a_folder_that_may_only_be_read_serves_what_it_holds(tmp_path):
    folder = tmp_path / "store"
    fill(folder, 10)
    closed = {path: path.stat().st_mode for path in folder.parents if not path.stat().st_mode & 0o001}
    try:
        for path, mode in closed.items():
            path.chmod(mode | 0o055)  # nobody must find the way there
        with may_only_read(folder):
            held = tree(folder)
            assert len(flat(fill(folder, 64))) == 64
            with pytest.raises(OSError, match=r"Store: cannot write to .*Permission denied.*use another store"):
                fill(folder, 65)
            assert tree(folder) == held
    finally:
        for path, mode in closed.items():
            path.chmod(mode)


def test_reconn_takes_its_shadows_from_the_store(tmp_path, capsys):
    secrets = lw.records.digits()[slice(1000, 1010)]
    net, trainer, threat, pool, _ = game()
    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=16), epochs=2, store=tmp_path)
    asked = {"trainer": trainer, "threat": threat, "prior": pool, "secrets": secrets.without(KNOWN, PRIOR)}
    first = lw.audit(net, **asked, attack=attack)
    assert capsys.readouterr().err.count("no shadow models of this game yet") == 1  # not for those to be tested on
    again = lw.audit(net, **asked, attack=attack)
    assert capsys.readouterr().err.count(": found all ") == 1
    without = lw.audit(net, **asked, attack=replace(attack, store=None))
    assert (first.errors == again.errors).all()
    assert first.errors == pytest.approx(without.errors, rel=1e-3)  # the last tiles are whole in a store
    lw.audit(net, **asked | {"trainer": replace(trainer, lr=0.3)}, attack=attack)
    assert "trainer.lr: store has 0.1, this run has 0.3" in capsys.readouterr().err


def test_a_fresh_random_start_is_another_game_and_the_cure_is_said(tmp_path, capsys):
    fill(tmp_path, 4, init=FromNet())
    assert "torch.manual_seed" not in capsys.readouterr().err
    fill(tmp_path, 4, init=FromNet())
    told = capsys.readouterr().err
    assert "net.start: store has" in told
    assert "call torch.manual_seed before creating the net, or set an initialisation" in told


def test_credentials_in_a_url_are_in_no_report_and_no_message(tmp_path, capsys):
    url = f"memory://KEY:pass/word@bucket/{tmp_path.name}"
    net, trainer, threat, pool, _ = game()
    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), shadows=64, epochs=1, store=url)
    secrets = lw.records.digits()[slice(1000, 1010)]
    audit = lw.audit(net, trainer=trainer, threat=threat, prior=pool, secrets=secrets, attack=attack)
    lw.report(audit, tmp_path / "report")
    written = b"".join(path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file())
    assert b"memory://***@bucket/" in written
    assert b"word@" not in written
    location = Location.at(url)
    for path in location.files.find(location.root):
        if path.endswith("zarr.json"):
            location.files.pipe(path, b"{")
    with pytest.raises(ValueError, match=r"^Store: memory://\*\*\*@bucket/.* is damaged") as caught:
        fill(url, 64)
    assert "word@" not in "".join(traceback.format_exception(caught.value))
    assert "word@" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("linked", ["*/weights", "*/rows/0.0", "*/zarr.json", "????????????????"])
def test_no_link_inside_a_store_is_followed(linked, tmp_path):
    store = tmp_path / "store"
    fill(store, CHUNK)
    (link,) = store.glob(linked)
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=rf"^Store: {link} is a symbolic link, which lostwax does not follow"):
        fill(store, 2 * CHUNK)
    assert tree(tmp_path) == before


def test_the_folder_of_a_store_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    fill(tmp_path / "store", CHUNK)
    assert tree(tmp_path / "disk")


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
@pytest.mark.parametrize(("root", "game_folder"), [(None, 0o700), (0o755, 0o700), (0o2775, 0o2770), (0o777, 0o777)])
def test_who_may_not_write_to_a_store_reads_no_models(root, game_folder, tmp_path):
    store = tmp_path / "store"
    before = os.umask(0o022)
    try:
        if root is not None:
            store.mkdir()
            store.chmod(root)
        fill(store, CHUNK)
    finally:
        os.umask(before)
    assert store.stat().st_mode & 0o7777 == (0o700 if root is None else root)
    assert [path.stat().st_mode & 0o7777 for path in store.iterdir() if path.is_dir()] == [game_folder]


def test_a_url_is_passed_as_text():
    with pytest.raises(ValueError, match=r"Store: s3:/\*\*\*@bucket is a URL in a pathlib.Path.*Pass it as text"):
        fill(Path("s3://KEY:pass@bucket"), CHUNK)
