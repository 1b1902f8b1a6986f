"""Heads for models of Hugging Face's transformers, trained without the scores of all classes at all positions.

Shapes: `B` texts, `T` tokens, `V` classes (words of the vocabulary, or labels), `d` hidden size; `...` are the leading
dimensions of positions: `B, T` in language models, `B` in classifiers.

    model = replace_head(AutoModelForCausalLM.from_pretrained(NAME), kernels="lin, log")
    model(input_ids=tokens, labels=tokens).loss.backward()
    model.save_pretrained(DIRECTORY)
    model = from_pretrained(DIRECTORY)

transformers is imported when a function is called; it comes with the extra `softserve-softmax[huggingface]`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from .mixture import GeneralizedSoftmax, KernelSpec, parse_components

__all__ = ["HEAD_OPTIONS", "former_class_name", "from_pretrained", "head_class", "head_class_name", "replace_head"]

AnyModel = TypeVar("AnyModel", bound=nn.Module)

HEAD_OPTIONS = "softmax_head"
"""The field of `config.json` with the options of a `SoftmaxHead`."""
_SUFFIX = "WithSoftmaxHead"
_IGNORED = -100
"""The label of positions without a loss, in all models of transformers."""
_AFTER_THE_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_router_logits")
"""Settings by which models change the scores of their head, or add to the loss; off where they are None, False or 1."""


class SoftmaxHead(GeneralizedSoftmax):
    """Compute log-probabilities from hidden states: `[..., d]` -> `[..., V]`."""

    # Kernels and options are in the model's config.json, and from_pretrained of transformers loads parameters alone.
    get_extra_state = nn.Module.get_extra_state
    set_extra_state = nn.Module.set_extra_state

    returns_hidden = False
    """Whether hidden states are returned unchanged, of which the model computes the loss then."""

    def forward(self, hidden: Tensor, target: Tensor | None = None, **options: Any) -> Tensor:
        """Return log-probabilities `[..., V]`, or with a target `[...]` the loss."""
        return hidden if self.returns_hidden else super().forward(hidden, target, **options)


def replace_head(
    model: AnyModel,
    kernels: str | Sequence[KernelSpec] = "lin",
    *,
    weight: Literal["keep", "copy", "new"] = "keep",
    untied: Literal["full"] | int | None = None,
    bias: bool | None = None,
    sparse_k: int | None = None,
    alpha: float = 1.0,
    variance_penalty: float = 0.0,
    balance_penalty: float = 0.0,
    component_dropout: float = 0.0,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    angular_margin: float = 0.0,
    cosine_margin: float = 0.0,
) -> AnyModel:
    """Replace the head of a causal language model or sequence classifier by a `SoftmaxHead`; return the same model.

    The model's class becomes a subclass of its own (`head_class`), whose `forward` differs in two respects:

    * `logits` are log-probabilities, of which `generate`, pipelines and the Trainer's metrics work as before.
    * With `labels`, `loss` is that of `GeneralizedSoftmax.loss`: the mean over labels other than -100, or with
      `num_items_in_batch`, as the Trainer gives it, the sum divided by that. `[..., V]` is not computed for it, so that
      `logits` is None in training mode.

    `weight` says which class vectors the head has: with `keep` those of the former head, which stay the model's input
    embeddings if they are tied to them; with `copy` a copy of them; with `new` newly drawn ones. `copy` and `new` untie
    them. The same holds for the bias, which the head has by default if the former one had it. The other arguments are
    those of `GeneralizedSoftmax`.

    The options are saved in `config.softmax_head`. Models are loaded by `from_pretrained` of this module: the classes
    of transformers would take the weights for those of a plain softmax.

    Raises `ValueError` for another `weight`, for models of other tasks, for regression and several labels a text, for
    models that change the scores of their head, and for options that `GeneralizedSoftmax` refuses.
    """
    if weight not in ("keep", "copy", "new"):
        raise ValueError(f"weight must be 'keep', 'copy' or 'new', not {weight!r}")
    _check_model(model)
    former = model.get_submodule(_head_name(model))
    specs, others = parse_components(kernels)
    if others:
        raise ValueError(f"kernels: a head has kernels alone, not {', '.join(spec['name'] for spec in others)}")
    options = {
        "kernels": specs,
        "untied": untied,
        "bias": getattr(former, "bias", None) is not None if bias is None else bias,
        "sparse_k": sparse_k,
        "alpha": alpha,
        "variance_penalty": variance_penalty,
        "balance_penalty": balance_penalty,
        "component_dropout": component_dropout,
        "label_smoothing": label_smoothing,
        "softcap": softcap,
        "angular_margin": angular_margin,
        "cosine_margin": cosine_margin,
    }
    changed: Any = model
    _install_head(changed, options, weight)
    changed.config.softmax_head = options
    changed.__class__ = head_class(changed.__class__)
    return model


def from_pretrained(directory: Any, **options: Any) -> Any:
    """Load a model whose head was replaced, from what its `save_pretrained` or a Trainer wrote.

    `options` are those of the `from_pretrained` methods of transformers. Raises `ValueError` for other models.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(directory)
    if getattr(config, HEAD_OPTIONS, None) is None:
        raise ValueError(f"the model in {directory} has no {HEAD_OPTIONS} in its config.json: replace_head makes one")
    name = former_class_name(config.architectures[0])
    return head_class(getattr(transformers, name)).from_pretrained(directory, **options)


def head_class_name(name: str) -> str:
    """Return the name of the class of a model whose head was replaced, which `architectures` in `config.json` has."""
    return f"{name}{_SUFFIX}"


def former_class_name(name: str) -> str:
    """Return the name of the class in transformers of a model, whether its head was replaced or not."""
    return name.removesuffix(_SUFFIX)


@functools.cache
def head_class(model_class: type) -> Any:
    """Return the subclass of a model's class that has a `SoftmaxHead`, as `config.softmax_head` describes it."""
    from transformers import conversion_mapping

    if issubclass(model_class, _SoftmaxHeadModel):
        return model_class
    content = {"forward": _forward(model_class), "__module__": __name__, "__doc__": model_class.__doc__}
    name = head_class_name(model_class.__name__)
    # transformers finds names of parameters in files, other than those of the model, by the name of the class.
    mappings: Any = conversion_mapping
    renamed = mappings.get_checkpoint_conversion_mapping(model_class.__name__)
    if renamed is not None:
        mappings.register_checkpoint_conversion_mapping(name, renamed, overwrite=True)
    return type(name, (_SoftmaxHeadModel, model_class), content)


class _SoftmaxHeadModel:
    """What the classes of `head_class` have before their model's class."""

    def __init__(self, config: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)  # type: ignore[call-arg]
        _install_head(self, config.softmax_head, "keep")

    def _init_weights(self, module: Any) -> None:
        """Draw the parameters of a head that a file lacks, as `reset_parameters`, and keep those that were read."""
        if not isinstance(module, SoftmaxHead):
            super()._init_weights(module)  # type: ignore[misc]
            return
        read = {
            name: parameter.detach().clone()
            for name, parameter in module.named_parameters()
            if getattr(parameter, "_is_hf_initialized", False)
        }
        module.reset_parameters()
        module.load_state_dict(read, strict=False)

    def _get_name(self) -> str:
        """Return the name of the model's class, by which the Trainer knows language models."""
        return former_class_name(type(self).__name__)


def _forward(model_class: Any) -> Callable[..., Any]:
    """Return `forward` of a model's class with the loss of its `SoftmaxHead`."""
    signature = inspect.signature(model_class.forward)

    @functools.wraps(model_class.forward)
    def forward(
        self: Any,
        *arguments: Any,
        num_items_in_batch: Tensor | int | None = None,
        shift_labels: Tensor | None = None,
        return_dict: bool | None = None,
        **named: Any,
    ) -> Any:
        call = signature.bind(self, *arguments, **named)
        labels = call.arguments.pop("labels", None)
        return_dict = self.config.return_dict if return_dict is None else return_dict
        head = self.get_submodule(self.softmax_head_name)
        head.returns_hidden = labels is not None
        try:
            outputs = model_class.forward(*call.args, **call.kwargs, return_dict=True)
        finally:
            head.returns_hidden = False
        if labels is not None:
            hidden = outputs.logits.to(head.weight.dtype)  # some models widen what their head returns
            target = _targets(labels, shift_labels) if self.softmax_head_is_shifted else labels.flatten()
            loss = _loss(head, hidden, target.to(hidden.device), num_items_in_batch)
            logits = None if self.training else head(hidden)
            outputs = type(outputs)(**{**outputs, "loss": loss, "logits": logits})
        return outputs if return_dict else outputs.to_tuple()

    return forward


def _targets(labels: Tensor, shifted: Tensor | None) -> Tensor:
    """Return the next token of each position: `[B, T]` -> `[B, T]`."""
    return functional.pad(labels, (0, 1), value=_IGNORED)[..., 1:] if shifted is None else shifted


def _loss(head: Any, hidden: Tensor, target: Tensor, count: Tensor | int | None) -> Tensor:
    """Return the mean loss, or the sum divided by a count of targets, of which this batch may have a part."""
    loss: Tensor = head(hidden, target, ignore_index=_IGNORED, reduction="mean" if count is None else "sum")
    if count is None:
        return loss
    return loss / (count.to(loss.device) if isinstance(count, Tensor) else count)


def _install_head(model: Any, options: Mapping[str, Any], weight: str) -> None:
    """Put a `SoftmaxHead` in place of the head, with its parameters unless they are new."""
    name = _head_name(model)
    former = model.get_submodule(name)
    classes, size = former.weight.shape
    place: dict[str, Any] = {"device": former.weight.device, "dtype": former.weight.dtype}
    # transformers loads models under torch.device("meta"), without the numbers that learnt hyperparameters begin with.
    with torch.device("cpu"):
        head = SoftmaxHead(classes, size, **options, **place)
    for each in ("weight", "bias"):
        parameter = getattr(former, each, None)
        if parameter is not None and getattr(head, each) is not None and weight != "new":
            setattr(head, each, parameter if weight == "keep" else nn.Parameter(parameter.detach().clone()))
    if weight != "keep":
        model.config.tie_word_embeddings = False
        model.all_tied_weights_keys = {
            tied: to for tied, to in model.all_tied_weights_keys.items() if not tied.startswith(f"{name}.")
        }
    model.set_submodule(name, head)
    model.softmax_head_name, model.softmax_head_is_shifted = name, _is_language_model(model)


def _check_model(model: Any) -> None:
    """Raise `ValueError` where the head's scores are not those of a softmax over classes."""
    config = model.config
    if not _is_language_model(model) and (
        config.num_labels < 2 or config.problem_type in ("regression", "multi_label_classification")
    ):
        raise ValueError("a softmax needs num_labels of 2 or more, and one label for each text")
    for name in _AFTER_THE_HEAD:
        if (value := getattr(config, name, None)) not in (None, False, 1):
            raise ValueError(f"{type(model).__name__} changes the scores or the loss of its head: {name} = {value}")


def _is_language_model(model: Any) -> bool:
    """Return whether a model is a causal language model, or a sequence classifier; raises `ValueError` for others."""
    from transformers.models.auto import modeling_auto

    names = {each.__name__ for each in type(model).__mro__}
    if names & set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        return True
    if names & set(modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values()):
        return False
    raise ValueError(f"{type(model).__name__} is neither a causal language model nor a sequence classifier")


def _head_name(model: Any) -> str:
    """Return the name of the module that computes scores of classes: `lm_head`, `score`, `classifier.out_proj`, ..."""
    modules: Mapping[str, Any] = dict(model.named_modules())
    if _is_language_model(model):
        return next(name for name, module in modules.items() if module is model.get_output_embeddings())
    inside = f"{model.base_model_prefix}."
    return [
        name
        for name, module in modules.items()
        if isinstance(module, nn.Linear | SoftmaxHead)
        and not name.startswith(inside)
        and module.weight.shape[0] == model.config.num_labels
    ][-1]
