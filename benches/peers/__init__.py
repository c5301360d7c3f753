"""Compares strata with other systems on the same data; README.md tells what is measured."""
