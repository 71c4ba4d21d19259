"""Sizes of decoders with routed experts: parameters, active parameters and FLOPs by formula.

The formulas are those of the layers' shapes. ``tests/worker/models/test_catalog_facts.py`` holds
them against what torch counts on the built module, and ``tests/catalog/test_experts.py`` against
the figures that papers state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ExpertShape:
    """The sizes of a decoder whose feed-forward layers are experts.

    A feed-forward layer and an expert have three matrices (gate, up, down; SwiGLU, Shazeer 2020).

    Attributes:
        hidden_size: Width of the residual stream.
        num_layers: Layers, those with a dense feed-forward included.
        num_heads: Heads of queries.
        num_kv_heads: Heads of keys and values.
        head_size: Width of a head's values, and of its queries and keys without ``rope_size``.
        vocab_size: Tokens of the vocabulary.
        num_experts: Routed experts of a layer.
        experts_per_token: Routed experts that a token goes to.
        expert_size: Inner width of a routed expert.
        shared_size: Inner width of all shared experts of a layer together; 0 without any.
        dense_layers: Layers with a dense feed-forward instead of experts.
        dense_size: Inner width of these.
        kv_rank: Width that keys and values are compressed to (multi-head latent attention,
            DeepSeek-V2, section 2.1); 0 for grouped-query attention.
        query_rank: The same for queries; 0 where they are not compressed.
        rope_size: Further width of queries and keys that carries the position, with ``kv_rank``.
        shared_gate: Whether the output of the shared experts is scaled by a gate of its own.
        tied: Whether embedding and head are one matrix.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    num_experts: int
    experts_per_token: int
    expert_size: int
    shared_size: int = 0
    dense_layers: int = 0
    dense_size: int = 0
    kv_rank: int = 0
    query_rank: int = 0
    rope_size: int = 0
    shared_gate: bool = False
    tied: bool = False

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.num_layers - self.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return 3 * self.hidden_size * self.expert_size

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that a token does not go to, in all layers."""
        idle = self.num_experts - self.experts_per_token
        return self.expert_layers * idle * self.expert_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, or of the head."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """All parameters: matrices, norms, embedding and head."""
        norms = (2 * self.num_layers + 1) * self.hidden_size
        if self.kv_rank:
            norms += self.num_layers * (self.kv_rank + self.query_rank)
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        return norms + embeddings + self._active_matrices() + self.idle_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters without the experts that a token does not go to; embedding and head count,
        as in the papers of Mixtral and DeepSeek-V3."""
        return self.parameters - self.idle_parameters

    def forward_flops(self, length: int) -> int:
        """FLOPs of the forward pass of a sample of ``length`` tokens, a multiply-add being two:
        every active matrix for every token, and attention's two products over the whole square."""
        matrices = self._active_matrices() + self.embedding_parameters
        query_size = self.head_size + (self.rope_size if self.kv_rank else 0)
        attention = self.num_layers * self.num_heads * (query_size + self.head_size)
        return 2 * length * matrices + 2 * length * length * attention

    def _active_matrices(self) -> int:
        """Parameters of the matrices in the layers that a token is multiplied with."""
        routed = self.experts_per_token * self.expert_parameters
        shared = 3 * self.hidden_size * self.shared_size + self.hidden_size * self.shared_gate
        router = self.hidden_size * self.num_experts
        dense = 3 * self.hidden_size * self.dense_size
        layers = self.num_layers * self._attention_matrices()
        return layers + self.expert_layers * (routed + shared + router) + self.dense_layers * dense

    def _attention_matrices(self) -> int:
        hidden, values = self.hidden_size, self.num_heads * self.head_size
        if not self.kv_rank:
            return hidden * (2 * values + 2 * self.num_kv_heads * self.head_size)
        queries = self.num_heads * (self.head_size + self.rope_size)
        query = hidden * queries
        if self.query_rank:
            query = self.query_rank * (hidden + queries)
        compressed = hidden * (self.kv_rank + self.rope_size) + self.kv_rank * 2 * values
        return query + compressed + values * hidden


def shape_of_options(options: Mapping[str, Any]) -> ExpertShape:
    """The shape of a model of the family ``moe`` with these options."""
    own: dict[str, Any] = {
        name: int(options[name])
        for name in ExpertShape.__dataclass_fields__
        if name in options and name not in ("shared_gate", "tied")
    }
    shared = int(options["shared_experts"]) * int(options["expert_size"])
    return ExpertShape(**own, shared_size=shared)


def shape_of_hf(config: Mapping[str, Any]) -> ExpertShape | None:
    """The shape that a Hugging Face configuration describes; ``None`` for a type of model whose
    layers are not those of :class:`ExpertShape`, and where a size is missing or no number."""
    read = _HF_TYPES.get(str(config.get("model_type")))
    if read is None:
        return None
    try:
        return read(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _common(config: Mapping[str, Any]) -> dict[str, Any]:
    """What all types name alike."""
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return {
        "hidden_size": hidden,
        "num_layers": int(config["num_hidden_layers"]),
        "num_heads": heads,
        "num_kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_size": int(config.get("head_dim") or hidden // heads),
        "vocab_size": int(config["vocab_size"]),
        "experts_per_token": int(config["num_experts_per_tok"]),
        "tied": bool(config.get("tie_word_embeddings", False)),
    }


def _experts(config: Mapping[str, Any]) -> int:
    """Named in two ways; transformers 5 renames some types' from the one to the other."""
    if "num_experts" in config:
        return int(config["num_experts"])
    return int(config["num_local_experts"])


def _mixtral(config: Mapping[str, Any]) -> ExpertShape:
    return ExpertShape(
        **_common(config),
        num_experts=_experts(config),
        expert_size=int(config["intermediate_size"]),
    )


def _qwen2(config: Mapping[str, Any]) -> ExpertShape:
    return ExpertShape(
        **_common(config),
        num_experts=_experts(config),
        expert_size=int(config["moe_intermediate_size"]),
        shared_size=int(config["shared_expert_intermediate_size"]),
        shared_gate=True,
        **_qwen_dense(config),
    )


def _qwen3(config: Mapping[str, Any]) -> ExpertShape:
    return ExpertShape(
        **_common(config),
        num_experts=_experts(config),
        expert_size=int(config["moe_intermediate_size"]),
        **_qwen_dense(config),
    )


def _qwen_dense(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dense are the layers in ``mlp_only_layers`` and those that ``decoder_sparse_step`` leaves
    out (transformers, ``modeling_qwen3_moe.py``)."""
    every, named = int(config.get("decoder_sparse_step") or 1), config.get("mlp_only_layers") or ()
    dense = [
        layer
        for layer in range(int(config["num_hidden_layers"]))
        if layer in named or (layer + 1) % every
    ]
    if not dense:
        return {}
    return {"dense_layers": len(dense), "dense_size": int(config["intermediate_size"])}


def _deepseek(config: Mapping[str, Any]) -> ExpertShape:
    common = _common(config)
    if config["qk_nope_head_dim"] != config["v_head_dim"]:
        raise ValueError("queries and values of different widths")
    common["head_size"] = int(config["v_head_dim"])
    expert = int(config["moe_intermediate_size"])
    return ExpertShape(
        **common,
        num_experts=int(config["n_routed_experts"]),
        expert_size=expert,
        shared_size=int(config.get("n_shared_experts") or 0) * expert,
        dense_layers=int(config.get("first_k_dense_replace") or 0),
        dense_size=int(config["intermediate_size"]),
        kv_rank=int(config["kv_lora_rank"]),
        query_rank=int(config.get("q_lora_rank") or 0),
        rope_size=int(config["qk_rope_head_dim"]),
    )


_HF_TYPES = {
    "mixtral": _mixtral,
    "olmoe": _mixtral,
    "qwen2_moe": _qwen2,
    "qwen3_moe": _qwen3,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_oss": _mixtral,
}
"""By ``model_type``. Biases, sinks and norms of queries and keys, which some types have, are below
0.1 % of their parameters and are left out."""
