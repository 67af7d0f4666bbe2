"""What makes this half fast, one idea a file. Input is clean here, and a mask is :class:`Visibility`'s to read."""
