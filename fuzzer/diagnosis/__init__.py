"""What is at fault: stages, ablation, the operator, the side that is wrong."""
