"""What both halves do alike, written once; the halves keep the public names, their types and their docstrings.

``xp`` is the half's ``_backend`` module: the same few functions in NumPy and in torch.
"""
