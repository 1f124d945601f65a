"""The kernel behind an operator's names."""

from __future__ import annotations

import pytest

from fuzzer.language.ops import OPS
from fuzzer.ledger.kernel import kernel


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (("aten.avg_pool2d_backward.default", "avg_pool3d", "avg_pool1d"), "avg_pool"),
        (("aten.index_fill.int_Scalar", "index_fill", "aten.index_fill_.int_Scalar"), "index_fill"),
        (("ifft2", "rfft2", "hfft", "ihfftn", "aten._fft_r2c.default"), "fft"),
        (("conv_transpose1d", "conv2d", "aten.convolution_backward.default"), "convolution"),
        (("slice_scatter", "aten.select_scatter.default", "diagonal_scatter"), "view_scatter"),
        (("prims._low_memory_max_pool_with_offsets.default", "aten.max_pool3d_with_indices.default"), "max_pool"),
        (("aten._unsafe_masked_index.default", "masked_index_put_accumulate"), "masked_index"),
        (("interpolate_bilinear", "upsample_bilinear2d_aa"), "upsample_bilinear"),
        (("native_layer_norm", "layer_norm", "aten.native_layer_norm_backward.default"), "layer_norm"),
        (("rrelu_training", "aten.rrelu_with_noise_functional.default"), "rrelu"),
        (("scatter", "scatter_", "aten.scatter.src"), "scatter"),
    ],
)
def test_names_of_one_kernel_give_one_word(names: tuple[str, ...], one: str) -> None:
    assert {kernel(name) for name in names} == {one}


def test_no_op_of_the_tables_is_left_without_a_name() -> None:
    assert all(kernel(name) for name in OPS)


def test_a_name_of_a_kernel_is_its_own() -> None:
    assert [name for name in OPS if kernel(kernel(name)) != kernel(name)] == []
