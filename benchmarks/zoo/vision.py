"""Networks of images: classifiers of timm and torchvision, a UNet, detection heads, warps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export

CLASSIFIERS: tuple[tuple[str, int, int, bool, dict[str, Any]], ...] = (
    # timm's name, size of the picture, operator set, new exporter, arguments
    ("resnet18", 64, 13, False, {}),
    ("mobilenetv3_small_100", 64, 14, False, {}),
    ("efficientnet_b0", 64, 15, False, {}),
    ("convnext_atto", 64, 18, True, {}),
    ("vit_tiny_patch16_224", 64, 17, False, {"img_size": 64, "depth": 2}),
    ("vit_tiny_patch16_224", 64, 20, True, {"img_size": 64, "depth": 2}),
    ("swin_tiny_patch4_window7_224", 56, 18, True, {"img_size": 56, "depths": (2, 2, 2, 2), "embed_dim": 24}),
    ("mixer_s32_224", 64, 16, False, {"img_size": 64}),
    ("coatnet_nano_rw_224", 64, 18, True, {"img_size": 64}),
    ("poolformer_s12", 64, 17, False, {}),
    ("regnety_002", 64, 21, True, {}),
    ("edgenext_xx_small", 64, 18, False, {}),
    ("maxvit_rmlp_pico_rw_256", 64, 18, True, {"img_size": 64}),
    ("resnest14d", 64, 13, False, {}),
    ("mobilenetv4_conv_small", 64, 17, False, {}),
    ("efficientformerv2_s0", 64, 18, True, {"img_size": 64}),
    ("fastvit_t8", 64, 17, False, {}),
    ("ghostnet_100", 64, 18, True, {}),
    ("levit_128s", 64, 18, True, {"img_size": 64}),
    ("mobilevit_xxs", 64, 17, False, {}),
    ("beit_base_patch16_224", 64, 17, False, {"img_size": 64, "depth": 2}),
)


def classifier(path: Path, *, name: str, size: int, opset: int, new: bool, arguments: dict[str, Any]) -> Feeds:
    """One of timm's, for an open batch."""
    timm, torch = import_module("timm"), import_module("torch")
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, num_classes=10, **arguments)
    x = torch.randn(2, 3, size, size)
    return export(module, (x,), path, names=("x",), dynamic={"x": {0: "batch"}}, opset=opset, new=new)


def unet(path: Path, *, opset: int, new: bool) -> Feeds:
    """Down and up again, with skip connections and open height and width."""
    torch: Any = import_module("torch")
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    def block(n: int, m: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(n, m, 3, padding=1), nn.GroupNorm(4, m), nn.SiLU(), nn.Conv2d(m, m, 3, padding=1), nn.SiLU()
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = block(3, 16), block(16, 32), block(32, 64)
            self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
            self.d, self.e, self.head = block(64, 32), block(48, 16), nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            a = self.a(x)
            b = self.b(F.max_pool2d(a, 2))
            c = self.c(F.avg_pool2d(b, 2))
            d = self.d(torch.cat([self.up(c), b], 1))
            e = F.interpolate(d, size=a.shape[-2:], mode="bilinear", align_corners=False)
            return self.head(self.e(torch.cat([e, a], 1))).softmax(1)

    open_dims = {"x": {0: "batch", 2: "height", 3: "width"}} if not new else {"x": {0: "batch"}}
    return export(UNet(), (torch.randn(2, 3, 32, 48),), path, names=("x",), dynamic=open_dims, opset=opset, new=new)


def detector(path: Path, *, opset: int, nms: bool, new: bool) -> Feeds:
    """A head in YOLO's style: anchors, boxes from offsets, scores; with `nms` the boxes that survive."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU())
            self.down = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1))
            self.spp = nn.ModuleList(nn.MaxPool2d(k, 1, k // 2) for k in (5, 9, 13))
            self.head = nn.Conv2d(128, 3 * 9, 1)
            self.register_buffer("anchors", torch.tensor([[4.0, 6], [10, 8], [16, 20]]).view(1, 3, 1, 1, 2))

        def forward(self, x: Any) -> Any:
            f = self.down(self.stem(x))
            f = torch.cat([f, *(pool(f) for pool in self.spp)], 1)
            p = self.head(f)
            b, _, h, w = p.shape
            p = p.view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack((xs, ys), -1).float()
            middle = (p[..., :2] * 2 - 0.5 + grid) * 4
            extent = (p[..., 2:4] * 2) ** 2 * self.anchors
            boxes = torch.cat([middle - extent / 2, middle + extent / 2], -1).reshape(b, -1, 4)
            scores = (p[..., 4:5] * p[..., 5:]).reshape(b, -1, 4)
            if not nms:
                best, labels = scores.max(-1)
                top, index = best.topk(20, 1)
                return boxes.gather(1, index[..., None].expand(-1, -1, 4)), top, labels.gather(1, index)
            ops = import_module("torchvision.ops")
            best, labels = scores[0].max(-1)
            keep = ops.nms(boxes[0], best, 0.5)[:10]
            return boxes[0][keep], best[keep], labels[keep]

    return export(Yolo(), (torch.randn(1, 3, 32, 32),), path, names=("x",), opset=opset, new=new)


def segmenter(path: Path) -> Feeds:
    """torchvision's LR-ASPP, whose result is resized to the picture."""
    torch, models = import_module("torch"), import_module("torchvision.models.segmentation")
    torch.manual_seed(0)
    network = models.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    network.eval()

    class Out(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(x)["out"].argmax(1), self.network(x)["out"]

    return export(Out(), (torch.randn(1, 3, 64, 64),), path, names=("x",), opset=16)


def detr(path: Path, *, new: bool) -> Feeds:
    """Convolutions, a transformer over the picture with learned queries, boxes and classes."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Detr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 16, 7, 4, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1))
            self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
            self.queries = nn.Parameter(torch.rand(12, 32))
            self.rows, self.columns = (nn.Parameter(torch.rand(20, 16)) for _ in range(2))
            self.classes, self.boxes = nn.Linear(32, 7), nn.Linear(32, 4)

        def forward(self, x: Any) -> Any:
            f = self.body(x)
            h, w = f.shape[-2:]
            places = torch.cat(
                [self.columns[:w].unsqueeze(0).repeat(h, 1, 1), self.rows[:h].unsqueeze(1).repeat(1, w, 1)], -1
            )
            tokens = places.flatten(0, 1).unsqueeze(0) + f.flatten(2).permute(0, 2, 1)
            found = self.transformer(tokens, self.queries.unsqueeze(0).expand(f.shape[0], -1, -1))
            return self.classes(found), self.boxes(found).sigmoid()

    open_dims = None if new else {"x": {0: "batch"}}
    return export(Detr(), (torch.randn(2, 3, 64, 96),), path, names=("x",), dynamic=open_dims, opset=18, new=new)


def warp(path: Path, *, opset: int, new: bool) -> Feeds:
    """A spatial transformer: a predicted affine grid, samples of the picture, windows taken out and put back."""
    torch: Any = import_module("torch")
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Warp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.find = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
            self.affine, self.flow = nn.Linear(32, 6), nn.Conv2d(3, 2, 3, padding=1)

        def forward(self, x: Any) -> Any:
            theta = self.affine(self.find(x)).view(-1, 2, 3)
            grid = F.affine_grid(theta, list(x.shape), align_corners=False)
            y = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
            moved = grid + 0.1 * torch.tanh(self.flow(y)).permute(0, 2, 3, 1)
            z = F.grid_sample(y, moved, mode="nearest", padding_mode="zeros", align_corners=True)
            windows = F.unfold(y, 3, padding=1)
            return y, z, F.fold(windows, x.shape[-2:], 3, padding=1), F.pixel_shuffle(torch.cat([y, z[:, :1]], 1), 2)

    return export(Warp(), (torch.randn(2, 3, 16, 24),), path, names=("x",), opset=opset, new=new)


def entries() -> Iterator[Entry]:
    """All of them."""
    for name, size, opset, new, arguments in CLASSIFIERS:
        make = partial(classifier, name=name, size=size, opset=opset, new=new, arguments=arguments)
        yield Entry(f"{name}-{'new' if new else 'old'}-{opset}", "vision", make)
    for opset, new in ((13, False), (18, True)):
        yield Entry(f"unet-{'new' if new else 'old'}-{opset}", "vision", partial(unet, opset=opset, new=new), unit=4)
        yield Entry(
            f"yolo-{'new' if new else 'old'}-{opset}", "detection", partial(detector, opset=opset, nms=False, new=new)
        )
        yield Entry(
            f"yolo-nms-{'new' if new else 'old'}-{opset}",
            "detection",
            partial(detector, opset=opset, nms=True, new=new),
        )
        yield Entry(f"detr-{'new' if new else 'old'}", "detection", partial(detr, new=new))
    yield Entry("lraspp-old-16", "vision", segmenter)
    yield Entry("warp-old-20", "vision", partial(warp, opset=20, new=False))
    yield Entry("warp-new-20", "vision", partial(warp, opset=20, new=True))
