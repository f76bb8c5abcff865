"""Bytes in kernels: big-endian loads, varints, SipHash, CRC-32C, LZ4 blocks."""
