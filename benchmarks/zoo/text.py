"""Transformers of today's families, from the package transformers with small configurations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export

SMALL: dict[str, Any] = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE: dict[str, Any] = {"intermediate_size": 64}
GROUPED: dict[str, Any] = {**SMALL, **WIDE, "num_key_value_heads": 2}
OLD: dict[str, Any] = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
RELATIVE: dict[str, Any] = {**WIDE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
TOKENS: dict[str, Any] = {f"{name}_token_id": k for k, name in enumerate(("pad", "eos", "bos", "cls", "sep"))}
ENCODERS: tuple[tuple[str, dict[str, Any], int, bool], ...] = (
    # the class of transformers, arguments of its configuration, operator set, new exporter
    ("Bert", WIDE, 14, False),
    ("Bert", WIDE, 18, True),
    ("Roberta", {**WIDE, "max_position_embeddings": 64}, 17, False),
    ("Albert", {**WIDE, "embedding_size": 16}, 16, False),
    ("DebertaV2", RELATIVE, 17, False),
    ("Deberta", RELATIVE, 18, True),
    ("Electra", {**WIDE, "embedding_size": 16}, 20, True),
    ("ModernBert", {**WIDE, **TOKENS}, 18, True),
    ("DistilBert", {"dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": 2}, 17, False),
    ("MPNet", WIDE, 17, False),
    ("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}, 17, False),
    ("ConvBert", {**WIDE, "embedding_size": 16}, 18, True),
    ("Longformer", {**WIDE, "attention_window": [4, 4]}, 17, False),
    ("FNet", WIDE, 18, True),
    ("RoFormer", WIDE, 18, True),
    ("Mamba", {"state_size": 4}, 18, True),
)
DECODERS: tuple[tuple[str, dict[str, Any], int, bool], ...] = (
    ("GPT2", {**OLD, "bos_token_id": 1, "eos_token_id": 2}, 14, False),
    ("GPT2", {**OLD, "bos_token_id": 1, "eos_token_id": 2}, 18, True),
    ("Llama", GROUPED, 17, False),
    ("Llama", GROUPED, 20, True),
    ("Qwen2", GROUPED, 21, True),
    ("Qwen3", {**GROUPED, "head_dim": 8}, 18, True),
    ("Gemma", {**GROUPED, "num_key_value_heads": 1, "head_dim": 8}, 18, True),
    ("Gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 5}, 18, True),
    ("GPTNeoX", {**SMALL, **WIDE}, 15, False),
    ("Mistral", {**GROUPED, "sliding_window": 5}, 18, True),
    ("Phi", {**SMALL, **WIDE}, 18, True),
    ("OPT", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}, 18, True),
    ("Bloom", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}, 18, True),
    ("Falcon", {**SMALL, "new_decoder_architecture": False, "multi_query": False}, 18, True),
    ("GPTJ", {**OLD, "rotary_dim": 4}, 18, True),
    ("Olmo2", GROUPED, 18, True),
)


def encoder(path: Path, *, family: str, arguments: dict[str, Any], opset: int, new: bool) -> Feeds:
    """Tokens and a mask, both of an open batch and length."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **arguments}, attn_implementation="eager")
    network = getattr(transformers, f"{family}Model")(config)

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.network(input_ids=ids, attention_mask=mask).last_hidden_state

    ids = torch.randint(5, 99, (2, 12))
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    open_dims = {n: {0: "batch", 1: "seq"} for n in ("ids", "mask")}
    return export(Last(), (ids, mask), path, names=("ids", "mask"), dynamic=open_dims, opset=opset, new=new)


def decoder(
    path: Path, *, family: str, arguments: dict[str, Any], opset: int, new: bool, everywhere: bool = False
) -> Feeds:
    """One step with a cache of keys and values that grows: logits and the new cache.

    Batch, sequence and cache are open in the old exporter, and in both if that is asked for `everywhere`; one sequence
    is then padded.
    """
    torch, transformers = import_module("torch"), import_module("transformers")
    cache_class = import_module("transformers.cache_utils").DynamicCache
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**arguments, attn_implementation="eager")
    kind = "GPT2LMHeadModel" if family == "GPT2" else f"{family.removesuffix('Text')}ForCausalLM"
    network = getattr(transformers, kind)(config)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, k0: Any, v0: Any, k1: Any, v1: Any) -> Any:
            cache = cache_class()
            for layer, (k, v) in enumerate(((k0, v0), (k1, v1))):
                cache.update(k, v, layer)
            out = self.network(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
            layers = out.past_key_values.layers
            return (out.logits, *(t for layer in layers for t in (layer.keys, layer.values)))

    batch, past, now = 2, 7, 3
    ids = torch.randint(5, 99, (batch, now))
    mask = torch.ones(batch, past + now, dtype=torch.int64)
    if everywhere:
        mask[1, :4] = 0
    caches = [torch.randn(batch, heads, past, size) for _ in range(4)]
    names = ("ids", "mask", "k0", "v0", "k1", "v1")
    results = ("logits", *(f"new_{n}" for n in names[2:]))
    open_dims = {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "total"}}
    open_dims |= {n: {0: "batch", 2: "past"} for n in names[2:]}
    dynamic = open_dims if everywhere or not new else None
    return export(
        Step(), (ids, mask, *caches), path, names=names, outputs=results, dynamic=dynamic, opset=opset, new=new
    )


def t5(path: Path, *, new: bool) -> Feeds:
    """An encoder and a decoder with relative positions."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False
    )
    network = transformers.T5ForConditionalGeneration(config)

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, target: Any) -> Any:
            return self.network(input_ids=ids, decoder_input_ids=target, use_cache=False).logits

    feeds = torch.randint(5, 99, (2, 10)), torch.randint(5, 99, (2, 6))
    open_dims = None if new else {"ids": {0: "batch", 1: "seq"}, "target": {0: "batch", 1: "length"}}
    return export(Whole(), feeds, path, names=("ids", "target"), dynamic=open_dims, opset=18 if new else 14, new=new)


def whisper(path: Path, *, new: bool) -> Feeds:
    """A spectrogram and the text so far to logits."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=99,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        pad_token_id=0,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=30,
        num_mel_bins=20,
        max_target_positions=20,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        use_cache=False,
    )
    network = transformers.WhisperForConditionalGeneration(config)

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, features: Any, target: Any) -> Any:
            return self.network(input_features=features, decoder_input_ids=target, use_cache=False).logits

    feeds = torch.randn(1, 20, 60), torch.randint(5, 99, (1, 6))
    return export(Whole(), feeds, path, names=("features", "target"), opset=18 if new else 17, new=new)


def clip(path: Path) -> Feeds:
    """Pictures and texts compared."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    both = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.CLIPConfig(
        text_config={**both, "vocab_size": 99, "max_position_embeddings": 20, "eos_token_id": 98},
        vision_config={**both, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    network = transformers.CLIPModel(config)

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, picture: Any) -> Any:
            out = self.network(input_ids=ids, pixel_values=picture)
            return out.logits_per_image, out.text_embeds

    ids = torch.randint(5, 98, (3, 9))
    ids[:, -1] = 98
    return export(Both(), (ids, torch.randn(2, 3, 32, 32)), path, names=("ids", "picture"), opset=17)


def wav2vec(path: Path, *, new: bool) -> Feeds:
    """Convolutions over samples, then a transformer."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        num_feat_extract_layers=3,
    )
    network = transformers.Wav2Vec2ForCTC(config)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, samples: Any) -> Any:
            return self.network(samples).logits

    open_dims = None if new else {"samples": {0: "batch", 1: "time"}}
    return export(
        Logits(), (torch.randn(2, 800),), path, names=("samples",), dynamic=open_dims, opset=18 if new else 15, new=new
    )


def entries() -> Iterator[Entry]:
    """All of them."""
    for kind, make, table in (("encoder", encoder, ENCODERS), ("decoder with cache", decoder, DECODERS)):
        for family, arguments, opset, new in table:
            name = f"{family.lower()}-{'new' if new else 'old'}-{opset}"
            yield Entry(name, kind, partial(make, family=family, arguments=arguments, opset=opset, new=new))
    for new in (False, True):
        which = "new" if new else "old"
        yield Entry(f"t5-{which}", "encoder-decoder", partial(t5, new=new))
        if new:  # the old exporter does not know what it takes differences with
            yield Entry(f"whisper-{which}", "encoder-decoder", partial(whisper, new=new))
        yield Entry(f"wav2vec2-{which}", "speech", partial(wav2vec, new=new))
    yield Entry("clip-old-17", "encoder", clip)
