"""Files of other benchmarks, read into the store, and results written in their form. docs/formats.md."""
