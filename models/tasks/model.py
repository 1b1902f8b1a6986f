"""The interface of models of all tasks: queries in, results out, in batches or by continuous decoding."""

import abc
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from models.backend import Backend
from models.bundle.contract import TaskConfig
from models.bundle.manifest import AnyManifest, BundleManifest
from models.decoding.continuous import Decoding
from models.errors import QueryError
from models.operations.operation import AnyOperation
from models.operations.query import Part, Query

__all__ = ["AnyModel", "BatchFunction", "Model", "Part", "Query", "SinglePart", "TopKQuery", "Values", "checked_top_k"]

_CHARACTERS_PER_TOKEN = 4
"""Characters of a token, for estimates."""

ConfigT = TypeVar("ConfigT", bound=TaskConfig, covariant=True)


class SinglePart:
    """A query that is computed as one entry of a batch."""

    __slots__ = ()

    def parts(self) -> tuple[Self, ...]:
        """Return the query itself."""
        return (self,)


def checked_top_k(top_k: int, most: int) -> int:
    """Return `top_k`, or `most` where a model has no more words or labels; raises `QueryError` for one below 1."""
    if top_k < 1:
        raise QueryError(f"top_k must be at least 1, not {top_k}")
    return min(top_k, most)


class TopKQuery(SinglePart):
    """A query for the `top_k` most probable words or labels."""

    __slots__ = ()
    top_k: int

    @property
    def result_items(self) -> int:
        """Largest number of words or labels of the result."""
        return self.top_k


Values = Sequence[Any]
"""Parts to be computed, or the outputs of parts, in their order."""
BatchFunction = Callable[[Values], Values]
"""Computes the outputs of parts, in their order. Safe to call from several threads."""


class Model(abc.ABC, Generic[ConfigT]):
    """A loaded bundle. Safe to call from several threads.

    A model computes either batches, by its `batch_functions`, or sequences by continuous decoding, by `start_decoding`.
    A caller makes queries, has their parts computed and turns the outputs into results by `result`.
    """

    config_type: ClassVar[type[TaskConfig]]
    """The section of the manifest."""
    operations: tuple[AnyOperation, ...] = ()
    """The operations that the model offers: endpoints, protocols and commands are made of them. Of a class those that
    any of its models offers, of a model its own."""
    offers: tuple[str, ...] = ()
    """The names of the operations, such as `classify`; a class that lists none may name what its own endpoints ask."""
    reads: ClassVar[Literal["text", "image"]] = "text"
    """Kind of input."""
    warm_up_lengths: ClassVar[tuple[int, ...]] = (1, 8, 32, 128)
    """Lengths of queries, in tokens, that cover the shapes a model is used with."""
    alone: ClassVar[frozenset[str]] = frozenset()
    """Batch functions of which one batch is computed at a time: where the weights are read for a token of each text,
    two batches take longer than one of both. `step` goes on with texts after a `draw`."""
    continuous: ClassVar[bool] = False
    """Whether the model implements `start_decoding`, so that one computation at a time serves all requests."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if isinstance(functions := cls.__dict__.get("operations"), property):  # former names
            warnings.warn(f"{cls.__name__}.operations is batch_functions now", DeprecationWarning, stacklevel=2)
            cls.batch_functions, cls.operations = functions, ()  # type: ignore[method-assign, assignment]
        if (made := cls.__dict__.get("warm_up_queries")) is not None:
            warnings.warn(f"{cls.__name__}.warm_up_queries is warm_up_parts now", DeprecationWarning, stacklevel=2)
            cls.warm_up_parts = made  # type: ignore[method-assign]
        if cls.operations:
            cls.offers = tuple(each.name for each in cls.operations)

    def __init__(self, manifest: BundleManifest[ConfigT], backend: Backend) -> None:
        self.manifest = manifest
        self.config = manifest.config
        self.backend = backend
        if self.operations:
            self.operations = self.operations_of(manifest)
            self.offers = tuple(each.name for each in self.operations)
        self.longest_input = sys.maxsize
        """Tokens that the model reads of an input at most; longer ones are refused or truncated."""

    @classmethod
    def operations_of(cls, manifest: AnyManifest) -> tuple[AnyOperation, ...]:
        """Return the operations that a model with this manifest offers, by default all of the class."""
        del manifest
        return cls.operations

    @classmethod
    @abc.abstractmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        """Load what the bundle holds besides its graphs; raises `BundleError`."""

    @classmethod
    def load_shared(cls) -> None:
        """Load what all models of the class share, ahead of the first model and concurrently with other work."""

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        """What computes batches, by name; empty for models that decode continuously."""
        return {}

    def compute(self, function: str, parts: Values) -> Values:
        """Return the outputs of parts, computed by a batch function, or by decoding where the model decodes."""
        return self.batch_functions[function](parts)

    def start_decoding(self, beam_size: int) -> Decoding:
        """Return an empty decoding for sequences of one beam size."""
        raise NotImplementedError

    @abc.abstractmethod
    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        """Return parts of roughly `length` tokens each, to compile, warm up and measure an operation with."""

    def self_test(self) -> None:
        """Answer a query of each operation from its input to its result; raises errors that loading does not find."""

    def result(self, query: Any, outputs: Values) -> Any:
        """Return the result of a query from the outputs of its parts."""
        del query
        return outputs[0]

    def estimated_tokens(self, operation: str, inputs: Sequence[str]) -> int:
        """Return an estimate of what inputs cost, in tokens, before they are tokenized or decoded."""
        if self.reads == "image":
            return len(inputs)
        most = self.longest_input
        return sum(min(len(text) // _CHARACTERS_PER_TOKEN, most) for text in inputs)

    def with_cache_salt(self, salt: str) -> Self:
        """Return this model with a part of the cache that only queries of the same salt find, as vLLM's `cache_salt`.

        Queries of a caller who is not to find out by timing what others have asked are made by such a model. All parts
        share the bytes of the cache. Models without such a cache ignore it.
        """
        del salt
        return self

    @property
    def longest_cached(self) -> int:
        """Bytes that the longest input takes in the cache of `use_cache`; by default 0, where inputs take little."""
        return 0

    def use_cache(self, max_bytes: int, on_lookup: Callable[[bool], object] = bool) -> None:
        """Keep intermediate results that speed up later queries; models without such a cache ignore it.

        `on_lookup` is called for every query that may use the cache, with whether something was found.
        """

    def decoding_bytes(self, read: int, written: int) -> int:
        """Return the bytes that are held of a text while it is written, of `read` tokens at first and up to `written`
        more; by default none.
        """
        del read, written
        return 0

    def use_decoding_cache(self, max_bytes: int) -> None:
        """Use so many bytes for texts that are written, which `decoding_bytes` counts; the default holds none."""


AnyModel = Model[Any]
"""A model of any task."""
