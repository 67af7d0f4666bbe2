"""The book, running: ``make live`` serves it from this machine, with cells to run and exercises to check in the page.

* ``app``: Jupyter Server with the book on it; ``handlers`` answers the pages, ``static/`` is what they load;
* ``pages`` reads the notebook behind a page, ``saved`` and ``solutions`` keep what the reader writes;
* ``checking``, ``sentence`` and ``training`` run in the kernel of a page.
"""
