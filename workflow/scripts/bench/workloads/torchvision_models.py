"""torchvision's image classifiers by name, untrained, and a loss that also covers their auxiliary outputs."""

import difflib
from collections.abc import Callable

import torch
from torch import nn

NUM_CLASSES = 1000

# Weight of each auxiliary classifier's loss: Szegedy et al. 2014, section 5 (googlenet), and torchvision's
# references/classification/train.py for inception_v3.
AUXILIARY_LOSS_WEIGHT = {"googlenet": 0.3, "inception_v3": 0.4}

# Both take tens of seconds to draw their initial weights from a truncated normal distribution; the speed of a step does
# not depend on how they were drawn.
SLOW_TO_INITIALISE = ("googlenet", "inception_v3")

# These are built for one image size, and take it by this argument.
IMAGE_SIZE_ARGUMENT = {"vit": "image_size", "maxvit": "input_size"}


def build_model(name: str, image_size: int) -> nn.Module:
    """Return the classifier `name` with random weights and 1000 classes, on the CPU.

    Raises ValueError if torchvision has no classifier of that name, RuntimeError if torchvision itself does not work.
    """
    models = import_torchvision_models()
    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
        raise ValueError(f"model {name!r} is not a classifier of torchvision. The nearest name is {nearest[0]!r}.")
    arguments = {}
    if name in SLOW_TO_INITIALISE:
        arguments["init_weights"] = False
    family = name.split("_")[0]
    if family in IMAGE_SIZE_ARGUMENT:
        arguments[IMAGE_SIZE_ARGUMENT[family]] = image_size if family == "vit" else (image_size, image_size)
    return models.get_model(name, weights=None, num_classes=NUM_CLASSES, **arguments)


def import_torchvision_models():
    """Import torchvision.models, not at the head of a file: a collective runs in an image without torchvision."""
    try:
        import torchvision.models
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise RuntimeError(
            "torchvision is not installed in this environment. Install the version that belongs to "
            f"torch {torch.__version__}, from the same index."
        ) from error
    except (RuntimeError, OSError, ImportError) as error:
        # Builds for different CUDA versions fail with "operator torchvision::nms does not exist" (pytorch/vision#8671).
        raise RuntimeError(
            f"torchvision does not match torch {torch.__version__}: {error}. "
            "Install both from the same index, for the same CUDA version."
        ) from error
    return torchvision.models


def loss_function(name: str) -> Callable[[object, torch.Tensor], torch.Tensor]:
    """Return cross-entropy of (outputs, labels), to which auxiliary outputs are added with their weight."""
    criterion = nn.CrossEntropyLoss()
    weight = AUXILIARY_LOSS_WEIGHT.get(name, 0.0)

    def loss_of(outputs, labels: torch.Tensor) -> torch.Tensor:
        if isinstance(outputs, torch.Tensor):
            return criterion(outputs, labels)
        main, *auxiliary = outputs
        return criterion(main, labels) + weight * sum(criterion(output, labels) for output in auxiliary)

    return loss_of
