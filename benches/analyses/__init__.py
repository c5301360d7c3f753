"""Measures the requests of analysis tools and the time of typical analyses: see README.md."""
