// Package segment keeps the index of repositories in an object store: chunks of files with their
// vectors and words, sealed for whoever holds the key.
//
// A space is what lies under one key, index/<space>/. Its repositories share segments.
//
//   - segments/<sha256> are immutable. A segment holds files with all that is known of their
//     chunks, in pages that are read one by one.
//   - roots/<root> is the manifest of a tree, written after its segments. It names them in clear,
//     so that garbage collection needs no key; all else in it is sealed: where their pages lie,
//     which of their files are dead, totals.
//   - repos/<repository> is the manifest of a repository's present tree, moved by
//     compare-and-swap: who loses loads again.
//
// An update writes one segment with the files that changed and marks their old places dead, so that
// it costs what the change does; small segments, and those with many dead rows, are merged on the
// way. What an index answers does not depend on how it came about: statistics count live rows
// alone, and a vector that is used again is the one that would be made anew.
package segment

import (
	"errors"
	"time"
)

// Chunk is a piece of a file. Start, End and the lines are as in package chunk.
type Chunk struct {
	// ID is seal.Keys.Chunk of what is embedded.
	ID                  [16]byte
	Start, End          int
	FirstLine, LastLine int
	// Symbol names the declarations that the chunk holds or is in, separated by ", "; or "".
	Symbol string
	// Words are what BM25 counts, with repetitions.
	Words []string
	// Vector has length 1, or is zero where nothing is known of the text. It is nil where
	// the vector of the same ID is to be used again, which Base.Has has told or another
	// chunk of the same change brings.
	Vector []float32
}

// File is a file with all its chunks, perhaps none.
type File struct {
	Path    string
	Content [32]byte // the digest, as in the Merkle tree
	Chunks  []Chunk
}

// Change leads from one tree to another.
type Change struct {
	// Removed are paths that are gone. One that the index does not have is no error.
	Removed []string
	// Put are files that are new or other than before, each once.
	Put []File
	Update
	// Embedder and Dimensions are those of the vectors; they must be those of the
	// index, unless it is empty.
	Embedder   string
	Dimensions int
}

// Update is what a manifest says of the change that made it.
type Update struct {
	// Root is seal.Keys.Root of the tree as it is now.
	Root string
	Time time.Time
	// Figures is a JSON document about the update, or nil. It is stored sealed,
	// at most MaxFigures bytes.
	Figures []byte
}

// Limits. What is beyond them is refused when it is written, and taken for damage when it is read.
const (
	MaxPath       = 4096 // bytes
	MaxSymbol     = 1024 // bytes; a longer one is cut
	MaxWords      = 1 << 16
	MaxDimensions = 4096
	MaxEmbedder   = 100 // bytes
	MaxFigures    = 64 << 10
	MaxFileChunks = 20_000
	maxOffset     = 1 << 31 // bytes and lines of a file
	maxSegments   = 64
	maxRows       = 1 << 21 // of a segment
	maxPage       = 4 << 20 // bytes, before compression and after
)

// Errors that a caller can act on, beside those of package storage: storage.ErrConflict where
// another updater was faster (load again), storage.ErrNotFound where garbage collection took what
// an old index needs (load again), and storage.ErrCorrupt.
var (
	// ErrNoVector: a chunk has no vector, and none is there to be used again. Embed it.
	ErrNoVector = errors.New("a chunk has no vector, and none with its id is in the index")
	// ErrEmbedder: the vectors of a change are of another embedder than those of the
	// index. Begin with Base.Fresh.
	ErrEmbedder = errors.New("the index was made with another embedder")
	// ErrChange: a change cannot be one of a tree.
	ErrChange = errors.New("invalid change")
	// ErrOverlay: what is in memory alone cannot be built upon.
	ErrOverlay = errors.New("an overlay cannot be committed")
)
