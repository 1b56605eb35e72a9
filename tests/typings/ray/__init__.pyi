from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ray import exceptions as exceptions

_R = TypeVar("_R")

class ObjectRef(Generic[_R]):
    def future(self) -> Future[_R]: ...

class RemoteFunction(Generic[_R]):
    # Any: whatever the function takes; Ray sends it to a worker and calls the function there
    def options(self, *, max_retries: int) -> RemoteFunction[_R]: ...
    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[_R]: ...

def init(
    address: str,
    *,
    num_cpus: int | None = ...,
    include_dashboard: bool | None = ...,
    log_to_driver: bool = ...,
    logging_level: int = ...,
) -> object: ...
def shutdown() -> None: ...
def cluster_resources() -> dict[str, float]: ...
def remote(function: Callable[..., _R], /) -> RemoteFunction[_R]: ...
