"""What a program is given, watched: its storage bit by bit, gaps included, and bands of memory around it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# A whole number of the 512 bytes to which CUDA's allocator aligns, so a guarded tensor is aligned as any other.
BAND_BYTES = 1024
PATTERN = 0xA5


class Guard:
    """The memory in which tensors were housed, and what it held at first."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by the storage's address: bytes now and then

    def house(self, flat: torch.Tensor) -> torch.Tensor:
        """The same numbers, one after the other, in a storage of exactly their size that has a band on either side."""
        size = flat.numel() * flat.element_size()
        if size == 0:
            return flat
        around = torch.full((BAND_BYTES + size + BAND_BYTES,), PATTERN, dtype=torch.uint8, device=flat.device)
        inside = around[BAND_BYTES:-BAND_BYTES].view(flat.dtype).copy_(flat)
        housed: torch.Tensor = torch.from_dlpack(inside)  # type: ignore[attr-defined]
        self.held[housed.data_ptr()] = around, around.clone()
        return housed

    def touched(self, named: dict[str, torch.Tensor]) -> Iterator[str]:
        """Of these tensors those whose storage was written to (`x0`), and whose bands were (`around x0`)."""
        places = {name: tensor.untyped_storage().data_ptr() for name, tensor in named.items()}
        held = {name: self.held[at] for name, at in places.items() if at in self.held}
        # all at once first: each look at a GPU's memory waits for the GPU, which other processes share
        if not held or torch.equal(*(torch.cat(bands) for bands in zip(*held.values(), strict=True))):
            return
        for name, (now, then) in held.items():
            if not torch.equal(now[BAND_BYTES:-BAND_BYTES], then[BAND_BYTES:-BAND_BYTES]):
                yield name
            if not all(torch.equal(now[band], then[band]) for band in (slice(BAND_BYTES), slice(-BAND_BYTES, None))):
                yield f"around {name}"
