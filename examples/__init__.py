"""Runnable examples: a corpus of real text, and a comparison of databases that shares no code with the packs."""
