"""How ranks are started, and everything that differs by scheduler."""
