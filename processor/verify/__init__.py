"""The certificate of `seqmark verify`: what stands in a pipeline's topics is what must stand there.

`partition` judges a source partition again and hands each record to what checks the topic it must be in:
`sink`, `receipts`, `quarantine`, `verdicts`; `unproved` helps where not all can be judged again. Those compare
in order, and find out by `align` what a difference is. None of them knows Kafka: they read a `Stream`. `span`
says what to compare, `streams` brings it, and `certificate` does it for all partitions.
"""
