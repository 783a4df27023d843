"""Calling a model without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[Any]:
    """The module in evaluation mode, without gradients; its mode is put back afterwards."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield module
    finally:
        module.train(training)
