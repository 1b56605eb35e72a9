"""STAND-IN, to be overwritten by the tokens room."""


def count_request(request): ...
