"""What recording the flow costs beside a plain forward, and explaining beside a forward and its backward.

Models of transformers and timm with random weights. timm is found after `pip install --no-deps --group wide`. A model
that cannot be built is left out, and named on stderr. Processor time with one thread, so that others on the machine
count for less; each ratio is of runs beside each other.

python benchmarks/explaining.py [--smoke] [NAME ...]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import gradir

sys.path.insert(0, str(Path(__file__).parent))
sys.path.extend(str(Path(__file__).parents[1] / "tests" / name) for name in ("support", "verification"))

from measure import table
from real_models import RealModel
from wide.torchvision_ready import make_ready

TRANSFORMERS: Final = (
    *("albert", "bart", "bert", "bloom", "deberta-v2", "distilbert", "electra", "falcon", "gemma2", "gpt2", "gpt_neo"),
    *("gpt_neox", "llama", "mixtral", "opt", "phi", "qwen3", "roberta", "t5", "xlnet"),
)
TIMM: Final = (
    *("coatnet_pico_rw_224", "convnext_atto", "crossvit_tiny_240", "densenet121", "edgenext_xx_small"),
    *("efficientnet_b0", "ghostnet_100", "hrnet_w18_small", "levit_128s", "maxvit_pico_rw_256"),
    *("mobilenetv3_small_100", "mobilevit_xxs", "poolformer_s12", "pvt_v2_b0", "regnety_002", "resnet18", "resnet50"),
    *("swin_tiny_patch4_window7_224", "vit_tiny_patch16_224", "xcit_nano_12_p16_224"),
)
SIZES: Final = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4}
"""What configurations call the sizes; the number of layers stays what it is."""
VOCABULARY: Final = 1000
LONG: Final = 0.05
"""The seconds from which on a forward is long."""


class Costs(NamedTuple):
    """The seconds of a forward, and the ratios."""

    forward: float
    recorded: float
    explained: float
    both: float


def make_transformer(kind: str) -> RealModel:
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY)
    for name, size in SIZES.items():
        if hasattr(config, name):
            setattr(config, name, size)
    model = transformers.AutoModel.from_config(config)
    tokens = torch.randint(10, VOCABULARY, (2, 64))
    given = {"input_ids": tokens, **({"decoder_input_ids": tokens} if config.is_encoder_decoder else {})}
    return RealModel(model, lambda: loss_of(model(**given)))


def make_timm(name: str) -> RealModel:
    import timm

    model = timm.create_model(name, pretrained=False)
    images = torch.randn(2, *model.default_cfg["input_size"])
    return RealModel(model, lambda: loss_of(model(images)))


def loss_of(outputs: Any) -> Tensor:
    return next(leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)).square().mean()


def time_run(run: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def rounds_of(real: RealModel, count: int) -> Iterator[Costs]:
    def record() -> tuple[gradir.Recorder, Tensor]:
        with gradir.record(real.model, flow=True) as rec:
            return rec, real.loss()

    for _ in range(count):
        forward, loss = time_run(real.loss)
        backward, _ = time_run(loss.backward)
        recording, (rec, loss) = time_run(record)
        explaining, _ = time_run(lambda rec=rec, loss=loss: rec.explain(loss))
        passes = forward + backward
        yield Costs(forward, recording / forward, explaining / passes, (recording + explaining) / passes)


def row(name: str, forward: str, ratios: Sequence[float]) -> str:
    return f"| {name} | {forward} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


def main(names: Sequence[str], count: int) -> None:
    torch.set_num_threads(1)
    # First, since transformers imports torchvision where it is there.
    with suppress(ImportError):
        make_ready()
    # A row as soon as it is known: the models together take minutes.
    print(
        table(["model", "forward ms", "recorded / forward", "explained / passes", "recorded, explained / passes"], [])
    )
    found: list[Costs] = []
    spreads: list[float] = []
    for name in names:
        torch.manual_seed(0)
        try:
            real = make_timm(name) if name in TIMM else make_transformer(name)
            real.loss().backward()
        except Exception as error:  # noqa: BLE001 (whatever a package raises is why)
            print(f"left out: {name}: {error}", file=sys.stderr)
            continue
        rounds = list(rounds_of(real, count))
        costs = Costs(*map(statistics.median, zip(*rounds, strict=True)))
        found.append(costs)
        spreads.append(max(each.recorded for each in rounds) / min(each.recorded for each in rounds))
        print(row(name, f"{costs.forward * 1e3:.0f}", costs[1:]), flush=True)
    long = [costs for costs in found if costs.forward >= LONG]
    for among, kept in ((f"all {len(found)}", found), (f"the {len(long)} of {LONG * 1e3:.0f} ms and more", long)):
        for what, of in (("median", statistics.median), ("worst", max)) if kept else ():
            print(row(f"{what} of {among}", "", [of(column) for column in [*zip(*kept, strict=True)][1:]]))
    print(f"\nThe ratios of one model differ by a factor of {statistics.median(spreads):.2f} between rounds (median).")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="one small model, to see that it runs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these models; every one by default")
    given = parser.parse_args()
    main(["distilbert"] if given.smoke else given.names or (*TRANSFORMERS, *TIMM), 1 if given.smoke else 5)
