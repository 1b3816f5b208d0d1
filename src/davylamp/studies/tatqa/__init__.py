"""TAT-QA with a pretrained model: table, text and question in, answer and scale out, and canaries that add a name."""
