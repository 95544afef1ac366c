// Package embed turns text into vectors whose directions are close where texts speak of the same thing.
package embed

import (
	"context"
	"fmt"
	"strings"
)

// Embedder is safe for concurrent use.
type Embedder interface {
	// ID is part of an index's identity: embedders of one ID give the same vectors. It has at most MaxID bytes.
	ID() string
	// Dimensions of a vector.
	Dimensions() int
	// Embed gives a vector for each text, of unit length, or all zero where nothing of the text is known. Where it returns an error there
	// is no vector.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Limits of what an embedder is.
const (
	MaxID         = 100  // bytes
	MaxDimensions = 8192 // of the largest models there are
)

// Open gives the embedder that a spec names:
//
//	static                                       the built-in table
//	model2vec:DIR                                a folder with model.safetensors, tokenizer.json and config.json
//	https://api.example.com/v1#MODEL             an OpenAI-compatible server
//	https://api.example.com/v1?dimensions=512#M  the same, which is asked for as many dimensions
//
// A server is shown the key in the environment variable RONDO_EMBEDDINGS_KEY, or in the file that RONDO_EMBEDDINGS_KEY_FILE names. The
// server is asked once, for its dimensions, which are remembered in a folder; "" remembers nothing.
func Open(spec, memory string) (Embedder, error) {
	e, err := open(spec, memory)
	if err != nil {
		return nil, fmt.Errorf("embedder: %w", err)
	}
	return e, nil
}

func open(spec, memory string) (Embedder, error) {
	if spec == "" || spec == "static" {
		return Static(), nil
	}
	if folder, ok := strings.CutPrefix(spec, "model2vec:"); ok {
		return openModel(folder)
	}
	if strings.HasPrefix(spec, "http://") || strings.HasPrefix(spec, "https://") {
		return openRemote(spec, memory)
	}
	return nil, fmt.Errorf("%.80q: want static, model2vec:FOLDER or http(s)://HOST/v1#MODEL", spec)
}

// embedEach embeds one text after the other, until the context ends.
func embedEach(ctx context.Context, texts []string, embed func(text string) []float32) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		vectors[i] = embed(text)
	}
	return vectors, nil
}
