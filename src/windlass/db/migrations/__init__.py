"""The schema, as numbered steps forward; each file holds both dialects."""
