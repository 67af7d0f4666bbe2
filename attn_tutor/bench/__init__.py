"""``python -m attn_tutor.bench``: this package beside the textbook, what else one might use, and the machine's limit.

* ``rows``: what is compared, and at which sizes; ``attentions`` and ``pieces`` have the contestants;
* ``limits``: the work that nobody can leave out, alone;
* ``measure``: time in turns, memory in a fresh process;
* ``report``: the table and the plot of a result.
"""
