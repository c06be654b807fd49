"""Compare cells within a campaign."""
