"""Networks that the accelerator trains, as PyTorch modules; no two parameters of one are equal (`Network.module`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from tests.training.torch_networks import CLASSES, NETWORKS, Network, Residual, images, pictures
from tests.training.torch_networks import ResNet18 as AveragingResNet18


class ResNet18(AveragingResNet18):
    """As the published compiler takes it: the last maps are pooled by their maximum, which the unit can do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        return self.head(F.max_pool2d(x, 4).flatten(1))


class Blocks(nn.Module):
    """The two kinds of residual blocks of ResNet-18, small: one beside the identity, one beside a projection."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        return self.head(F.max_pool2d(x, 4).flatten(1))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with norms beside a way past them; four times as many maps leave it."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer)
        fits = stride == 1 and inner == outer
        projection = nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
        self.past = nn.Identity() if fits else nn.Sequential(*projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(self.norm1(self.conv1(x)))
        inside = torch.relu(self.norm2(self.conv2(inside)))
        return torch.relu(self.norm3(self.conv3(inside)) + self.past(x))


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2016) with the stem of ImageNet: for 3 x 64 x 64 images the last maps are 2 x 2."""

    def __init__(self, width: int = 64, depths: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inner = width
        for stage, depth in enumerate(depths):
            for k in range(depth):
                blocks.append(Bottleneck(inner, width << stage, 2 if stage and not k else 1))
                inner = 4 * width << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 3, 2, 1)
        return self.head(F.avg_pool2d(self.blocks(x), 2).flatten(1))


class ResNet101(ResNet50):
    """ResNet-101 with the stem of CIFAR: for 3 x 32 x 32 images the last maps are 4 x 4, pooled by their maximum."""

    def __init__(self, width: int = 64) -> None:
        super().__init__(width, (3, 4, 23, 3))
        self.conv = nn.Conv2d(3, width, 3, 1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        return self.head(F.max_pool2d(x, 4).flatten(1))


class Branches(nn.Module):
    """What lies on several ways to the loss, joined in one storage: convolutions beside their input, and what the host
    computes between instructions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.up, self.layer, self.head = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(x))
        x = torch.cat([F.silu(self.conv2(x)), x], 1)
        x = x * torch.sigmoid(F.avg_pool2d(x, 8))
        x = self.layer(F.gelu(self.up(F.avg_pool2d(x, 8).flatten(1))))
        return self.head(torch.tanh(x))


def alexnet(width: int = 96, dense: int = 2048) -> nn.Module:
    """AlexNet (Krizhevsky et al. 2012) for 3 x 32 x 32 images as the published compiler has it, without dropout."""
    layers: list[nn.Module] = []
    inner = 3
    for outer, pooled in ((6, True), (16, True), (24, False), (24, False), (16, True)):
        outer = outer * width // 6
        layers += [nn.Conv2d(inner, outer, 3, 1, 1, bias=False), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pooled else []
        inner = outer
    layers += [nn.Flatten(), nn.Linear(16 * inner, dense, bias=False), nn.ReLU()]
    layers += [nn.Linear(dense, dense, bias=False), nn.ReLU(), nn.Linear(dense, CLASSES, bias=False)]
    return nn.Sequential(*layers)


def vgg11(width: int = 64) -> nn.Module:
    """VGG-11 (Simonyan and Zisserman 2015, configuration A) for 3 x 32 x 32 images, with one linear layer."""
    layers: list[nn.Module] = []
    inner = 3
    for outer, pooled in ((1, 1), (2, 1), (4, 0), (4, 1), (8, 0), (8, 1), (8, 0), (8, 1)):
        layers += [nn.Conv2d(inner, width * outer, 3, 1, 1), nn.ReLU(), *([nn.MaxPool2d(2)] if pooled else [])]
        inner = width * outer
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inner, CLASSES))


S2_NETWORKS: Mapping[str, Network] = {
    "mlp": NETWORKS["mlp"],
    "lenet": Network(NETWORKS["lenet"].make, images(1, 28, 28), 8),
    "blocks": Network(Blocks, images(3, 8, 8), 4),
    "branches": Network(Branches, images(3, 8, 8), 4),
    "resnet18": Network(ResNet18, pictures(32), 4),
    "alexnet": Network(alexnet, pictures(32), 4),
    "vgg11": Network(vgg11, pictures(32), 4),
    "resnet50": Network(ResNet50, pictures(64), 2),
}
"""As they are trained in one step."""
