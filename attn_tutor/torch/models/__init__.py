"""Models made of the layers: a language model and two translators, and how they are trained and kept."""
