"""Attention behind one function, and who may see whom as data.

Shapes: B samples, H heads, T positions that ask, S positions that are asked (S = T here), D features of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class MaskSpec:
    """Who may see whom."""

    causal: bool = False
    """Nobody sees later positions."""
    window: int | None = None
    """Nobody sees positions that are this many or more away: 1 is oneself alone. None: no limit."""
    documents: bool = False
    """Only positions of the same document see each other. Padding is a document of its own (-1), so that every position
    sees at least itself: no row of the softmax is empty, and none gives NaN."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"an attention window is at least 1 position wide, not {self.window}")

    def visible(self, document_id_BT: Tensor) -> Tensor | None:
        """True where the position of a row sees that of a column.

        Returns:
            (B, 1, T, T) bool, or (T, T) without documents; None where the kernel knows the mask (all or causal).
        """
        if not self.documents and self.window is None:
            return None
        place_T = torch.arange(document_id_BT.shape[-1], device=document_id_BT.device)
        back_TT = place_T[:, None] - place_T  # how far back a row looks for a column
        seen_TT = back_TT >= 0 if self.causal else torch.ones_like(back_TT, dtype=torch.bool)
        if self.window is not None:
            seen_TT &= back_TT.abs() < self.window
        if not self.documents:
            return seen_TT
        same_BTT = document_id_BT[:, :, None] == document_id_BT[:, None, :]
        return (same_BTT & seen_TT)[:, None]


def attention(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSD: Tensor,
    mask: MaskSpec,
    visible: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Scaled dot-product attention, (B, H, T, D) (Vaswani et al. 2017, equation 1).

    Args:
        q_BHTD: queries; scores are scaled by 1 / sqrt(D).
        k_BHSD: keys.
        v_BHSD: values.
        mask: who may see whom.
        visible: `mask.visible(document_id)` of the micro-batch; worked out once for all layers.
        dropout: applied to the attention weights (B, H, T, S). It forces the path that holds all of them in memory, so
            presets for long sequences leave it out.
    """
    if dropout is None:
        causal = mask.causal and visible is None
        return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSD, attn_mask=visible, is_causal=causal)
    scores_BHTS = (q_BHTD @ k_BHSD.transpose(-2, -1)) * (1 / math.sqrt(q_BHTD.shape[-1]))
    if visible is None and mask.causal:
        visible = torch.ones(scores_BHTS.shape[-2:], dtype=torch.bool, device=scores_BHTS.device).tril()
    if visible is not None:
        scores_BHTS = scores_BHTS.masked_fill(~visible, -math.inf)
    # Half precision is too coarse for the sum over S.
    wide = torch.promote_types(scores_BHTS.dtype, torch.float32)
    weights_BHTS = torch.softmax(scores_BHTS, dim=-1, dtype=wide).to(v_BHSD.dtype)
    return dropout(weights_BHTS) @ v_BHSD
