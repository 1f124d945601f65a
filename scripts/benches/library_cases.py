"""Calls of many libraries' functions and modules, as their users make them, for `scripts/bench libraries`.

A case builds one call: tiny, with random weights, nothing downloaded. It imports its library only when it is built.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Call:
    """function(*args, **kwargs), as the library's user would write it."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One call of a library.

    library  its distribution on the package index; "torch" needs none.
    name     of the case, unique in its library.
    """

    library: str
    name: str
    build: Callable[[], Call]

    def __str__(self) -> str:
        return f"{self.library}/{self.name}"


CASES: list[Case] = []


def case(library: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """Enters the decorated function as a case of this library, under its own name."""

    def enter(build: Callable[[], Call]) -> Callable[[], Call]:
        CASES.append(Case(library, build.__name__.replace("_", "-"), build))
        return build

    return enter


def build(case: Case) -> Call:
    """The call, the same in every process. Raises whatever the library raises."""
    _import_without_kernels("torchvision", ("nms", "qnms"))
    torch.manual_seed(0)
    return case.build()


@functools.cache
def _import_without_kernels(package: str, operators: tuple[str, ...]) -> None:
    """Let `import torchvision` succeed where its C++ library does not load (one built for CUDA beside a CPU torch).

    The import gives fakes to these operators, and fails where they are not declared. No case calls them.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return
    try:
        for library in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        for name in operators:
            torch.library.define(f"{package}::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def drawn(*shape: int) -> torch.Tensor:
    """A normal input that requires a gradient."""
    return torch.randn(*shape, requires_grad=True)


# ---------------------------------------------------------------- torch's own modules, and ways to write a function


@case("torch")
def lstm() -> Call:
    return Call(nn.LSTM(5, 6, num_layers=2, batch_first=True), (drawn(2, 4, 5),))


@case("torch")
def batch_norm_in_training() -> Call:
    return Call(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)), (drawn(2, 3, 6, 6),))


@case("torch")
def dropout_in_training() -> Call:
    return Call(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 2)), (drawn(4, 8),))


@case("torch")
def transformer_encoder_layer() -> Call:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return Call(layer, (drawn(2, 5, 16),), {"is_causal": True, "src_mask": torch.full((5, 5), -torch.inf).triu(1)})


class _Cube(torch.autograd.Function):
    """x cubed, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return cotangents[0] * 3 * x**2


@case("torch")
def function_of_ones_own() -> Call:
    def cubes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cubed: torch.Tensor = _Cube.apply(x)
        return cubed @ y

    return Call(cubes, (drawn(3, 4), drawn(4, 2)))


@case("torch")
def autocast_inside() -> Call:
    layer = nn.Linear(8, 4)

    def mixed(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x).relu()

    return Call(mixed, (drawn(3, 8),))


@case("torch")
def no_grad_inside() -> Call:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            top = x.abs().amax(-1, keepdim=True)
        return (x / top).exp()

    return Call(scaled, (drawn(3, 5),))


@case("torch")
def integers_only() -> Call:
    def bits(x: torch.Tensor, count: int) -> torch.Tensor:
        return (x.unsqueeze(-1) >> torch.arange(count)) & 1

    return Call(bits, (torch.randint(0, 64, (3, 4)),), {"count": 6})


@case("torch")
def masked_writes() -> Call:
    def clipped(batch: dict[str, Any]) -> dict[str, Any]:
        y = batch["x"] ** 2.0
        y[batch["keep"] & (batch["x"] > 0)] = 0
        return {"y": y, "rows": y.shape[0] // 2, "sum": y.sum(-1)}

    return Call(clipped, ({"x": drawn(4, 6), "keep": torch.rand(4, 6) > 0.5},))


@case("torch")
def checkpoint() -> Call:
    from torch.utils.checkpoint import checkpoint as recomputed

    layer = nn.Sequential(nn.Linear(6, 6), nn.SiLU(inplace=True), nn.Linear(6, 3))
    return Call(lambda x: recomputed(layer, x, use_reentrant=False).softmax(-1), (drawn(4, 6),))


@case("torch")
def scripted_callee() -> Call:
    @torch.jit.script
    def tempered(x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.tanh(x * scale) * x

    return Call(lambda x: tempered(x, 0.5).sum(-1), (drawn(3, 5),))


# ---------------------------------------------------------------- language models


def _tokens() -> torch.Tensor:
    return torch.randint(0, 50, (2, 7))


@case("transformers")
def llama() -> Call:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    return Call(LlamaModel(config), (), {"input_ids": _tokens(), "use_cache": False})


@case("transformers")
def bert() -> Call:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    return Call(BertModel(config).eval(), (_tokens(),), {"attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3])})


@case("transformers")
def gpt2() -> Call:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    tokens = _tokens()
    return Call(GPT2LMHeadModel(config).eval(), (tokens,), {"labels": tokens})


@case("transformers")
def mixtral_experts() -> Call:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=8, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2)
    block = MixtralSparseMoeBlock(config)
    for parameter in block.parameters():  # the experts' weights are made without values
        nn.init.normal_(parameter, std=0.3)
    return Call(block, (drawn(2, 5, 8),))


@case("transformers")
def vit_layer() -> Call:
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTLayer

    config = ViTConfig(hidden_size=16, intermediate_size=32, num_attention_heads=2, attn_implementation="sdpa")
    return Call(ViTLayer(config), (drawn(2, 5, 16),))


@case("transformers")
def t5_encoder() -> Call:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return Call(T5EncoderModel(config).eval(), (_tokens(),))


@case("x-transformers")
def decoder() -> Call:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True)
    return Call(TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers), (_tokens(),))


@case("performer-pytorch")
def fast_attention() -> Call:
    from performer_pytorch import SelfAttention

    return Call(SelfAttention(dim=16, heads=2, dim_head=8, nb_features=8).eval(), (drawn(2, 6, 16),))


@case("rotary-embedding-torch")
def rotated_queries() -> Call:
    from rotary_embedding_torch import RotaryEmbedding

    return Call(RotaryEmbedding(dim=8).rotate_queries_or_keys, (drawn(1, 2, 5, 16),))


@case("peft")
def lora() -> Call:
    from peft import LoraConfig, get_peft_model

    base = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["0", "2"], init_lora_weights=False))
    return Call(model, (drawn(3, 8),))


# ---------------------------------------------------------------- images


@case("torchvision")
def resnet18() -> Call:
    from torchvision.models import resnet18

    return Call(resnet18(num_classes=5).eval(), (torch.randn(1, 3, 32, 32),))


@case("torchvision")
def vgg11_features() -> Call:
    from torchvision.models import vgg11

    return Call(vgg11(num_classes=2).features[:6], (drawn(1, 3, 8, 8),))


@case("torchvision")
def alexnet_features() -> Call:
    from torchvision.models import alexnet

    return Call(alexnet(num_classes=2).features[:6], (drawn(1, 3, 63, 63),))


@case("torchvision")
def squeezenet_fire() -> Call:
    from torchvision.models.squeezenet import Fire

    return Call(Fire(6, 4, 5, 5), (drawn(2, 6, 5, 5),))


@case("torchvision")
def swin_block() -> Call:
    from torchvision.models.swin_transformer import SwinTransformerBlock

    return Call(SwinTransformerBlock(8, 2, window_size=[2, 2], shift_size=[1, 1]), (drawn(1, 4, 4, 8),))


@case("torchvision")
def focal_loss() -> Call:
    from torchvision.ops import sigmoid_focal_loss

    return Call(sigmoid_focal_loss, (drawn(3, 5), torch.randint(0, 2, (3, 5)).float()), {"reduction": "mean"})


@case("timm")
def squeeze_excite() -> Call:
    from timm.layers import SqueezeExcite

    return Call(SqueezeExcite(8, rd_channels=4), (drawn(2, 8, 4, 4),))


@case("timm")
def vit_block() -> Call:
    from timm.models.vision_transformer import Block

    return Call(Block(16, 2, qkv_bias=True, init_values=0.1), (drawn(2, 5, 16),))


@case("timm")
def convnext_block() -> Call:
    from timm.models.convnext import ConvNeXtBlock

    return Call(ConvNeXtBlock(8), (drawn(1, 8, 8, 8),))


@case("timm")
def inverted_residual() -> Call:
    from timm.models._efficientnet_blocks import InvertedResidual

    return Call(InvertedResidual(8, 8, exp_ratio=2.0), (drawn(2, 8, 6, 6),))


@case("kornia")
def gaussian_blur() -> Call:
    from kornia.filters import gaussian_blur2d

    return Call(gaussian_blur2d, (drawn(1, 2, 7, 7), (3, 3), (1.5, 1.5)))


@case("kornia")
def warp_affine() -> Call:
    from kornia.geometry.transform import warp_affine

    turn = torch.tensor([[[0.9, -0.3, 0.4], [0.3, 0.9, -0.2]]], requires_grad=True)
    return Call(warp_affine, (drawn(1, 2, 6, 6), turn), {"dsize": (5, 5)})


@case("kornia")
def rgb_to_hsv() -> Call:
    from kornia.color import rgb_to_hsv

    return Call(rgb_to_hsv, (torch.rand(1, 3, 5, 5, requires_grad=True),))


@case("monai")
def convolution() -> Call:
    from monai.networks.blocks import Convolution

    return Call(Convolution(2, 1, 4, act="PRELU", norm="INSTANCE"), (drawn(1, 1, 6, 6),))


@case("monai")
def dice_loss() -> Call:
    from monai.losses import DiceLoss

    return Call(DiceLoss(to_onehot_y=True, softmax=True), (drawn(2, 3, 4, 4), torch.randint(0, 3, (2, 1, 4, 4))))


@case("diffusers")
def resnet_block() -> Call:
    from diffusers.models.resnet import ResnetBlock2D

    return Call(ResnetBlock2D(in_channels=8, temb_channels=6, groups=2), (drawn(1, 8, 5, 5), drawn(1, 6)))


@case("diffusers")
def transformer_block() -> Call:
    from diffusers.models.attention import BasicTransformerBlock

    block = BasicTransformerBlock(16, 2, 8, cross_attention_dim=12)
    return Call(block, (drawn(1, 5, 16),), {"encoder_hidden_states": drawn(1, 3, 12)})


@case("segmentation-models-pytorch")
def unet() -> Call:
    from segmentation_models_pytorch import Unet

    model = Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(8, 8, 4), classes=2)
    return Call(model.eval(), (torch.randn(1, 3, 16, 16),))


@case("segmentation-models-pytorch")
def tversky_loss() -> Call:
    from segmentation_models_pytorch.losses import TverskyLoss

    return Call(TverskyLoss("multiclass"), (drawn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))))


@case("pytorch-msssim")
def ssim() -> Call:
    from pytorch_msssim import ssim

    pictures = torch.rand(1, 2, 12, 12, requires_grad=True), torch.rand(1, 2, 12, 12)
    return Call(ssim, pictures, {"data_range": 1.0, "win_size": 5})


@case("vector-quantize-pytorch")
def quantized() -> Call:
    from vector_quantize_pytorch import FSQ

    return Call(FSQ(levels=[4, 3, 5], dim=6), (drawn(2, 5, 6),))


# ---------------------------------------------------------------- graphs, geometry, equations


def _edges() -> torch.Tensor:
    return torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]])


@case("torch_geometric")
def gcn_conv() -> Call:
    from torch_geometric.nn import GCNConv

    return Call(GCNConv(4, 3), (drawn(5, 4), _edges()))


@case("torch_geometric")
def gat_conv() -> Call:
    from torch_geometric.nn import GATConv

    return Call(GATConv(4, 3, heads=2), (drawn(5, 4), _edges()))


@case("torchdiffeq")
def odeint() -> Call:
    from torchdiffeq import odeint

    layer = nn.Linear(3, 3)

    def solved(start: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        path: torch.Tensor = odeint(lambda t, y: torch.tanh(layer(y)) * t, start, times, method="rk4")
        return path

    return Call(solved, (drawn(2, 3), torch.linspace(0, 1, 4)))


@case("nflows")
def coupling() -> Call:
    from nflows.nn.nets import ResidualNet
    from nflows.transforms import AffineCouplingTransform

    def net(inputs: int, outputs: int) -> nn.Module:
        return ResidualNet(inputs, outputs, hidden_features=8, num_blocks=1)

    return Call(AffineCouplingTransform(torch.tensor([1, 0, 1, 0]), net), (drawn(3, 4),))


@case("nflows")
def rational_quadratic_spline() -> Call:
    from nflows.transforms.splines import unconstrained_rational_quadratic_spline

    return Call(unconstrained_rational_quadratic_spline, (drawn(6), drawn(6, 4), drawn(6, 4), drawn(6, 3)))


@case("geoopt")
def poincare_distance() -> Call:
    from geoopt import PoincareBall

    return Call(PoincareBall().dist, ((torch.randn(4, 3) * 0.2).requires_grad_(), (torch.randn(4, 3) * 0.2)))


@case("geoopt")
def sphere_expmap() -> Call:
    from geoopt import Sphere

    start = nn.functional.normalize(torch.randn(4, 3), dim=-1)
    return Call(Sphere().expmap, (start, drawn(4, 3)))


@case("e3nn")
def spherical_harmonics() -> Call:
    from e3nn.o3 import spherical_harmonics

    return Call(spherical_harmonics, ([0, 1, 2], drawn(4, 3)), {"normalize": True})


@case("gpytorch")
def matern_kernel() -> Call:
    from gpytorch.kernels import MaternKernel, ScaleKernel

    kernel = ScaleKernel(MaternKernel(nu=2.5))
    return Call(lambda x, y: kernel(x, y).to_dense(), (drawn(4, 2), torch.randn(3, 2)))


# ---------------------------------------------------------------- functions and losses


@case("einops")
def patches() -> Call:
    from einops.layers.torch import EinMix, Rearrange

    mixed = EinMix("b n (c p) -> b n d", weight_shape="c p d", bias_shape="d", c=2, p=4, d=3)
    return Call(nn.Sequential(Rearrange("b c (h a) (w e) -> b (h w) (c a e)", a=2, e=2), mixed), (drawn(1, 2, 4, 4),))


@case("entmax")
def entmax15() -> Call:
    from entmax import entmax15

    return Call(entmax15, (drawn(3, 6),), {"dim": -1})


@case("entmax")
def sparsemax() -> Call:
    from entmax import sparsemax

    return Call(sparsemax, (drawn(3, 6),), {"dim": -1})


@case("torchmetrics")
def pearson_correlation() -> Call:
    from torchmetrics.functional import pearson_corrcoef

    return Call(pearson_corrcoef, (drawn(9), torch.randn(9)))


@case("torchmetrics")
def confusion_matrix() -> Call:
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    labels = torch.randint(0, 3, (12,)), torch.randint(0, 3, (12,))
    return Call(multiclass_confusion_matrix, labels, {"num_classes": 3, "validate_args": False})


@case("pytorch-metric-learning")
def triplet_loss() -> Call:
    from pytorch_metric_learning.losses import TripletMarginLoss

    return Call(TripletMarginLoss(), (drawn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])))


@case("torch-dct")
def cosine_transform() -> Call:
    from torch_dct import dct_2d

    return Call(dct_2d, (drawn(2, 4, 6),), {"norm": "ortho"})
