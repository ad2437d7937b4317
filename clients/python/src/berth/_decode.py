"""JSON to the dataclasses of :mod:`berth.models`: what an answer has more than they know is ignored, what it lacks is the default."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import MalformedAnswer

T = TypeVar("T")
Reader = Callable[[Any], Any]


def decode(kind: type[T], value: Any) -> T:
    """``value`` as a ``kind``, a dataclass."""
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{kind.__name__}: an object was expected, not {value!r:.100}")
    readers = _field_readers(typing.cast(typing.Hashable, kind))
    try:
        fields = {name: read(value[key]) for name, key, read in readers if key in value}
        return kind(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise MalformedAnswer(f"{kind.__name__}: {error}") from error


@functools.cache
def _field_readers(kind: Any) -> list[tuple[str, str, Reader]]:
    hints = typing.get_type_hints(kind)
    # `from` is a word of Python's own: such fields end in an underscore here.
    return [(f.name, f.name.rstrip("_"), _reader(hints[f.name])) for f in dataclasses.fields(kind)]


def _reader(hint: Any) -> Reader:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(argument for argument in arguments if argument is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(each) for each in value]
    if origin is dict:
        entry = _reader(arguments[1])
        return lambda value: {key: entry(each) for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        return functools.partial(decode, typing.cast(type[Any], hint))
    return lambda value: value
