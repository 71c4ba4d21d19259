"""The smallest part of a recording that still fails in the same way, without private text."""
