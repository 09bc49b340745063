"""Front-ends: the only packages that may import a framework, each one only when it is used."""
