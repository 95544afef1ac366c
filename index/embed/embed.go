// Package embed turns text into vectors whose directions are close where texts
// speak of the same thing.
package embed

import "context"

// Embedder is safe for concurrent use.
type Embedder interface {
	// ID is part of an index's identity: embedders of one ID give the same vectors. It
	// has at most MaxID bytes.
	ID() string
	// Dimensions of a vector.
	Dimensions() int
	// Embed gives a vector for each text, of unit length, or all zero where nothing of the text is
	// known. Where it returns an error there is no vector.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Limits of what an embedder is.
const (
	MaxID         = 100  // bytes
	MaxDimensions = 8192 // of the largest models there are
)
