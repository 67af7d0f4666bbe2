/* The machines and the layer of attn_tutor/ledger.py, written by tools/ledger_data.py. */
attn.ledger = {
  "machines": {
    "H100": {
      "operations_per_second": 989400000000000.0,
      "exponentials_per_second": 3864843750000.0,
      "memory_bytes_per_second": 3350000000000.0,
      "memory_bytes": 80000000000.0,
      "link_bytes_per_second": 450000000000.0,
      "network_bytes_per_second": 50000000000.0,
      "link_hop_seconds": 3.4e-06,
      "network_hop_seconds": 1.4e-05,
      "start_seconds": 8.4e-06,
      "node_gpus": 8,
      "number_bytes": 2
    },
    "B200": {
      "operations_per_second": 2250000000000000.0,
      "exponentials_per_second": 4394531250000.0,
      "memory_bytes_per_second": 8000000000000.0,
      "memory_bytes": 180000000000.0,
      "link_bytes_per_second": 900000000000.0,
      "network_bytes_per_second": 50000000000.0,
      "link_hop_seconds": 3.4e-06,
      "network_hop_seconds": 1.4e-05,
      "start_seconds": 8.4e-06,
      "node_gpus": 8,
      "number_bytes": 2
    }
  },
  "layer": {
    "heads": 64,
    "kv_heads": 8,
    "width": 128,
    "latent_width": null,
    "rotary_width": 64,
    "window": null,
    "sinks": 0,
    "cache_bits": 16
  }
};
