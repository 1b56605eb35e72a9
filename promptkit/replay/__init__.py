"""A recorded conversation played again, request by request, as if promptkit or another had kept its window: what it costs and forgets."""
