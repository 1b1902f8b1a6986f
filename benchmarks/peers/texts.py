"""Texts for classifiers: requests to an assistant, composed of phrases, the same in each run."""

import random

__all__ = ["LONG", "SHORT", "make_texts"]

SHORT = (5, 25)
"""Smallest and largest number of words of most texts; most often about 9."""
LONG = (40, 80)
"""Smallest and largest number of words of 2 % of the texts."""
_USUAL = 9
_SHARE_OF_LONG = 0.02

_OPENERS = (
    "can you please",
    "i would like you to",
    "could you",
    "i need you to",
    "please go ahead and",
    "help me",
    "is it possible to",
    "tell me how to",
    "tell me the best way to",
)
_REQUESTS = (
    "book a table for four at the italian place",
    "set an alarm for seven in the morning",
    "check whether my flight to rome is on time",
    "transfer two hundred dollars to my savings account",
    "order a new credit card because the old one is broken",
    "play the song that i heard on the radio",
    "add milk and eggs to my shopping list",
    "find out when the tires were changed last",
    "translate good evening into spanish",
    "look up how many calories an apple has",
    "remind me of the meeting with my boss",
    "cancel the hotel reservation in chicago",
    "pay the electric bill",
    "report that my card was stolen",
    "turn the volume of the speaker down",
    "say what the weather will be in denver",
)
_DETAILS = (
    "before i leave for work tomorrow",
    "since i will be away until the end of next month",
    "because my sister asked me about it twice",
    "as soon as the bank opens on monday",
    "if it does not cost more than forty dollars",
    "and let me know once that is done",
    "while i am still waiting at the airport",
    "even though the last attempt did not work",
    "and then send the details to my wife",
    "so that they need not wait for us",
    "unless there is something better close by",
)


def make_texts(count: int = 500, seed: int = 0) -> list[str]:
    """Return that many texts in random order; see `SHORT` and `LONG` for their lengths."""
    generator = random.Random(seed)
    long = round(count * _SHARE_OF_LONG)
    lengths = [generator.randint(*LONG) for _ in range(long)]
    low, high = SHORT[0] - 0.5, SHORT[1] + 0.5
    lengths += [round(generator.triangular(low, high, _USUAL)) for _ in range(count - long)]
    generator.shuffle(lengths)
    return [_text(generator, words) for words in lengths]


def _text(generator: random.Random, words: int) -> str:
    """Return requests with details, cut to the number of words."""
    found: list[str] = []
    while len(found) < words:
        phrases = [generator.choice(_REQUESTS), generator.choice(_DETAILS)]
        if generator.random() < 0.6:
            phrases.insert(0, generator.choice(_OPENERS))
        found += " ".join(phrases).split()
    return " ".join(found[:words])
