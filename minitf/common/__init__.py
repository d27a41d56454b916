"""What the forms for NumPy and for CuPy share: the fused decoder, and the ranking of a beam."""
