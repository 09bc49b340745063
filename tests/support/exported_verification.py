"""Export what transformers, torchvision and timm have, and compare each capture with another reading of its FX graph.

Run as a program: ``python tests/support/exported_verification.py [NAME ...]``. A library that is not installed is left
out, and a model that torch.export cannot export is counted apart.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import fx_oracle
import torch
from real_models import TEXT

import gradir
from gradir.capturing import read

_TEXTS = (
    *("albert", "arcee", "bert", "bigbird", "biogpt", "bloom", "camembert", "codegen", "cohere", "convbert", "ctrl"),
    *("data2vec-text", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "exaone4", "falcon", "flaubert"),
    *("gemma", "gemma2", "glm", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite", "helium", "ibert"),
    *(
        "llama",
        "mistral",
        "mobilebert",
        "modernbert",
        "mpnet",
        "mpt",
        "nemotron",
        "nezha",
        "olmo",
        "olmo2",
        "openai-gpt",
    ),
    *("opt", "persimmon", "phi", "phi3", "qwen2", "qwen3", "rembert", "roberta", "roc_bert", "roformer", "smollm3"),
    *("squeezebert", "stablelm", "starcoder2", "xglm", "xlm", "xlm-roberta", "xlnet", "xmod", "yoso"),
)
_VISION = ("alexnet", "densenet121", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf", "resnet18")
_VISION += ("resnet50", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vgg11", "vit_b_32", "convnext_tiny")
_TIMM = (
    "resnet10t",
    "mobilenetv3_small_050",
    "efficientnet_lite0",
    "vit_tiny_patch16_224",
    "mixer_s32_224",
    "pit_ti_224",
)
_TIMM += ("regnetx_002", "convnext_atto", "ghostnet_050", "levit_128s", "deit_tiny_patch16_224", "poolformer_s12")


def models() -> Iterator[tuple[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]]]:
    """The name of each model, and what makes it with its inputs."""
    with suppress(ImportError):
        from transformers import CONFIG_MAPPING, AutoModel

        def text(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
            config = CONFIG_MAPPING[name](**TEXT, num_key_value_heads=2, head_dim=8)
            config.use_cache = False
            return AutoModel.from_config(config), (torch.ones(1, 8, dtype=torch.int64),)

        yield from ((f"transformers/{name}", lambda name=name: text(name)) for name in _TEXTS if name in CONFIG_MAPPING)
    image = (torch.randn(1, 3, 224, 224),)
    with suppress(ImportError):
        import torchvision

        found = torchvision.models.get_model
        yield from ((f"torchvision/{name}", lambda name=name: (found(name, weights=None), image)) for name in _VISION)
    with suppress(ImportError):
        import timm

        yield from ((f"timm/{name}", lambda name=name: (timm.create_model(name), image)) for name in _TIMM)


def differences(program: torch.export.ExportedProgram) -> list[str]:
    """What of a capture is not as the oracle reads the program."""
    graph = gradir.capture(program)
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    shapes = (
        (node.native, tuple((f"torch.{t.dtype}", *map(str, t.shape)) for t in node.outputs)) for node in functions
    )
    parameters = {node.names[0]: node.shape for node in graph.nodes.values() if node.role == "parameter"}
    taken = sum(len(node.inputs) for node in functions if node.op not in {"cond", "scan", "while_loop"})
    found = {
        "operations": Counter(shapes) == fx_oracle.operations(program),
        "parameters": parameters == fx_oracle.parameters(program),
        "edges": taken == fx_oracle.edges(program),
        "file": gradir.loads(gradir.dumps(graph)) == graph,
    }
    file = io.BytesIO()
    torch.export.save(program, file)
    again = read(file.getvalue(), "model.pt2")
    found["pt2"] = [(n.id, n.op, n.inputs, n.outputs, n.attrs) for n in again.nodes.values()] == [
        (n.id, n.op, n.inputs, n.outputs, n.attrs) for n in graph.nodes.values()
    ]
    return [name for name, is_same in found.items() if not is_same]


def main() -> int:
    """Compare, and return whether something differs."""
    warnings.simplefilter("ignore")
    same, apart, unable = 0, 0, Counter[str]()
    for name, make in models():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        torch.manual_seed(0)
        try:
            model, inputs = make()
            program = torch.export.export(model.eval(), inputs)
        except Exception as error:  # noqa: BLE001 (whatever torch.export cannot do)
            unable[type(error).__name__] += 1
            print(f"{name}: not exported ({type(error).__name__})", flush=True)
            continue
        wrong = differences(program)
        apart, same = apart + bool(wrong), same + (not wrong)
        if wrong:
            print(f"{name}: other {', '.join(wrong)}", flush=True)
    print(f"{same} the same, {apart} not; torch.export could not export {sum(unable.values())}: {dict(unable)}")
    return bool(apart)


if __name__ == "__main__":
    sys.exit(main())
