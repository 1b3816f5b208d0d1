"""Banking77 with a pretrained model: query in, intent out, and canaries that add a name and a reference."""
