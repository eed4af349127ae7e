"""Programs that were built: loaded, fed with arrays, called, and the manifest that comes with them."""
