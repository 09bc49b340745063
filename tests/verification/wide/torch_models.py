"""The layers of torch.nn, each fed with inputs that a parameter scales, and the models that tests build of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from real_models import MODELS, RealModel
from torch import Tensor, nn

from wide.building import Recipe, total
from wide.inputs import tensor

__all__ = ["names", "recipe"]


class _Fed(nn.Module):
    """A layer whose floating inputs depend on a parameter, so that a gradient flows through a layer without any."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.layer = layer

    def forward(self, *inputs: Tensor) -> Any:
        return self.layer(*[given * self.scale if given.is_floating_point() else given for given in inputs])


_X: Final = "float 2 4 8"
_ROWS: Final = "float 6 4"
_IMAGE: Final = "float 2 4 8 8"
_VOLUME: Final = "float 2 4 6 6 6"
_WORDS: Final = "word 2 5"

_LAYERS: Final[Mapping[str, tuple[tuple[Any, ...], tuple[str, ...]]]] = {
    **{f"Conv{n}d": ((4, 6, 3), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"ConvTranspose{n}d": ((4, 6, 3, 2), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"BatchNorm{n}d": ((4,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"InstanceNorm{n}d": ((4, 1e-5, 0.1, True), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"MaxPool{n}d": ((2,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"AvgPool{n}d": ((2,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"LPPool{n}d": ((2, 2), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"AdaptiveAvgPool{n}d": ((2,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"AdaptiveMaxPool{n}d": ((2,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"ReflectionPad{n}d": ((1,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"ReplicationPad{n}d": ((1,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"CircularPad{n}d": ((1,), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{f"ConstantPad{n}d": ((1, 2.0), (shape,)) for n, shape in enumerate((_X, _IMAGE, _VOLUME), 1)},
    **{
        f"{name}": ((), (_X,)) for name in ("ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "ReLU", "ReLU6", "LeakyReLU")
    },
    **dict.fromkeys(("RReLU", "PReLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "GLU"), ((), (_X,))),
    **dict.fromkeys(("LogSigmoid", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink"), ((), (_X,))),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin"), ((-1,), (_X,))),
    **dict.fromkeys(("Dropout", "AlphaDropout", "FeatureAlphaDropout", "Dropout1d"), ((0.5,), (_X,))),
    **dict.fromkeys(("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss"), ((), (_X, _X))),
    **dict.fromkeys(("PoissonNLLLoss", "BCEWithLogitsLoss", "CosineSimilarity"), ((), (_ROWS, _ROWS))),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), ((4, 3, 2), ("float 5 2 4",))),
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell", "Linear"), ((4, 3), (_ROWS,))),
    "AdaptiveLogSoftmaxWithLoss": ((4, 64, [16, 32]), (_ROWS, "word 6")),
    "Bilinear": ((4, 4, 3), (_ROWS, _ROWS)),
    "ChannelShuffle": ((2,), (_IMAGE,)),
    "CosineEmbeddingLoss": ((), (_ROWS, _ROWS, "one_int 6")),
    "CrossEntropyLoss": ((), ("float 6 64", "word 6")),
    "Dropout2d": ((0.5,), (_IMAGE,)),
    "Dropout3d": ((0.5,), (_VOLUME,)),
    "Embedding": ((64, 4), (_WORDS,)),
    "EmbeddingBag": ((64, 4), (_WORDS,)),
    "Flatten": ((), (_X,)),
    "Fold": ((4, 2), ("float 2 4 9",)),
    "FractionalMaxPool2d": ((2, 3), (_IMAGE,)),
    "FractionalMaxPool3d": ((2, 3), (_VOLUME,)),
    "GaussianNLLLoss": ((), (_ROWS, _ROWS, "positive 6 4")),
    "GroupNorm": ((2, 4), (_IMAGE,)),
    "HingeEmbeddingLoss": ((), (_ROWS, "one_int 6 4")),
    "Identity": ((), (_X,)),
    "LayerNorm": ((8,), (_X,)),
    "LocalResponseNorm": ((2,), (_IMAGE,)),
    "MarginRankingLoss": ((), ("float 6", "float 6", "one_int 6")),
    "MultiLabelMarginLoss": ((), (_ROWS, "zero 6 4")),
    "MultiLabelSoftMarginLoss": ((), (_ROWS, "one_int 6 4")),
    "MultiMarginLoss": ((), (_ROWS, "zero 6")),
    "NLLLoss": ((), (_ROWS, "zero 6")),
    "PairwiseDistance": ((), (_ROWS, _ROWS)),
    "PixelShuffle": ((2,), (_IMAGE,)),
    "PixelUnshuffle": ((2,), (_IMAGE,)),
    "RMSNorm": ((8,), (_X,)),
    "SoftMarginLoss": ((), (_ROWS, "one_int 6 4")),
    "Softmax2d": ((), (_IMAGE,)),
    "Threshold": ((0.1, 0.0), (_X,)),
    "TransformerDecoderLayer": ((8, 2, 16), (_X, _X)),
    "TransformerEncoderLayer": ((8, 2, 16), (_X,)),
    "TripletMarginLoss": ((), (_ROWS, _ROWS, _ROWS)),
    "TripletMarginWithDistanceLoss": ((), (_ROWS, _ROWS, _ROWS)),
    "Unflatten": ((1, (2, 2)), (_X,)),
    "Unfold": ((2,), (_IMAGE,)),
    "Upsample": ((None, 2), (_IMAGE,)),
    "UpsamplingBilinear2d": ((None, 2), (_IMAGE,)),
    "UpsamplingNearest2d": ((None, 2), (_IMAGE,)),
    "ZeroPad2d": ((1,), (_IMAGE,)),
}
_MODELS: Final = {name.partition(" (")[0]: name for name in MODELS if name.startswith(("nn.", "ResNet"))}


def names() -> list[str]:
    """The layers, and the models built of them."""
    return [*sorted(_MODELS), *sorted(f"layer {name}" for name in _LAYERS)]


def recipe(name: str, choice: str = "") -> Recipe:
    """Nothing of this is tried: it is known to run."""
    if name in _MODELS:
        return Recipe("known", MODELS[_MODELS[name]])
    layer = name.removeprefix("layer ")
    arguments, shapes = _LAYERS[layer]
    return Recipe("known", lambda: _real(layer, arguments, shapes))


def _real(layer: str, arguments: tuple[Any, ...], shapes: tuple[str, ...]) -> RealModel:
    model = _Fed(getattr(nn, layer)(*arguments)).train()
    inputs = [tensor(shape, {}) for shape in shapes]
    return RealModel(model, lambda: total(model(*inputs)))
