"""The bundled vocabularies: what o200k_base and cl100k_base merge, as compressed data. `blob.py` reads them, `build.py` makes them."""
