"""Configs of other tools as configs of this one: which tool a file is of, where each key goes, and
what has no place here."""
