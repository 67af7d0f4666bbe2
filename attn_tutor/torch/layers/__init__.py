"""The functions of this half as ``torch.nn`` modules, which hold what is learnt, and the blocks made of them."""
