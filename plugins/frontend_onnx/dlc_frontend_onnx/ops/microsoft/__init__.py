"""Import rules of onnxruntime's own operators (domain com.microsoft), which its optimiser and quantisers write."""
