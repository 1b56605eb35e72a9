"""The bundled vocabularies of o200k_base and cl100k_base, compressed. `benchmarks/maintenance/build_vocabularies.py` rebuilds them."""
