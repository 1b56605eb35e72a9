class KilledWorker(Exception): ...  # noqa: N818  # its name
