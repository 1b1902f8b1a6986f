"""`config.json` of causal language models of several families, read as the settings of one network.

transformers fills in defaults and renames the fields of older versions. A field that is neither read here nor known to
change nothing is refused, so that no model is imported as another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from training.importing.errors import BY_OWN_IMPORTER, ImportRefused, described
from training.importing.source import CONFIG
from training.networks.causal_transformer import ActivationName, CausalSettings, LayerSettings, Llama3Scaling, Rotary

__all__ = ["ARCHITECTURE_NAMES", "CausalConfig", "read_causal_config"]

ValueT = TypeVar("ValueT")

_ACTIVATIONS: Mapping[str, ActivationName] = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_WITHOUT_EFFECT = frozenset(
    {
        *("architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "cache_implementation"),
        *(
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "sep_token_id",
            "unk_token_id",
            "use_cache",
            "tokenizer_class",
        ),
        *("attention_dropout", "hidden_dropout", "classifier_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"),
        *("initializer_range", "initializer_factor", "chunk_size_feed_forward", "task_specific_params", "n_ctx"),
        *("output_hidden_states", "output_attentions", "return_dict", "return_dict_in_generate", "output_scores"),
        *(
            "id2label",
            "label2id",
            "num_labels",
            "problem_type",
            "gradient_checkpointing",
            "torchscript",
            "use_bfloat16",
        ),
        *(
            "reorder_and_upcast_attn",
            "pretraining_tp",
            "finetuning_task",
            "prefix",
            "is_decoder",
            "rope_theta",
            "rotary_pct",
        ),
        *("rotary_emb_base", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"),
    }
)
"""Fields that change no log-probability, and former names of fields that transformers has renamed by then."""
_EXPECTED: Mapping[str, tuple[object, ...]] = {
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "quantization_config": (None,),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "use_bidirectional_attention": (False, None),
    "use_mrope": (False, None),
}
"""Fields of which other values are not supported."""
_ATTENTION_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class CausalConfig:
    """A model as its configuration describes it."""

    settings: CausalSettings
    attention_scale: float
    """Factor of the scores of attention, which becomes part of the weights."""
    tied: bool
    """Whether the vectors of tokens are the matrix of the output layer, too."""


@dataclass(slots=True)
class _Fields:
    """The fields of a configuration, which are taken one by one."""

    rest: dict[str, Any]
    taken: set[str] = field(default_factory=set)

    def take(self, name: str, kind: type[ValueT] | Any, default: Any = None) -> Any:
        """Return a field of a type; the default where it is null or missing. Raises `ImportRefused`."""
        value = self.rest.pop(name, None)
        try:
            return TypeAdapter(kind).validate_python(default if value is None else value, strict=False)
        except ValidationError as error:
            raise ImportRefused(f"{CONFIG}: {name}: {described(error).removeprefix(': ')}") from error

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive number; raises `ImportRefused`."""
        found: int = self.take(name, int, default)
        if not 1 <= found <= 1 << 24:
            raise ImportRefused(f"{CONFIG}: {name} must be a positive number, not {found}")
        return found

    def activation(self, name: str) -> ActivationName:
        stated = self.take(name, str)
        if stated not in _ACTIVATIONS:
            raise ImportRefused(
                f"{CONFIG}: {name} must be one of {', '.join(_ACTIVATIONS)}, not {stated!r}; {BY_OWN_IMPORTER}"
            )
        return _ACTIVATIONS[stated]

    def check_rest(self) -> None:
        """Raise `ImportRefused` for fields that were not taken and are not known to change nothing."""
        unknown = []
        for name, value in sorted(self.rest.items()):
            if name in _EXPECTED:
                if value not in _EXPECTED[name]:
                    raise ImportRefused(f"{CONFIG}: {name} = {value!r} is not supported; {BY_OWN_IMPORTER}")
            elif name not in _WITHOUT_EFFECT and not name.startswith(("_", "summary_")):
                unknown.append(name)
        if unknown:
            raise ImportRefused(
                f"{CONFIG} has fields that no import understands: {', '.join(unknown)}; {BY_OWN_IMPORTER}"
            )


def _heads(fields: _Fields) -> dict[str, Any]:
    """Return the sizes that all families but GPT-2 name alike."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    shared, size = fields.size("num_key_value_heads", heads), fields.size("head_dim", max(1, hidden // heads))
    if heads % shared:
        raise ImportRefused(f"{CONFIG}: {heads} heads cannot share {shared} key-value heads")
    return {
        "vocab_size": fields.size("vocab_size"),
        "hidden_size": hidden,
        "inner_size": fields.size("intermediate_size"),
        "heads": heads,
        "key_value_heads": shared,
        "head_size": size,
        "positions": fields.size("max_position_embeddings"),
    }


def _layer_kinds(fields: _Fields, count: int, window: int | None, *, default: str) -> list[tuple[str, int | None]]:
    """Return of each layer the kind of attention and its window."""
    kinds = fields.take("layer_types", list[str], [default] * count)
    if len(kinds) != count or not set(kinds) <= set(_ATTENTION_KINDS):
        raise ImportRefused(f"{CONFIG}: layer_types must name {count} times {' or '.join(_ATTENTION_KINDS)}")
    if "sliding_attention" in kinds and window is None:
        raise ImportRefused(f"{CONFIG}: sliding_window is missing")
    return [(kind, window if kind == "sliding_attention" else None) for kind in kinds]


def _rotary(parameters: object, size: int) -> Rotary:
    """Return rotary positions for heads of a size; raises `ImportRefused` for unknown kinds of scaling."""
    if not isinstance(parameters, dict):
        raise ImportRefused(f"{CONFIG}: rope_parameters must be an object, not {parameters!r}")
    fields = _Fields(dict(parameters))
    kind, other = fields.take("rope_type", str, "default"), fields.rest.pop("type", None)
    if kind not in ("default", "linear", "llama3") or (other is not None and other != kind):
        raise ImportRefused(
            f"{CONFIG}: rope_type {kind!r} is not supported; default, linear and llama3 are; {BY_OWN_IMPORTER}"
        )
    rotated = int(size * fields.take("partial_rotary_factor", float, 1.0))
    if rotated < 2 or rotated % 2 or rotated > size:
        raise ImportRefused(f"{CONFIG}: {rotated} of {size} coordinates of a head cannot be rotated in pairs")
    base = fields.take("rope_theta", float)
    factor = fields.take("factor", float, 1.0) if kind != "default" else 1.0
    llama3 = None
    if kind == "llama3":
        llama3 = Llama3Scaling(
            factor=factor,
            low=fields.take("low_freq_factor", float),
            high=fields.take("high_freq_factor", float),
            positions=fields.take("original_max_position_embeddings", int),
        )
        if llama3.high <= llama3.low:
            raise ImportRefused(f"{CONFIG}: high_freq_factor must be above low_freq_factor")
    if base <= 0 or factor <= 0:
        raise ImportRefused(f"{CONFIG}: rope_theta and factor must be above 0")
    if fields.rest:
        raise ImportRefused(
            f"{CONFIG}: rope_parameters has fields that no import understands: {sorted(fields.rest)}; {BY_OWN_IMPORTER}"
        )
    return Rotary(size=rotated, base=base, factor=factor if kind == "linear" else 1.0, llama3=llama3)


def _gpt2(fields: _Fields) -> CausalConfig:
    hidden, heads = fields.size("n_embd"), fields.size("n_head")
    scaled = fields.take("scale_attn_weights", bool, True)
    if hidden % heads:
        raise ImportRefused(f"{CONFIG}: n_embd must be divisible by n_head")
    settings = CausalSettings(
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden,
        inner_size=fields.size("n_inner", 4 * hidden),
        heads=heads,
        key_value_heads=heads,
        head_size=hidden // heads,
        positions=fields.size("n_positions"),
        layers=(LayerSettings(),) * fields.size("n_layer"),
        activation=fields.activation("activation_function"),
        norm="layer",
        epsilon=fields.take("layer_norm_epsilon", float),
        learned_positions=True,
        projection_bias=True,
        output_bias=True,
        inner_bias=True,
    )
    scale = settings.head_size**-0.5 if scaled else 1.0
    return CausalConfig(settings=settings, attention_scale=scale, tied=fields.take("tie_word_embeddings", bool, True))


def _neox(fields: _Fields) -> CausalConfig:
    sizes, bias = _heads(fields), fields.take("attention_bias", bool, True)
    rotary = _rotary(fields.take("rope_parameters", dict[str, Any]), sizes["head_size"])
    settings = CausalSettings(
        **sizes,
        layers=(LayerSettings(rotary=rotary),) * fields.size("num_hidden_layers"),
        activation=fields.activation("hidden_act"),
        norm="layer",
        epsilon=fields.take("layer_norm_eps", float),
        parallel=fields.take("use_parallel_residual", bool, True),
        projection_bias=bias,
        output_bias=bias,
        inner_bias=True,
    )
    scale = settings.head_size**-0.5
    return CausalConfig(settings=settings, attention_scale=scale, tied=fields.take("tie_word_embeddings", bool, False))


def _gated(fields: _Fields, *, window: int | None, default_kind: str, **others: Any) -> CausalConfig:
    """Return what Llama, Mistral and Qwen have in common: RMSNorm, rotary positions, gated feed-forward networks."""
    sizes, count = _heads(fields), fields.size("num_hidden_layers")
    rotary = _rotary(fields.take("rope_parameters", dict[str, Any]), sizes["head_size"])
    kinds = _layer_kinds(fields, count, window, default=default_kind)
    settings = CausalSettings(
        **sizes,
        layers=tuple(LayerSettings(rotary=rotary, window=each) for _, each in kinds),
        activation=fields.activation("hidden_act"),
        norm="rms",
        epsilon=fields.take("rms_norm_eps", float),
        gated=True,
        **others,
    )
    scale = settings.head_size**-0.5
    return CausalConfig(settings=settings, attention_scale=scale, tied=fields.take("tie_word_embeddings", bool, False))


def _llama(fields: _Fields) -> CausalConfig:
    bias, inner = fields.take("attention_bias", bool, False), fields.take("mlp_bias", bool, False)
    return _gated(
        fields,
        window=None,
        default_kind="full_attention",
        projection_bias=bias,
        output_bias=bias,
        inner_bias=inner,
    )


def _mistral(fields: _Fields) -> CausalConfig:
    window = fields.take("sliding_window", int | None)
    kind = "full_attention" if window is None else "sliding_attention"
    return _gated(fields, window=window, default_kind=kind)


def _qwen_window(fields: _Fields) -> int | None:
    fields.rest.pop("max_window_layers", None)  # transformers has made layer_types of it
    window: int | None = fields.take("sliding_window", int | None)
    return window if fields.take("use_sliding_window", bool, False) else None


def _qwen2(fields: _Fields) -> CausalConfig:
    return _gated(fields, window=_qwen_window(fields), default_kind="full_attention", projection_bias=True)


def _qwen3(fields: _Fields) -> CausalConfig:
    bias = fields.take("attention_bias", bool, False)
    return _gated(
        fields,
        window=_qwen_window(fields),
        default_kind="full_attention",
        projection_bias=bias,
        output_bias=bias,
        head_norms=True,
    )


def _gemma(fields: _Fields, *, head_norms: bool) -> CausalConfig:
    """Return what Gemma 2 and 3 have in common."""
    sizes, count = _heads(fields), fields.size("num_hidden_layers")
    kinds = _layer_kinds(fields, count, fields.size("sliding_window"), default="full_attention")
    stated = fields.take("rope_parameters", dict[str, Any])
    by_kind = {kind: stated.get(kind, stated) for kind, _ in kinds}
    rotary = {kind: _rotary(parameters, sizes["head_size"]) for kind, parameters in by_kind.items()}
    bias = fields.take("attention_bias", bool, False)
    settings = CausalSettings(
        **sizes,
        layers=tuple(LayerSettings(rotary=rotary[kind], window=window) for kind, window in kinds),
        activation=fields.activation("hidden_activation"),
        norm="rms",
        epsilon=fields.take("rms_norm_eps", float),
        gated=True,
        output_norms=True,
        head_norms=head_norms,
        projection_bias=bias,
        output_bias=bias,
        attention_softcap=fields.take("attn_logit_softcapping", float | None),
        final_softcap=fields.take("final_logit_softcapping", float | None),
        embedding_scale=sizes["hidden_size"] ** 0.5,
    )
    fields.rest.pop("hidden_act", None)  # older directories have both; hidden_activation counts
    scale = fields.take("query_pre_attn_scalar", float) ** -0.5
    return CausalConfig(settings=settings, attention_scale=scale, tied=fields.take("tie_word_embeddings", bool, True))


_FAMILIES: Mapping[str, Callable[[_Fields], CausalConfig]] = {
    "GPT2LMHeadModel": _gpt2,
    "GPTNeoXForCausalLM": _neox,
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "Gemma2ForCausalLM": lambda fields: _gemma(fields, head_norms=False),
    "Gemma3ForCausalLM": lambda fields: _gemma(fields, head_norms=True),
}
ARCHITECTURE_NAMES = tuple(_FAMILIES)
"""The architectures whose configurations can be read."""


def read_causal_config(architecture: str, content: Mapping[str, Any]) -> CausalConfig:
    """Return what the configuration of an architecture says, as transformers completes it.

    Raises `ImportRefused` for values and fields that are not supported.
    """
    fields = _Fields(dict(content))
    config = _FAMILIES[architecture](fields)
    fields.check_rest()
    return config
