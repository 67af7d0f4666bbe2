"""What calls a definition: on blocks of queries, in threads, with the keys that its rule leaves. Knows no formula."""
