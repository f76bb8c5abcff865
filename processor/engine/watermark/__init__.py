"""Mode watermark: one sequence per partition, or one per scope with epoch and reorder window."""
