"""Compares strata with other systems on the same data; README.md describes the measurements."""
