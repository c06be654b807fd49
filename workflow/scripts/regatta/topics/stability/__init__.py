"""The topic of stability: variation between launches, and step times of the most variable cells."""
