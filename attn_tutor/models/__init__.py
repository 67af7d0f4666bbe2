"""Published models, run by the functions of this package: a module a model.

* ``smollm2``: SmolLM2-135M, a causal language model (torch half), thirty times ``smollm2_layer``;
* ``rxnmapper``: RXNMapper's ALBERT, chemical reactions (torch half).

Their weights are packages of their own, which ``requirements-models.txt`` pins; ``weights`` finds and checks the files.
"""
