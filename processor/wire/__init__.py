"""Record batches as bytes: headers, CRCs, codecs. No I/O."""
