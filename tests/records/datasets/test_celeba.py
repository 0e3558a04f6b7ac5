from hashlib import md5

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import datasets

import lostwax as lw
from lostwax import records

ATTRIBUTES = ["Bald", "Smiling", "Young"]
SMILING, PARTS = [1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2]


def stand_in(folder, monkeypatch, smiling, parts):
    """Faces in CelebA's own files, each of one grey: torchvision reads them once it is told their checksums."""
    directory = folder / "celeba"
    (directory / "img_align_celeba").mkdir(parents=True)
    count = len(smiling)
    names = [f"{i:06d}.jpg" for i in range(1, count + 1)]
    for i, name in enumerate(names):
        face = np.full((218, 178, 3), 240 * i // count, dtype=np.uint8)
        face[:16], face[208:] = 255, 255  # whole JPEG blocks that the central square leaves out
        Image.fromarray(face).save(directory / "img_align_celeba" / name, quality=100)
    attributes = [f"{name}  -1  {2 * smiles - 1} 1" for name, smiles in zip(names, smiling, strict=True)]
    contents = {
        "list_attr_celeba.txt": [str(count), " ".join(ATTRIBUTES) + " ", *attributes],
        "identity_CelebA.txt": [f"{name} 7" for name in names],
        "list_bbox_celeba.txt": [str(count), "image_id x y w h", *(f"{name} 0 0 9 9" for name in names)],
        "list_landmarks_align_celeba.txt": [str(count), "x y", *(f"{name} 1 2" for name in names)],
        "list_eval_partition.txt": [f"{name} {part}" for name, part in zip(names, parts, strict=True)],
    }
    for name, lines in contents.items():
        (directory / name).write_text("\n".join(lines) + "\n")
    sums = [("", md5((directory / name).read_bytes()).hexdigest(), name) for name in contents]
    monkeypatch.setattr(datasets.CelebA, "file_list", sums)
    return folder


@pytest.fixture
def celeba_root(tmp_path, monkeypatch):
    return stand_in(tmp_path, monkeypatch, SMILING, PARTS)


def test_reads_the_central_square_of_torchvisions_faces(celeba_root):
    found = records.celeba("all", size=16, root=celeba_root)
    assert found.x.shape == (6, 3, 16, 16)
    expected = (40 * torch.arange(6) / 255).view(6, 1, 1, 1).expand(6, 3, 16, 16)
    torch.testing.assert_close(found.x, expected, rtol=0, atol=0.05)  # the filter reaches over the edge
    assert found.y.tolist() == SMILING
    assert records.celeba("all", attribute="Bald", root=celeba_root).y.tolist() == [0] * 6


@pytest.mark.parametrize(("part", "count"), [("train", 2), ("valid", 2), ("test", 2), ("all", 6)])
def test_parts_and_count(celeba_root, part, count):
    assert records.celeba(part, root=celeba_root).x.shape == (count, 3, 64, 64)
    assert len(records.celeba(part, root=celeba_root, count=1)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attribute": "smilling"}, "attribute: expected one of 'Bald'.*Did you mean 'Smiling'"),
        ({"count": 0}, "count must be at least 1.*got 0"),
        ({"size": 0}, "size must be.*got 0"),
    ],
)
def test_refuses_bad_arguments(celeba_root, arguments, message):
    with pytest.raises(ValueError, match=message):
        records.celeba(root=celeba_root, **arguments)


def test_names_a_face_that_is_not_there(celeba_root):
    (celeba_root / "celeba" / "img_align_celeba" / "000002.jpg").unlink()
    with pytest.raises(ValueError, match=r"000002\.jpg cannot be read"):
        records.celeba(root=celeba_root)


def test_heads_of_the_weak_adversary_on_few_positives(tmp_path, monkeypatch):
    """S2's CelebA set-up: one positive among ten, FC(4)-ReLU-FC(1), positive weight 10, pictures of 64 x 64."""
    smiling = [0] * 36 + [1] * 4
    faces = records.celeba("all", root=stand_in(tmp_path, monkeypatch, smiling, [0] * 40))
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 24), nn.ReLU())
    trainer = lw.GD(
        lr=0.02,
        weight_decay=1e-2,
        steps=100,
        loss=lw.losses.BinaryCrossEntropy(positive_weight=10),
        init=lw.inits.Normal(0.0002, seed=None),
    )
    threat = lw.Weak(size=10, per_class=(9, 1))
    heads = lw.simulate(
        lw.nets.mlp(24, 4, 1, activation=nn.ReLU),
        trainer=trainer,
        threat=threat,
        prior=faces.through(backbone),
        models=4,
    )
    for cohort, release in heads:
        assert cohort.own.x.shape[1:] == (10, 3, 64, 64)
        assert (cohort.own.y.sum(1) == 1).all()
        assert [tuple(value.shape[1:]) for value in release.params.values()] == [(4, 24), (4,), (1, 4), (1,)]
    with pytest.raises(ValueError, match="needs 9 records of class 1, but the pool holds 4"):
        lw.Weak(size=10, per_class=(1, 9)).deal(faces, 1, seed=0)
