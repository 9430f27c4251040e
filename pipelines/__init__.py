"""A thin Dagster layer over ``pack_lib``: an asset calls one of its functions and turns the result into metadata.

No SQL and no bytes are handled here. Start at ``definitions``; ``docs/dagster.md`` shows how to run it.
"""
