"""Import of T5 and mT5 models that translate: a prompt before each sentence asks for the target language.

The prompts are those of `task_specific_params` in `config.json`, such as "translate English to German: ", or the one of
`--prefix`. A directory has `config.json`, `model.safetensors` and `tokenizer.json` or `spiece.model`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from models.bundle.contract import SpecialTokens
from models.tasks.translation import Languages
from models.text.language_codes import find_language, same_language
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions, register
from training.importing.source import SourceDirectory
from training.importing.t5_model import T5Settings, read_t5
from training.importing.tokenizers import reference_tokenizer
from training.importing.translation import TOKENIZER, NetworkSizes, TranslationImporter
from training.importing.translation_languages import language_pair
from training.importing.translation_tokenizers import compare_subwords, service_tokenizer
from training.networks.translation_model import TranslationModel

__all__ = ["MT5Importer", "T5Importer"]

_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
"""Keys of `task_specific_params` that name a translation."""
_POSITIONS = 1024
"""Tokens of a sentence, its end and its prompt included; relative positions have no limit of their own."""


@register("T5ForConditionalGeneration")
class T5Importer(TranslationImporter):
    """Import of a T5 model."""

    reference_class = "T5ForConditionalGeneration"

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        if options.source_languages is not None:
            raise ImportRefused("--source-languages is for models with a token for each; say the pair by --languages")
        self.settings = settings = T5Settings.parse(self.stated())
        self._pair, self._prompts = self._chosen_prompts()
        self._tokenizer = reference_tokenizer(source)
        self._file = service_tokenizer(self._tokenizer, settings.vocab_size, ())
        self.languages = self._languages()
        unknown = self._tokenizer.unk_token_id
        end = settings.eos_token_id
        if self._tokenizer.eos_token_id != end:
            raise ImportRefused(f"the end of the tokenizer is not token {end}, the eos_token_id of config.json")
        self.special_tokens = SpecialTokens(unknown=end if unknown is None else unknown, end=end, start=settings.start)
        self.sizes = self._sizes()
        self.never_generated = settings.never_generated
        self.max_tokens = self.chosen_max_tokens()

    def _sizes(self) -> NetworkSizes:
        settings = self.settings
        kind = settings.feed_forward_proj
        return NetworkSizes(
            hidden_size=settings.d_model,
            inner_size=settings.d_ff,
            heads=settings.num_heads,
            encoder_layers=settings.num_layers,
            decoder_layers=settings.decoder_layers,
            norm="pre",
            activation=kind,
            positions=_POSITIONS,
            vocab_size=settings.vocab_size,
        )

    def _chosen_prompts(self) -> tuple[tuple[str, str], dict[str, str]]:
        """Return source and default target, and the prompt of each target; raises `ImportRefused`."""
        options = self.options
        pair = language_pair(options.languages) if options.languages else None
        if options.prefix is not None:
            if pair is None:
                raise ImportRefused("--prefix needs --languages, such as en-de, the languages that it asks for")
            return pair, {pair[1]: options.prefix}
        found = self._stated_prompts()
        if not found:
            if pair is None:
                raise ImportRefused(
                    "config.json has no prompt of a translation in task_specific_params; say the languages by "
                    "--languages, such as en-de, and what asks for them by --prefix, where the model needs that"
                )
            return pair, {}
        sources = dict.fromkeys(source for source, _ in found)
        source = find_language(pair[0], sources) if pair else next(iter(sources)) if len(sources) == 1 else None
        prompts = {target: prompt for (read, target), prompt in found.items() if read == source}
        if options.target_languages is not None:
            codes = [find_language(code.strip(), prompts) for code in options.target_languages.split(",")]
            prompts = {code: prompts[code] for code in codes if code is not None} if None not in codes else {}
        target = find_language(pair[1], prompts) if pair else next(iter(prompts), None)
        if source is None or target is None:
            shown = ", ".join(f"{one}-{other}" for one, other in found)
            raise ImportRefused(
                f"config.json has prompts for {shown}; say which by --languages, or another by --prefix"
            )
        return (source, target), prompts

    def _stated_prompts(self) -> dict[tuple[str, str], str]:
        """Return the prompts of `task_specific_params`, by source and target."""
        tasks = self.source.config.get("task_specific_params")
        found: dict[tuple[str, str], str] = {}
        for name, params in (tasks if isinstance(tasks, Mapping) else {}).items():
            prompt = params.get("prefix") if isinstance(params, Mapping) else None
            if (pair := _TASK.fullmatch(name)) and isinstance(prompt, str):
                found[pair[1], pair[2]] = prompt
        return found

    def _languages(self) -> Languages:
        (source, target), prompts = self._pair, self._prompts
        tokens = {
            code: tuple(self._file.encode(prompt, add_special_tokens=False).ids) for code, prompt in prompts.items()
        }
        try:
            found = Languages(source=source, target=target, prompts=tokens)
        except ValueError as error:
            raise ImportRefused(f"languages: {error}") from error
        if same_language(source, target):
            raise ImportRefused(f"--languages must be two languages, not {source}-{target}")
        return found

    def read_model(self) -> TranslationModel:
        return read_t5(self.source, self.settings)

    def files(self) -> dict[str, Callable[[Path], object]]:
        """Return the files besides the graphs, by name: a function that writes each."""
        return {TOKENIZER: lambda path: self._file.save(str(path))}

    def compare_tokens(self, bundle: Path, texts: Sequence[str]) -> None:
        for prompt in self._prompts.values() or ("",):
            compare_subwords(bundle / TOKENIZER, self.special_tokens, self._tokenizer, texts, prompt)


@register("MT5ForConditionalGeneration")
class MT5Importer(T5Importer):
    """Import of an mT5 model."""

    reference_class = "MT5ForConditionalGeneration"
