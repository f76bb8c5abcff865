"""Is what stands in a pipeline's topics what must stand there? The certificate of `seqmark verify`.

`partition` judges a source partition again and hands each record to what checks the topic it must be in:
`sink`, `receipts`, `quarantine`; `by_word` helps where not all can be judged again. Those compare in order, and
find out by `align` what a difference is. None of them knows Kafka: they read a `tape`. `limits` and `reading`
say what is to be compared and bring it, `run` does it for all partitions.
"""
