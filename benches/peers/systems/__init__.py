"""The compared systems, one in each file; `system.py` defines their interface."""
