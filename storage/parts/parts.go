// Package parts stores a large stream in parts that are cut where its content says so: a version of
// it that differs in one place shares all other parts with the version before, and costs what is
// different. An index, an object of its own, lists the parts.
//
// A short stream is one compressed object, a blob as any other. What follows from a stream's bytes
// alone is where it is cut and how it is named: equal streams have equal references.
package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// wholeBytes is up to which size a stream is one object.
	wholeBytes = 1 << 20
	// A part has minPart to maxPart bytes before compression, and about 1 MiB on average.
	minPart = 256 << 10
	maxPart = 4 << 20
	// MaxBytes bounds a stream, in bytes: what a workspace may hold, with room
	// for the names of its files.
	MaxBytes = 9 << 30
	// maxIndex bounds an index, in bytes: MaxBytes in parts of the smallest size.
	maxIndex = 16 << 20
	// maxStored bounds a part after compression, which adds a little to what cannot be compressed.
	maxStored = maxPart + maxPart>>6
)

// version is that of the index's format.
const version = 1

// keyPrefix is that of the keys of indexes, by which readers and the garbage collector know them.
const keyPrefix = "blobs/parts/"

// Index lists the parts of a stream.
type Index struct {
	Version int    `json:"version"`
	Bytes   int64  `json:"bytes"` // of the stream
	Parts   []Part `json:"parts"`
}

// Part is one of them: the object that holds it, compressed, and what it is before that.
type Part struct {
	storage.Ref
	Bytes int    `json:"bytes"`
	Sum   string `json:"sum"` // SHA-256
}

// IsIndex reports whether a key is one of an index.
func IsIndex(key string) bool { return strings.HasPrefix(key, keyPrefix) }

func indexKey(digest string) string { return keyPrefix + digest[:2] + "/" + digest }

// References are the parts of what a reference names; none where it names no index. The index comes
// from the store, where outsiders may write: what is wrong with it is storage.ErrCorrupt.
func References(ctx context.Context, store storage.Store, ref storage.Ref) ([]storage.Ref, error) {
	if !IsIndex(ref.Key) {
		return nil, nil
	}
	index, err := load(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	refs := make([]storage.Ref, len(index.Parts))
	for i, p := range index.Parts {
		refs[i] = p.Ref
	}
	return refs, nil
}

func load(ctx context.Context, store storage.Store, ref storage.Ref) (*Index, error) {
	if ref.Size > maxIndex {
		return nil, fmt.Errorf("%s: %w: an index of %d bytes (limit %d)", ref.Key,
			storage.ErrCorrupt, ref.Size, maxIndex)
	}
	text, err := storage.GetBlob(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	var index Index
	err = json.Unmarshal(text, &index)
	if err == nil {
		err = index.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ref.Key, storage.ErrCorrupt, err)
	}
	return &index, nil
}

func (x Index) validate() error {
	if x.Version != version {
		return fmt.Errorf("version %d of the index of parts: this program reads version %d", x.Version, version)
	}
	total := int64(0)
	for i, p := range x.Parts {
		if err := p.validate(); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		total += int64(p.Bytes)
	}
	if total != x.Bytes || total > MaxBytes {
		return fmt.Errorf("%d bytes in parts of %d (limit %d)", x.Bytes, total, int64(MaxBytes))
	}
	return nil
}

func (p Part) validate() error {
	if err := p.Ref.Validate(); err != nil {
		return err
	}
	if p.Key != storage.BlobKey(p.SHA256) || p.Size > maxStored || p.Bytes < 1 || p.Bytes > maxPart {
		return errors.New("its key is not that of its digest, or its size is not within the limits")
	}
	return nil
}
