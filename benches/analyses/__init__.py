"""What analysis tools ask of strata, and how long typical analyses take: see README.md."""
