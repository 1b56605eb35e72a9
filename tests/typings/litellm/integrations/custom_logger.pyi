from collections.abc import Mapping
from typing import Any

class CustomLogger:
    async def async_pre_call_deployment_hook(
        self, kwargs: Mapping[str, Any], call_type: object
    ) -> dict[str, Any] | None: ...
    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: object,
        fallback_depth: int | None = None,
    ) -> None: ...
