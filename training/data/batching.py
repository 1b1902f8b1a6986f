"""Batches of token ids for language models.

Shapes: `B` sequences, `T` time steps.
"""

import abc
import functools
import itertools
import operator
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.mapped_tokens import MappedTokens

__all__ = [
    "IGNORED",
    "Batch",
    "Batches",
    "ExampleBatch",
    "LengthBatches",
    "RedrawnBatches",
    "SentenceBatches",
    "StreamBatches",
    "TensorBatch",
    "tensors_of",
    "with_tensors",
]

BatchT = TypeVar("BatchT", covariant=True)
T = TypeVar("T")

Sentences = Sequence[Sequence[int] | NDArray[np.int32]]
"""Token ids of each sentence."""

IGNORED = -100
"""Target of a padded position (the default `ignore_index` of torch)."""


def tensors_of(batch: Any) -> dict[str, Tensor]:
    """Return the tensors of a dataclass by the names of their fields."""
    values = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def with_tensors(batch: T, change: Callable[[Tensor], Tensor]) -> T:
    """Return a dataclass with each of its tensors changed."""
    everything: Any = batch
    changed: T = replace(everything, **{name: change(tensor) for name, tensor in tensors_of(batch).items()})
    return changed


class TensorBatch:
    """A dataclass whose tensors have a row for each example of a batch."""

    __slots__ = ()

    def pin_memory(self) -> Self:
        """Return the batch in memory that a GPU reads while the CPU goes on; `torch.utils.data.DataLoader` asks."""
        return with_tensors(self, Tensor.pin_memory)

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device; from pinned memory it is copied while the CPU goes on."""
        return with_tensors(self, lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True, slots=True)
class Batch(TensorBatch):
    """Inputs and next-token targets."""

    inputs: Tensor
    """`[B, T]`"""
    targets: Tensor
    """`[B, T]`, `IGNORED` where padded."""
    continues: bool
    """Whether row b goes on where row b of the previous batch ended, so that its recurrent state carries over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleBatch(TensorBatch):
    """Examples of a split, in any order, with their targets."""

    targets: Tensor
    """`[B, T]`: the target tokens or the classes of each example, `IGNORED` where it has fewer."""
    indices: Tensor
    """`[B]`: the index of each example in its split."""


class Batches(Protocol[BatchT]):
    """One corpus split, cut into batches; the same epoch number always gives the same batches in the same order."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> Iterator[BatchT]: ...


class LengthBatches(abc.ABC, Generic[BatchT]):
    """Examples of similar lengths together, at most `batch_tokens` positions (padding included) a batch and side."""

    def __init__(self, noun: str, widths: NDArray[np.int32], *, batch_tokens: int, seed: int | None = None) -> None:
        """`widths` are the lengths of each example's sides, `[examples, sides]`; without `seed` the order is by length.

        Raises `ValueError` if there is no example; `noun` is the plural noun for them.
        """
        if not len(widths):
            raise ValueError(f"{noun}: there is none")
        self._widths = widths
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._length = len(self._groups(0))

    def __len__(self) -> int:
        return self._length

    def epoch(self, number: int) -> Iterator[BatchT]:
        """Return the batches of an epoch."""
        return map(operator.call, self.plan(number))

    def plan(self, number: int) -> Sequence[Callable[[], BatchT]]:
        """Return a function for each batch of an epoch, which makes it."""
        return _Plan(self.collate, self._groups(number))

    def _groups(self, epoch: int) -> "_Groups":
        """Return indices of examples in groups of similar widths, at most `batch_tokens` positions with padding.

        Examples of equal widths are shuffled before they are cut, whole groups afterwards; without `seed` nothing is.
        The cuts depend on the widths alone, so each epoch has as many groups. Takes some 25 bytes an example.
        """
        shuffled = array("i", range(len(self._widths)))
        generator = random.Random(f"{self._seed}-{epoch}")
        if self._seed is not None:
            generator.shuffle(shuffled)
        order = np.asarray(shuffled)
        order = order[np.lexsort(self._widths[order].T[::-1])]  # by the first side, then by the next; stable
        starts = array("q", [0])
        widest = 0
        for position, width in enumerate(memoryview(self._widths.max(axis=1)[order])):
            widest = max(widest, width)
            if position > starts[-1] and (position + 1 - starts[-1]) * widest > self._batch_tokens:
                starts.append(position)
                widest = width
        numbers = array("q", range(len(starts)))
        if self._seed is not None:
            generator.shuffle(numbers)
        return _Groups(order, starts, numbers)

    @abc.abstractmethod
    def collate(self, indices: list[int]) -> BatchT:
        """Return the batch of the examples with these indices."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Indices of examples in groups."""

    indices: NDArray[np.int32]
    """Those of all groups, one group after the other."""
    starts: Sequence[int]
    """The place of each group's first index."""
    numbers: Sequence[int]
    """The groups' order."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> list[int]:
        number = self.numbers[place]
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.indices)
        indices: list[int] = self.indices[self.starts[number] : end].tolist()
        return indices


class _Plan(Sequence[Callable[[], BatchT]]):
    """A function for each group of examples, which is made when it is asked for: a corpus may have many groups."""

    def __init__(self, collate: Callable[[list[int]], BatchT], groups: _Groups) -> None:
        self._collate, self._groups = collate, groups

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, place: int) -> Callable[[], BatchT]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Callable[[], BatchT]]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return _Plan(self._collate, replace(self._groups, numbers=self._groups.numbers[place]))
        return functools.partial(self._collate, self._groups[place])


class RedrawnBatches(Generic[BatchT]):
    """Batches of examples that are drawn anew for each epoch; the length is that of the first one."""

    def __init__(self, draw: Callable[[int], LengthBatches[BatchT]]) -> None:
        """`draw` returns the batches of the examples of the epoch with that number."""
        self._draw = functools.lru_cache(maxsize=1)(draw)
        self._length = len(self._draw(0))

    def __len__(self) -> int:
        return self._length

    def epoch(self, number: int) -> Iterator[BatchT]:
        """Return the batches of an epoch."""
        return self._draw(number).epoch(number)

    def plan(self, number: int) -> Sequence[Callable[[], BatchT]]:
        """Return a function for each batch of an epoch, which makes it."""
        return self._draw(number).plan(number)


class SentenceBatches(LengthBatches[Batch]):
    """Independent sentences. `w1 .. wn` gives the inputs `</s> w1 .. wn` and the targets `w1 .. wn </s>`."""

    def __init__(self, sentences: Sentences, *, end_id: int, batch_tokens: int, seed: int | None = None) -> None:
        """Without `seed` the order is by length. Raises `ValueError` if there is no sentence."""
        self._sentences = sentences
        self._end_id = end_id
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        super().__init__("sentences", lengths[:, None] + 1, batch_tokens=batch_tokens, seed=seed)

    def collate(self, indices: list[int]) -> Batch:
        sentences = [self._sentences[index] for index in indices]
        steps = max(map(len, sentences)) + 1
        inputs = torch.full((len(sentences), steps), self._end_id)
        targets = torch.full((len(sentences), steps), IGNORED)
        for row, sentence in enumerate(sentences):
            ids = torch.tensor(sentence, dtype=torch.long)
            inputs[row, 1 : len(sentence) + 1] = ids
            targets[row, : len(sentence)] = ids
            targets[row, len(sentence)] = self._end_id
        return Batch(inputs, targets, continues=False)


class StreamBatches:
    """One long text in `num_streams` parallel pieces, `steps` tokens of each a batch (truncated BPTT).

    This is how Penn Treebank and WikiText are read in the literature: the state carries over from line to line.
    """

    def __init__(self, sentences: Sentences, *, end_id: int, num_streams: int, steps: int) -> None:
        """Raises `ValueError` where there are fewer tokens than two a stream."""
        # Inputs are the targets shifted by one; the text starts after a sentence's end.
        ended = (np.append(np.asarray(sentence, np.int32), np.int32(end_id)) for sentence in sentences)
        self._tokens = MappedTokens(itertools.chain([[end_id]], ended)).tokens
        count = len(self._tokens) - 1
        self._length = -(-count // num_streams)
        if self._length < 2:
            raise ValueError(f"{count} tokens are too few for {num_streams} streams")
        self._end_id, self._num_streams, self._steps = end_id, num_streams, steps

    def __len__(self) -> int:
        return -(-self._length // self._steps)

    def epoch(self, number: int) -> Iterator[Batch]:
        del number  # the text has one order
        for start in range(0, self._length, self._steps):
            steps = min(self._steps, self._length - start)
            inputs = torch.full((self._num_streams, steps), self._end_id)
            targets = torch.full((self._num_streams, steps), IGNORED)
            for row in range(self._num_streams):
                first = row * self._length + start
                window = torch.tensor(self._tokens[first : first + steps + 1], dtype=torch.long)
                known = max(0, len(window) - 1)  # fewer than `steps` at the end of the text
                inputs[row, :known], targets[row, :known] = window[:known], window[1:]
            yield Batch(inputs, targets, continues=start > 0)
