package wire

// WriteBuffer is how many bytes an agent writes to its control plane at once, and so the longest TLS record that it
// sends. The control plane keeps memory for one record for each connection, for as long as it lasts. A record of this
// length fits into the 2 KiB that the handshake takes, and into one TCP segment.
const WriteBuffer = 1400
