package wire

// WriteBuffer is how many bytes an agent writes to its control plane at once, and so the longest TLS record that it
// sends. The control plane keeps about twice as much for each connection, for as long as it lasts.
const WriteBuffer = 2 << 10
