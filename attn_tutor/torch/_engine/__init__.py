"""What calls a definition: on blocks of queries, or as a kernel of torch; and what keeps the hidden from leaking."""
