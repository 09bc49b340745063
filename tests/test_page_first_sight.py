"""What pages of whole models show when they open: words that can be read, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from browser import Browser
from example_files import record_example
from first_sight import DESKTOP, PHONE, assert_readable

import gradir

JAX = Path(__file__).parent / "goldens/page/jax_gpt.gir.gz"
"""What examples/jax_gpt.py:loss makes, for JAX has an environment of its own."""

OWN = "../docs/gallery/models.py"


def page_of(spec: str, *options: str) -> str:
    return record_example(spec, "--sources", *options).to("html")


def review_of(spec: str) -> str:
    return gradir.diff(record_example("gpt.py:loss"), record_example(spec)).to("html")


PAGES: dict[str, Callable[[], str]] = {
    "a multilayer perceptron": partial(page_of, "mlp_critic.py:values"),
    "ResNet-50": partial(page_of, f"{OWN}:resnet50"),
    "GPT-2": partial(page_of, f"{OWN}:gpt2"),
    "T5": partial(page_of, "t5.py:loss"),
    "a UNet": partial(page_of, "unet.py:loss"),
    "50 steps of an LSTM": partial(page_of, "recurrent.py:loss"),
    "a mixture of experts": partial(page_of, "mixture.py:loss"),
    "a GAN": partial(page_of, "dcgan.py:discriminator_step"),
    "a GAN with flow": partial(page_of, "dcgan.py:discriminator_step", "--flow"),
    "a shape error in a linear layer": partial(page_of, f"{OWN}:flattened", "--graph", "forward"),
    "a shape error in attention": partial(page_of, f"{OWN}:attention", "--graph", "forward"),
    "a detached encoder": partial(page_of, f"{OWN}:detached", "--flow"),
    "a GPT in JAX": lambda: gradir.load(JAX).to("html"),
    "a diff of an adapter": partial(review_of, "gpt.py:edited"),
    "a diff of an activation": partial(review_of, "gpt.py:swapped"),
}
"""A graph of 140,000 nodes is opened in test_page_pictures.py."""


@pytest.mark.parametrize("name", PAGES)
def test_no_word_at_first_sight_is_too_small(browser: Browser, name: str) -> None:
    pytest.importorskip("transformers" if name in {"ResNet-50", "GPT-2", "T5"} else "torch")
    with browser.open(PAGES[name](), viewport=DESKTOP) as page:
        assert_readable(page)
        page.page.set_viewport_size(PHONE)
        page.page.reload()
        assert_readable(page.is_shown())


def test_a_model_of_two_stacks_shows_the_blocks_of_the_larger_one(browser: Browser) -> None:
    pytest.importorskip("transformers")
    with browser.open(PAGES["T5"](), viewport=DESKTOP) as page:
        assert page.ask("opened") == ["", "decoder"]
        titles = {each["label"][0] for each in page.ask("boxes")}
        assert {"encoder: T5Stack", "block.1\u20135: T5Block \u00d75 (2 of 3)"} <= titles
