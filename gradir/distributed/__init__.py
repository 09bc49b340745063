"""Compare the ranks of a distributed training: their graphs, their collectives, and whether they would hang."""
