import ctypes

import pytest

from service import memory


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [(memory.use_few_arenas, "mallopt", (-8, 2)), (memory.give_back, "malloc_trim", (0,))],
)
def test_glibc_is_asked(monkeypatch, call, name, arguments):
    asked = []
    library = type("Library", (), {name: staticmethod(lambda *given: asked.append(given))})
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    call()
    assert asked == [arguments]


@pytest.mark.parametrize("call", [memory.use_few_arenas, memory.give_back])
def test_other_c_libraries_are_left_alone(monkeypatch, call):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    call()
    memory.give_back()
