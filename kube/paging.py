"""Long lists in pages: what the API server and we hold in memory at a time stays small."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from kube.client import Client

PAGE: Final = 500  # objects per request, as client-go has it


class Page(msgspec.Struct, frozen=True):
    """Some of the objects of a list, raw, and the resourceVersion of the whole list."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


class _ListMeta(msgspec.Struct, frozen=True, rename={"continue_": "continue", "resource_version": "resourceVersion"}):
    resource_version: str
    continue_: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


def pages(client: Client, path: str, selectors: Mapping[str, str], *, timeout_s: float) -> Iterator[Page]:
    """Yield the pages of a list, at least one, each as it is read; `timeout_s` bounds each request.

    All are of one state of the cluster. Raises as `Client.request` (Gone if that state is forgotten before the end),
    and msgspec.DecodeError for what is no list.
    """
    query = {**selectors, "limit": str(PAGE)}
    while True:
        listed = _LIST.decode(client.request("GET", path, query=query, timeout_s=timeout_s))
        yield Page(listed.items or (), listed.metadata.resource_version)
        if not listed.metadata.continue_:
            return
        query["continue"] = listed.metadata.continue_
