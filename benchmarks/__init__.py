"""Measurements of this project against the plain way of doing the same, on a made-up shard of real text."""
