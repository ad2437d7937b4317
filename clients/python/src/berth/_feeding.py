"""Prompts in pages that the contract takes. Knows no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

from ._calls import Json, given
from .models import Prompt

PromptLike = Union[Prompt, str, Mapping[str, Any]]

MOST_A_PAGE = 1024
#: Well below the largest body that a server takes, in bytes.
MOST_BYTES = 2 << 20


def pages(prompts: Iterable[PromptLike], offset: int) -> Iterator[tuple[int, list[Json]]]:
    """The pages, each with the number of its first prompt."""
    page: list[Json] = []
    size = 0
    for prompt in prompts:
        fields = _json(prompt)
        bytes_more = len(json.dumps(fields))
        if page and (len(page) == MOST_A_PAGE or size + bytes_more > MOST_BYTES):
            yield offset, page
            offset, page, size = offset + len(page), [], 0
        page.append(fields)
        size += bytes_more
    if page:
        yield offset, page


def _json(prompt: PromptLike) -> Json:
    if isinstance(prompt, str):
        return {"id": prompt}
    if isinstance(prompt, Prompt):
        return given(id=prompt.id, data=prompt.data, expected_tokens=prompt.expected_tokens)
    return dict(prompt)
