"""The command line."""

from osiris_jax.cli.commands import app, main

__all__ = ["app", "main"]
