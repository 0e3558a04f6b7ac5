"""What a frozen backbone makes of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


def features(backbone: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """(n, d) the backbone's outputs in evaluation mode, one row a record, a batch at a time on the backbone's device.

    Kept where x is. The backbone stays as it is, in the mode it was in.
    """
    import torch

    if batch_size < 1 or len(x) == 0:
        raise ValueError(
            f"Records.through: expected batch_size >= 1 and at least one record, got {batch_size} and {len(x)}."
        )
    if not x.is_floating_point():
        raise TypeError(
            f"Records.through: expected x in floating point, got {x.dtype}. Scale pixels as the backbone was trained, "
            "or pass records.to(torch.float32)."
        )
    like = next(backbone.parameters(), x)
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    try:
        with torch.no_grad():
            batches = ((batch, backbone(batch.to(like.device, like.dtype))) for batch in torch.split(x, batch_size))
            made = torch.cat([_rows(outputs, len(batch)).to(x.device) for batch, outputs in batches])
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"Records.through: the backbone cannot take records of shape {tuple(x.shape[1:])}: {error}. Bring x to the "
            "shape it was trained on (channels, height, width), or put what does that before it: "
            "nn.Sequential(nn.Upsample(224), backbone)."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    _check_telling(made)
    return made


def _rows(outputs: object, records: int) -> Tensor:
    """The outputs of a batch as a table."""
    import torch

    if not isinstance(outputs, torch.Tensor) or outputs.ndim < 2 or len(outputs) != records:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ValueError(
            f"Records.through: expected the backbone to put out (n, ...), one row a record, got {got} for n={records}. "
            "Give it as a module that ends where the new layer begins."
        )
    return outputs.flatten(1)


def _check_telling(made: Tensor) -> None:
    """Features that are the same whatever the record leave nothing to learn, and nothing to rebuild."""
    import torch

    bad = int((~torch.isfinite(made)).sum())
    if bad:
        raise ValueError(
            f"Records.through: {bad} of {made.numel()} features are NaN or infinite. Look at the backbone's weights, "
            "and at the scale of x."
        )
    spread = (made.amax(0) - made.amin(0)).max()
    if len(made) > 1 and spread <= 1e-6 * made.abs().max():
        raise ValueError(
            f"Records.through: the backbone puts out the same features for all {len(made)} records, so that a head "
            "on them learns nothing of a record. Was it trained, and is x scaled as it was then?"
        )
