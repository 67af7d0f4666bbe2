"""The exercises, chapter by chapter: a file here holds those of one, and what people get wrong in them."""
