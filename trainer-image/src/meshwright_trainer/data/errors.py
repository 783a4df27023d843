"""The exceptions of the data package.

DataError
  SourceError     a source that is missing, empty or not in the form that was said
  TokenizerError  a tokenizer that cannot be loaded, or a document that it cannot encode
  DatasetError    a dataset of one's own that cannot be made, or a sample that does not fit the others
"""

from __future__ import annotations


class DataError(Exception):
    """Root of everything this package raises on purpose."""


class SourceError(DataError):
    """The source is missing, empty or not in the form that was said."""


class TokenizerError(DataError):
    """The tokenizer cannot be loaded, or cannot encode what it was given."""


class DatasetError(DataError):
    """A dataset of one's own cannot be made, or a sample of it does not fit the others."""
