"""Decoders that generate: caches whose lengths are open, experts, encoder-decoders in the parts that are deployed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export
from benchmarks.zoo.text import GROUPED, OLD, SMALL, WIDE, decoder

# The exporters know no grouped products of matrices, and no loop over the experts that were asked.
BATCHED: dict[str, Any] = {"experts_implementation": "batched_mm", "pad_token_id": 0, "eos_token_id": 1}
EXPERTS: dict[str, Any] = {**GROUPED, **BATCHED, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LAYERS = ["sliding_attention", "full_attention"]
DECODERS: tuple[tuple[str, dict[str, Any], int, bool], ...] = (
    # the class of transformers, arguments of its configuration, operator set, new exporter
    ("Llama", GROUPED, 18, True),
    ("Qwen3", {**GROUPED, "head_dim": 8}, 20, True),
    ("Gemma3Text", {**GROUPED, "head_dim": 8, "sliding_window": 5, "layer_types": LAYERS}, 18, True),
    ("Phi3", {**GROUPED, "pad_token_id": 0}, 17, False),
    ("Starcoder2", {**GROUPED, "sliding_window": None}, 17, False),
    ("StableLm", {**GROUPED}, 18, True),
    ("Mixtral", {**EXPERTS, "num_local_experts": 4}, 18, True),
    ("Qwen2Moe", {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24}, 18, True),
    ("GptOss", {**EXPERTS, "num_local_experts": 4, "head_dim": 8, "sliding_window": 4}, 20, True),
    ("Olmoe", {**EXPERTS, "num_experts": 4}, 20, True),
    ("GPTNeo", {"vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 5,
                "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64}, 17, False),
    ("CodeGen", {**OLD, "rotary_dim": 4}, 15, False),
    ("Mpt", {"vocab_size": 99, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}, 17, False),
    ("Cohere", {**GROUPED}, 21, True),
    ("Granite", {**GROUPED}, 22, True),
    ("SmolLM3", {**GROUPED, "pad_token_id": 0}, 18, True),
    ("BioGpt", {**SMALL, **WIDE, "max_position_embeddings": 64}, 17, False),
)  # fmt: skip


def state_space(path: Path, *, family: str, arguments: dict[str, Any], opset: int) -> Feeds:
    """A prompt through layers with a state: a scan over the sequence, convolutions, recurrent gates."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    network = getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**arguments))

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any) -> Any:
            return self.network(input_ids=ids, use_cache=False).last_hidden_state

    return export(
        Last(), (torch.randint(5, 99, (2, 12)),), path, names=("ids",), dynamic={"ids": {0: "batch"}}, opset=opset,
        new=True,
    )  # fmt: skip


def wholes(transformers: Any, name: str) -> Any:
    """A small encoder-decoder of text."""
    sizes: dict[str, Any] = {"vocab_size": 99, "d_model": 32}
    if name in ("T5", "MT5"):
        small = {**sizes, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"}
        return transformers.T5ForConditionalGeneration(transformers.T5Config(**small))
    halves = {f"{half}_{k}": v for half in ("encoder", "decoder")
              for k, v in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}  # fmt: skip
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    if name == "Whisper":
        speech = {"max_source_positions": 30, "max_target_positions": 40, "num_mel_bins": 20}
        config = transformers.WhisperConfig(**sizes, **halves, **tokens, **speech, attn_implementation="eager")
        return transformers.WhisperForConditionalGeneration(config)
    config = getattr(transformers, f"{name}Config")(
        **sizes, **halves, **tokens, max_position_embeddings=64, attn_implementation="eager"
    )
    return getattr(transformers, f"{name}{'MTModel' if name == 'Marian' else 'ForConditionalGeneration'}")(config)


def half(path: Path, *, name: str, part: str, opset: int, new: bool) -> Feeds:
    """The encoder, or the decoder with caches of itself and of the encoder's states, as optimum exports them."""
    torch, transformers = import_module("torch"), import_module("transformers")
    caches = import_module("transformers.cache_utils")
    torch.manual_seed(0)
    network = wholes(transformers, name)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network.get_encoder()

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.network(ids, attention_mask=mask).last_hidden_state

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, states: Any, mask: Any, *kept: Any) -> Any:
            own, other = caches.DynamicCache(), caches.DynamicCache()
            past = caches.EncoderDecoderCache(own, other)
            for layer in range(2):
                own.update(*kept[4 * layer : 4 * layer + 2], layer)
                other.update(*kept[4 * layer + 2 : 4 * layer + 4], layer)
            out = self.network(
                decoder_input_ids=ids, encoder_outputs=(states,), past_key_values=past,
                **({} if name == "Whisper" else {"attention_mask": mask}), use_cache=True,
            )  # fmt: skip
            layers = out.past_key_values.self_attention_cache.layers
            return (out.logits, *(t for layer in layers for t in (layer.keys, layer.values)))

    mask = torch.ones(2, 11, dtype=torch.int64)
    mask[1, 8:] = 0
    if part == "encoder":
        ids: Any = torch.randint(5, 99, (2, 11))
        open_dims = {n: {0: "batch", 1: "seq"} for n in ("ids", "mask")}
        return export(Encoder(), (ids, mask), path, names=("ids", "mask"), dynamic=open_dims, opset=opset, new=new)
    heads, size = 4, 8
    kept = [torch.randn(2, heads, 6 if k % 4 < 2 else 11, size) for k in range(8)]
    names = ("ids", "states", "mask", *(f"{w}{k}" for k in range(2) for w in ("k", "v", "ck", "cv")))
    open_dims = {"ids": {0: "batch"}, "states": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}
    open_dims |= {n: {0: "batch", 2: "seq" if n.startswith("c") else "past"} for n in names[3:]}
    feeds = (torch.randint(5, 99, (2, 1)), torch.randn(2, 11, 32), mask, *kept)
    if name == "Whisper":
        names, feeds = (*names[:2], *names[3:]), (*feeds[:2], *feeds[3:])
        whole = Decoder()

        class Without(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.whole = whole

            def forward(self, ids: Any, states: Any, *kept: Any) -> Any:
                return self.whole(ids, states, None, *kept)

        return export(
            Without(), feeds, path, names=names, dynamic={n: open_dims[n] for n in names}, opset=opset, new=new
        )
    return export(Decoder(), feeds, path, names=names, dynamic=open_dims, opset=opset, new=new)


STATES: Sequence[tuple[str, Mapping[str, Any], int]] = (
    ("Mamba2", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8,
                "state_size": 8, "n_groups": 2, "chunk_size": 8}, 18),
    ("FalconMamba", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, 18),
    ("RecurrentGemma", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
                        "intermediate_size": 64, "lru_width": 32, "attention_window_size": 6}, 18),
    ("Rwkv", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2}, 18),
)  # fmt: skip


def entries() -> Iterator[Entry]:
    """All of them."""
    for family, arguments, opset, new in DECODERS:
        make = partial(decoder, family=family, arguments=arguments, opset=opset, new=new, everywhere=True)
        yield Entry(f"{family.lower()}-open-{'new' if new else 'old'}-{opset}", "decoder with cache", make)
    for family, given, opset in STATES:
        make = partial(state_space, family=family, arguments=dict(given), opset=opset)
        yield Entry(f"{family.lower()}-new-{opset}", "state space", make)
    for name, part, opset, new in (
        ("T5", "encoder", 14, False),
        ("T5", "decoder", 14, False),
        ("Bart", "encoder", 18, True),
        ("Bart", "decoder", 17, False),
        ("Marian", "decoder", 17, False),
        ("M2M100", "encoder", 17, False),
        ("Whisper", "decoder", 17, False),
    ):
        make = partial(half, name=name, part=part, opset=opset, new=new)
        yield Entry(f"{name.lower()}-{part}-{'new' if new else 'old'}-{opset}", "encoder-decoder", make)
