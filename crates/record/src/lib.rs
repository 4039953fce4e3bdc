//! The file of Samples: framed, versioned, checksummed.
