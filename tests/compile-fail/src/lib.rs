//! Programs that the native API must refuse to compile: see `cases/` and `tests/`.
