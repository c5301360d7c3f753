"""The systems, one file each; what a system is stands in `system.py`."""
