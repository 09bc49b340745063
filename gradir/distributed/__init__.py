"""What the ranks of a distributed training do alike, where they part, and whether they would wait for ever."""
