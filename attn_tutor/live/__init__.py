"""The book that runs, served from this machine: cells to run and exercises to check in the page (``make live``).

* ``app``: Jupyter Server with the book on it; ``handlers`` answers the pages, ``static/`` is what they load;
* ``pages`` reads the notebook behind a page, ``saved`` and ``solutions`` keep what the reader writes;
* ``loading``, ``checking``, ``sentence`` and ``training`` run in the kernel of a page.
"""
