"""One file per source of batches."""
