"""The tables of a results folder, tables/<name>.csv, by name. Without pandas, which planning has no use for."""

TABLES = ("scaling", "strategies", "memory", "collectives", "failures")
