"""Guard bands: detects writes to a program's inputs, gaps of their storage included, and to the memory around them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# A whole number of the 512 bytes to which CUDA's allocator aligns, so a guarded tensor is aligned as any other.
BAND_BYTES = 1024
_PATTERN = 0xA5


class Guard:
    """Memory for a program's inputs, and a copy of what it held at first."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by the storage's address: bytes now and then

    def allocate(self, flat: torch.Tensor) -> torch.Tensor:
        """A copy of a flat tensor in a storage of exactly its size, with a band of BAND_BYTES on either side."""
        size = flat.numel() * flat.element_size()
        if size == 0:
            return flat
        around = torch.full((BAND_BYTES + size + BAND_BYTES,), _PATTERN, dtype=torch.uint8, device=flat.device)
        inside = around[BAND_BYTES:-BAND_BYTES].view(flat.dtype).copy_(flat)
        housed: torch.Tensor = torch.from_dlpack(inside)  # type: ignore[attr-defined]
        self.held[housed.data_ptr()] = around, around.clone()
        return housed

    def restore(self) -> None:
        """Write back the bytes that all of that memory held at first."""
        for now, then in self.held.values():
            now.copy_(then)

    def written(self, named: dict[str, torch.Tensor]) -> Iterator[str]:
        """The names of those tensors whose storage was written (`x0`), or the bands around it (`around x0`)."""
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
