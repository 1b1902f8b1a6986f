"""Heads of causal language models and sequence classifiers of transformers, tiny and with random weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from training.softmax import KERNELS, GeneralizedSoftmax
from training.softmax.huggingface import SoftmaxHead, from_pretrained, head_class, replace_head

V, D, LABELS = 40, 16, 3
ALL = ", ".join(KERNELS)
_SIZES = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_TOKENS = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "num_labels": LABELS}


def _config(kind: str, **options: Any) -> Any:
    if kind == "GPT2":
        sizes = {"n_embd": D, "n_layer": 2, "n_head": 2, "n_positions": 32, "resid_pdrop": 0, "embd_pdrop": 0}
        return transformers.GPT2Config(**{**_TOKENS, **sizes, "attn_pdrop": 0, **options})
    if kind == "DistilBert":
        sizes = {"dim": D, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
        return transformers.DistilBertConfig(**{**_TOKENS, **sizes, **options})
    return getattr(transformers, f"{kind}Config")(**{**_TOKENS, **_SIZES, **options})


def _model(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    kind = model_class.config_class.__name__.removesuffix("Config")
    model = model_class(_config(kind, **options)).eval()
    for parameter in model.parameters():
        parameter.data *= 4  # with the initial ones, all classes have about the same probability
    return model


LANGUAGE_MODELS: dict[str, Callable[[], Any]] = {
    "GPT-2": lambda: _model("GPT2LMHeadModel"),
    "GPT-2, untied": lambda: _model("GPT2LMHeadModel", tie_word_embeddings=False),
    "Llama": lambda: _model("LlamaForCausalLM"),
    "Llama, tied": lambda: _model("LlamaForCausalLM", tie_word_embeddings=True),
    "BERT": lambda: _model("BertLMHeadModel", is_decoder=True),
    "GPT-NeoX": lambda: _model("GPTNeoXForCausalLM"),
}
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    name: lambda name=name: _model(f"{name}ForSequenceClassification")  # type: ignore[misc]
    for name in ("Bert", "Roberta", "DistilBert", "GPT2", "Llama")
}
MODELS = LANGUAGE_MODELS | CLASSIFIERS
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
each_language_model = pytest.mark.parametrize("make", LANGUAGE_MODELS.values(), ids=LANGUAGE_MODELS.keys())


def _batch(model: Any) -> dict[str, Tensor]:
    """Tokens of 3 texts and their labels, some of which are ignored in a language model."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, V, (3, 7), generator=generator)
    if "Sequence" in type(model).__name__:
        return {"input_ids": tokens, "labels": torch.tensor([0, 2, 1])}
    labels = tokens.clone()
    labels[0, 3:] = labels[2, :2] = -100
    return {"input_ids": tokens, "labels": labels}


def _head(model: Any) -> SoftmaxHead:
    (head,) = [module for module in model.modules() if isinstance(module, SoftmaxHead)]
    return head


def _cross_entropy(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    if labels.dim() == 2:
        log_probabilities, labels = log_probabilities[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return functional.nll_loss(log_probabilities, labels)


@each_model
def test_the_inner_product_gives_the_model_that_there_was(make: Callable[[], Any]) -> None:
    model = make()
    batch = _batch(model)
    before = model(**batch)
    assert replace_head(model) is model
    after = model(**batch)
    torch.testing.assert_close(after.logits, before.logits.log_softmax(-1))
    torch.testing.assert_close(after.loss, before.loss)
    assert model(batch["input_ids"]).loss is None


@each_model
def test_the_loss_is_that_of_the_log_probabilities(make: Callable[[], Any]) -> None:
    model = replace_head(make(), "2*lin, rbf, log", bias=True, untied="full")
    nn.init.normal_(_head(model).prior)
    batch = _batch(model)
    outputs = model(**batch)
    torch.testing.assert_close(outputs.logits.exp().sum(-1), torch.ones(outputs.logits.shape[:-1]))
    torch.testing.assert_close(outputs.loss, _cross_entropy(outputs.logits, batch["labels"]))
    outputs.loss.backward()
    head = _head(model)
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.parameters())
    named = {**batch, "num_items_in_batch": torch.tensor(50)}
    count = int((batch["labels"][:, 1:] if batch["labels"].dim() == 2 else batch["labels"]).ne(-100).sum())
    torch.testing.assert_close(model(**named).loss, outputs.loss.detach() * count / 50, check_stride=False)
    torch.testing.assert_close(model(**{**named, "num_items_in_batch": 50}).loss, model(**named).loss)


@each_model
def test_training_computes_no_scores_of_all_positions(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace_head(make(), "lin, rbf").train()
    monkeypatch.setattr(GeneralizedSoftmax, "scores", None)  # which log_prob calls
    outputs = model(**_batch(model))
    assert outputs.logits is None
    outputs.loss.backward()


def test_the_loss_has_the_options_of_the_layer() -> None:
    model = replace_head(LANGUAGE_MODELS["GPT-2"](), "lin, log", label_smoothing=0.1, variance_penalty=0.5, softcap=3.0)
    batch = _batch(model)
    hidden = model.transformer(batch["input_ids"]).last_hidden_state
    wanted = _head(model).loss(hidden[:, :-1], batch["labels"][:, 1:], reduction="mean")
    torch.testing.assert_close(model(**batch).loss, wanted)


def test_calls_may_be_written_as_before() -> None:
    model = replace_head(LANGUAGE_MODELS["GPT-2"]())
    batch = _batch(model)
    tokens, labels = batch["input_ids"], batch["labels"]
    outputs = model(**batch)
    loss, logits, *_ = model(**batch, return_dict=False)
    assert torch.equal(loss, outputs.loss)
    assert torch.equal(logits, outputs.logits)
    shifted = functional.pad(labels, (0, 1), value=-100)[:, 1:]
    assert torch.equal(model(tokens, labels=tokens, shift_labels=shifted).loss, loss)
    torch.testing.assert_close(model(tokens, logits_to_keep=1).logits, logits[:, -1:])


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MambaForCausalLM"])  # which widens what its head returns
def test_models_train_in_half_precision(name: str) -> None:
    model = replace_head(_model(name).bfloat16(), "lin, rbf")
    batch = _batch(model)
    assert _head(model).prior.dtype == torch.bfloat16
    loss = model.train()(**batch).loss
    loss.backward()
    torch.testing.assert_close(loss, model.float().eval()(**batch).loss, rtol=0.1, atol=0.1, check_dtype=False)


# ---- class vectors, files ------------------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("weight", ["keep", "copy", "new"])
def test_a_saved_model_is_loaded(make: Callable[[], Any], weight: Any, tmp_path: Path) -> None:
    model = make()
    vectors = {name: tuple(each.shape) for name, each in model.named_parameters()}
    tied = getattr(model.config, "tie_word_embeddings", False) and make in LANGUAGE_MODELS.values()
    replace_head(model, [{"name": "rbf", "learnable": True}, "ssg"], weight=weight, untied="full")
    nn.init.normal_(_head(model).prior)
    batch = _batch(model)
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert type(loaded) is head_class(type(make()))
    torch.testing.assert_close(loaded.eval()(**batch).logits, model(**batch).logits)
    assert set(vectors) <= {name for name, _ in loaded.named_parameters()}
    for each in (model, loaded):
        shared = _head(each).weight is each.get_input_embeddings().weight
        assert shared == (tied and weight == "keep")


def test_new_class_vectors_are_drawn_for_the_kernel() -> None:
    model = LANGUAGE_MODELS["Llama"]()
    before = model.lm_head.weight
    assert replace_head(model, "ssg").lm_head.weight is before
    copied = replace_head(LANGUAGE_MODELS["GPT-2"](), weight="copy")
    assert torch.equal(copied.lm_head.weight, copied.transformer.wte.weight)
    drawn = replace_head(LANGUAGE_MODELS["GPT-2"](), "ssg", weight="new").lm_head.weight
    assert len({tuple(row) for row in drawn[:, -1:].tolist()}) == 1  # the variances, which are 1


def test_weights_of_another_head_are_replaced_again(tmp_path: Path) -> None:
    model = replace_head(LANGUAGE_MODELS["GPT-2"](), "3*lin")
    replace_head(replace_head(CLASSIFIERS["Roberta"](), "3*lin"), "lin").save_pretrained(tmp_path / "classifier")
    assert replace_head(model, "lin").lm_head.num_components == 1
    model.save_pretrained(tmp_path / "model")
    assert from_pretrained(tmp_path / "model").lm_head.num_components == 1


def test_files_of_weights_hold_parameters_alone(tmp_path: Path) -> None:
    model = replace_head(LANGUAGE_MODELS["GPT-2"](), "2*lin")
    model.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == {name for name, _ in model.named_parameters()}
    model.load_state_dict(from_pretrained(tmp_path).state_dict())


def test_parameters_that_a_file_lacks_are_drawn(tmp_path: Path) -> None:
    model = replace_head(LANGUAGE_MODELS["Llama"](), ["lin", {"name": "rbf", "learnable": True}], bias=True)
    nn.init.normal_(_head(model).prior)
    model.save_pretrained(tmp_path)
    file, read = tmp_path / "model.safetensors", load_file(tmp_path / "model.safetensors")
    (learnt,) = [name for name in read if name.startswith("lm_head.kernels.")]
    kept = {name: each for name, each in read.items() if name not in ("lm_head.bias", learnt)}
    kept["lm_head.prior"] = kept["lm_head.prior"] + 1
    save_file(kept, file, {"format": "pt"})
    loaded = dict(from_pretrained(tmp_path).named_parameters())
    assert torch.equal(loaded["lm_head.prior"], kept["lm_head.prior"])
    assert not loaded["lm_head.bias"].any()
    assert torch.equal(loaded[learnt], read[learnt])  # as it begins


# ---- generation ----------------------------------------------------------------------------------------------


@each_language_model
@pytest.mark.parametrize(
    "options", [{}, {"do_sample": True, "top_k": 5, "top_p": 0.9, "temperature": 0.7}, {"num_beams": 3}], ids=str
)
def test_texts_are_generated(make: Callable[[], Any], options: dict[str, Any]) -> None:
    tokens = _batch(make())["input_ids"]

    def generated(model: Any) -> Tensor:
        torch.manual_seed(0)
        found: Tensor = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=5, **options)
        return found

    assert torch.equal(generated(replace_head(make())), generated(make()))
    for kernels, sparse_k in ((ALL, None), ("lin, log", 8)):
        found = generated(replace_head(make(), kernels, sparse_k=sparse_k))
        assert found.shape[1] > tokens.shape[1]


# ---- Trainer -------------------------------------------------------------------------------------------------


class Texts(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Texts of 8 tokens that count upwards from a random one, of which a random part has no loss; or their first."""

    def __init__(self, count: int, classifies: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self._starts = torch.randint(0, 9, (count,), generator=generator)
        self._ignored = torch.randint(0, 6, (count,), generator=generator)
        self._classifies = classifies

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = 3 + (self._starts[index] + torch.arange(8)) % 9
        if self._classifies:
            return {"input_ids": tokens, "labels": self._starts[index] % LABELS}
        labels = tokens.clone()
        labels[: self._ignored[index]] = -100
        return {"input_ids": tokens, "labels": labels}


def _trainer(model: Any, directory: Path, **options: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(directory),
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        dataloader_pin_memory=False,
        **{"save_strategy": "no", "learning_rate": 1e-2, **options},
    )
    texts = Texts(64, "Sequence" in type(model).__name__)
    return transformers.Trainer(
        model,
        arguments,
        train_dataset=texts,
        eval_dataset=texts,
        compute_metrics=lambda found: {"shape": list(np.shape(found.predictions))},
    )


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Bert"])
def test_accumulated_gradients_are_those_of_one_batch(name: str, tmp_path: Path) -> None:
    def trained(batch: int, steps: int, **options: Any) -> dict[str, Tensor]:
        model = replace_head(MODELS[name](), "lin, rbf", bias=True)
        for each in model.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": steps, "max_steps": 2}
        _trainer(model, tmp_path, optim="sgd", max_grad_norm=0, **sizes, **options).train()
        weights: dict[str, Tensor] = model.state_dict()
        return weights

    whole = trained(8, 1)
    for each in (trained(2, 4), trained(4, 2, activation_checkpointing=True)):
        for key, value in each.items():
            torch.testing.assert_close(value, whole[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["GPT-2", "Bert"])
def test_a_model_learns_and_is_loaded_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    model = replace_head(MODELS[name](), "lin, rbf", weight="new")
    options = {"max_steps": 60, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 30}
    trainer = _trainer(model, tmp_path, activation_checkpointing=True, **options)
    trainer.train()
    found = trainer.evaluate()
    assert found["eval_loss"] < 0.5
    assert found["eval_shape"] == ([64, 8, V] if name == "GPT-2" else [64, LABELS])
    resumed = _trainer(replace_head(MODELS[name](), "lin, rbf", weight="new"), tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-30"))
    assert resumed.evaluate()["eval_loss"] < 0.5
    loaded = from_pretrained(tmp_path / "checkpoint-60").eval()
    text = Texts(64, name == "Bert")[0]
    assert loaded(**{key: value[None] for key, value in text.items()}).loss < 1.0


def test_label_smoothing_of_the_trainer_shifts_the_labels_of_language_models(tmp_path: Path) -> None:
    losses = []
    for model in (LANGUAGE_MODELS["GPT-2"](), replace_head(LANGUAGE_MODELS["GPT-2"]())):
        losses.append(_trainer(model, tmp_path, label_smoothing_factor=0.1).evaluate()["eval_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


# ---- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _model("BertForTokenClassification"), "neither a causal language model nor a sequence classifier"),
        (lambda: _model("BertForSequenceClassification", num_labels=1), "num_labels of 2 or more"),
        (
            lambda: _model("BertForSequenceClassification", problem_type="multi_label_classification"),
            "one label for each text",
        ),
        (lambda: _model("CohereForCausalLM"), "CohereForCausalLM changes the scores or the loss of its head: logit_sc"),
        (lambda: replace_head(_model("GPT2LMHeadModel"), weight="some"), "weight must be 'keep', 'copy' or 'new'"),  # type: ignore[arg-type]
        (lambda: replace_head(_model("GPT2LMHeadModel"), "nothing"), "unknown kernel 'nothing'"),
    ],
    ids=["task", "regression", "labels", "scores", "weight", "kernel"],
)
def test_other_models_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace_head(make())


def test_a_directory_of_another_model_is_refused(tmp_path: Path) -> None:
    _model("GPT2LMHeadModel").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no softmax_head in its config"):
        from_pretrained(tmp_path)
