"""Import rules by subject: one short function per ONNX operator and range of versions."""
