"""Detectors: those of torchvision with NMS inside, heads in YOLOv8's style with open batch and size, transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export


def small(name: str) -> Any:
    """A detector of torchvision for three classes and pictures of 96 by 96, over a small backbone."""
    models: Any = import_module("torchvision.models.detection")
    backbone: Any = import_module("torchvision.models.detection.backbone_utils")
    size = {"min_size": 96, "max_size": 96}
    if name == "ssdlite":
        return models.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    anchors: Any = import_module("torchvision.models.detection.anchor_utils")
    if name in ("fcos", "retinanet"):
        block: Any = import_module("torchvision.ops.feature_pyramid_network").LastLevelP6P7(256, 256)
        body = backbone.resnet_fpn_backbone(
            backbone_name="resnet18", weights=None, returned_layers=[2, 3, 4], extra_blocks=block
        )
        if name == "fcos":
            return models.FCOS(body, 4, topk_candidates=50, detections_per_img=10, score_thresh=0.01, **size)
        return models.RetinaNet(body, 4, topk_candidates=50, detections_per_img=10, score_thresh=0.01, **size)
    body = backbone.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    options = {
        "rpn_pre_nms_top_n_test": 60,
        "rpn_post_nms_top_n_test": 30,
        "box_detections_per_img": 10,
        "box_score_thresh": 0.01,
        "rpn_anchor_generator": anchors.AnchorGenerator(((8,), (16,), (32,), (64,), (96,)), ((0.5, 1.0, 2.0),) * 5),
    }
    return (models.MaskRCNN if name == "maskrcnn" else models.FasterRCNN)(body, 4, **size, **options)


def of_torchvision(path: Path, *, name: str, opset: int) -> Feeds:
    """Boxes, labels and scores of one picture; as many as survive."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    network = small(name).eval()

    class Lists(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            found = self.network([x])[0]
            return tuple(found[k] for k in ("boxes", "labels", "scores", "masks") if k in found)

    return export(Lists(), (torch.rand(3, 96, 96),), path, names=("x",), opset=opset)


def yolo8(path: Path, *, opset: int, new: bool, nms: bool) -> Feeds:
    """Three scales, distances as expectations over bins, anchors computed from the sizes; with `nms` the best boxes by
    class, whose number is found at run time."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    def conv(n: int, m: int, k: int = 3, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(n, m, k, stride, k // 2, bias=False), nn.BatchNorm2d(m, momentum=None), nn.SiLU()
        )

    class C2f(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.a, self.b, self.c = conv(n, n, 1), conv(n // 2, n // 2), conv(n + n // 2, n, 1)

        def forward(self, x: Any) -> Any:
            y, z = self.a(x).chunk(2, 1)
            return self.c(torch.cat((y, z, z + self.b(z)), 1))

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(conv(3, 8, 3, 2), conv(8, 16, 3, 2), C2f(16))
            self.p3, self.p4, self.p5 = (
                nn.Sequential(conv(n, m, 3, 2), C2f(m)) for n, m in ((16, 16), (16, 32), (32, 32))
            )
            self.up = nn.Upsample(scale_factor=2, mode="nearest")
            self.n4, self.n3 = C2f(64), C2f(80)
            self.shrink = conv(80, 16, 1)
            self.boxes = nn.ModuleList(nn.Conv2d(c, 4 * 8, 1) for c in (16, 64, 32))
            self.classes = nn.ModuleList(nn.Conv2d(c, 5, 1) for c in (16, 64, 32))
            for layer in self.classes:
                nn.init.normal_(layer.weight, std=0.5)  # scores that rounding does not bring into another order
            self.register_buffer("bins", torch.arange(8.0))

        def forward(self, x: Any) -> Any:
            a = self.p3(self.stem(x))
            b = self.p4(a)
            c = self.p5(b)
            m = self.n4(torch.cat((self.up(c), b), 1))
            n = self.shrink(self.n3(torch.cat((self.up(m), a), 1)))
            boxes, scores = [], []
            for f, box, cls, stride in zip((n, m, c), self.boxes, self.classes, (8, 16, 32), strict=True):
                h, w = f.shape[-2:]
                ys, xs = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
                middle = torch.stack((xs, ys), -1).reshape(1, -1, 2)
                d = box(f).flatten(2).transpose(1, 2).reshape(x.shape[0], -1, 4, 8).softmax(-1) @ self.bins
                boxes.append(torch.cat((middle - d[..., :2], middle + d[..., 2:]), -1) * stride)
                scores.append(cls(f).flatten(2).transpose(1, 2).sigmoid())
            box, score = torch.cat(boxes, 1), torch.cat(scores, 1)
            if not nms:
                return torch.cat((box, score), -1).transpose(1, 2)
            best, label = score[0].max(-1)
            sure = best > 0.45
            box, best, label = box[0][sure], best[sure], label[sure]
            ops: Any = import_module("torchvision.ops")
            keep = ops.nms(box + label[:, None] * 4096.0, best, 0.6)[:20]
            return torch.cat((box[keep], best[keep, None], label[keep, None].float()), -1)

    sizes = {0: "batch", 2: "height", 3: "width"}
    open_dims = None if new else {"x": {k: v for k, v in sizes.items() if k or not nms}}
    network = Yolo().train()
    with torch.no_grad():  # else what the deeper layers see hardly depends on the picture
        network(torch.rand(4, 3, 64, 96))
    return export(
        network.eval(), (torch.rand(1, 3, 64, 96),), path, names=("x",), dynamic=open_dims, opset=opset, new=new
    )


def of_transformers(path: Path, *, family: str, opset: int, new: bool) -> Feeds:
    """Boxes and classes of learned queries."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config, picture = TRANSFORMERS[family](transformers)
    network = getattr(transformers, f"{family}ForObjectDetection")(config)

    class Found(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            out = self.network(pixel_values=x)
            return out.logits, out.pred_boxes

    open_dims = {"x": {0: "batch"}} if family == "Yolos" else None
    x = torch.randn(2 if open_dims else 1, 3, *picture)
    return export(Found(), (x,), path, names=("x",), dynamic=open_dims, opset=opset, new=new)


def _yolos(t: Any) -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return t.YolosConfig(**sizes, image_size=[32, 48], patch_size=8, num_detection_tokens=7, num_labels=5), (32, 48)


def _backbone(t: Any) -> Any:
    return t.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )


def _deformable(t: Any) -> Any:
    return t.DeformableDetrConfig(
        backbone_config=_backbone(t), use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=32,
        encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=9, num_labels=5, num_feature_levels=3, encoder_n_points=2,
        decoder_n_points=2, disable_custom_kernels=True,
    ), (64, 64)  # fmt: skip


def _rt(t: Any) -> Any:
    backbone = t.RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    return t.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[16, 24, 32], encoder_ffn_dim=32,
        encoder_attention_heads=4, d_model=32, decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, num_queries=9,
        decoder_layers=1, decoder_attention_heads=4, decoder_n_points=2, num_labels=5, num_denoising=0,
    ), (64, 64)  # fmt: skip


TRANSFORMERS: dict[str, Callable[[Any], Any]] = {"Yolos": _yolos, "DeformableDetr": _deformable, "RTDetr": _rt}


def entries() -> Iterator[Entry]:
    """All of them."""
    for name, opset in (("ssdlite", 13), ("retinanet", 16), ("fcos", 17), ("fasterrcnn", 14), ("maskrcnn", 17)):
        yield Entry(f"{name}-old-{opset}", "detection", partial(of_torchvision, name=name, opset=opset))
    for opset, new in ((16, False), (20, True)):
        for nms in (False, True):
            name = f"yolo8{'-nms' if nms else ''}-{'new' if new else 'old'}-{opset}"
            yield Entry(name, "detection", partial(yolo8, opset=opset, new=new, nms=nms), unit=32)
    for family, opset, new in (("Yolos", 17, False), ("DeformableDetr", 18, True), ("RTDetr", 17, False)):
        make = partial(of_transformers, family=family, opset=opset, new=new)
        yield Entry(f"{family.lower()}-{'new' if new else 'old'}-{opset}", "detection", make)
