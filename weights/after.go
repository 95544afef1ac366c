package weights

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// HeldVersion is a version that somebody has in memory, as Fetch gave it.
type HeldVersion struct {
	Manifest *Manifest
	Files    []Content
	// ByDelta: files of tensors came of the version's delta, and were not read.
	ByDelta bool
}

// FetchAfter is Fetch for somebody who holds an older version, which may be nil: where the
// version's delta leads from that one, it is read in place of the files of tensors. What comes of
// it counts when it has the manifest's digests. Whatever is wrong with a delta, the files are read
// whole: S3 also refuses who may not list a bucket what is not there.
func FetchAfter(ctx context.Context, s storage.Store, policy string, version int64,
	before *HeldVersion) (*HeldVersion, error) {
	if before != nil {
		held, err := fetchByDelta(ctx, s, policy, version, before)
		if err == nil {
			return held, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("fetch policy %s, version %d by its delta: %w", policy, version, err)
		}
	}
	m, files, err := Fetch(ctx, s, policy, version)
	return &HeldVersion{Manifest: m, Files: files}, err
}

func fetchByDelta(ctx context.Context, s storage.Store, policy string, version int64,
	before *HeldVersion) (*HeldVersion, error) {
	d, err := fetchDelta(ctx, s, policy, version)
	if err != nil {
		return nil, err
	}
	if d.Base != before.Manifest.Version || d.Size > storage.MaxObject {
		return nil, corrupt("it leads from version %d, and has %d bytes", d.Base, d.Size)
	}
	m, err := FetchManifest(ctx, s, policy, version)
	if err != nil {
		return nil, err
	}
	packed, err := storage.GetBlob(ctx, s, d.Ref)
	if err != nil {
		return nil, err
	}
	opened, err := delta.Open(bytes.NewReader(packed), d.Size)
	if err != nil {
		return nil, err
	}
	base, err := inMemory(before.Files)
	if err != nil {
		return nil, err
	}
	held, total := &HeldVersion{Manifest: m, ByDelta: true}, int64(0)
	for _, file := range m.Files {
		if total += file.Size; total > storage.MaxObject {
			return nil, fmt.Errorf("%w: more than %d bytes", storage.ErrTooLarge, storage.MaxObject)
		}
		data, err := fileBy(ctx, s, opened, base, file)
		if err != nil {
			return nil, err
		}
		held.Files = append(held.Files, Content{Name: file.Name, Data: data})
	}
	return held, nil
}

func inMemory(contents []Content) (*safetensors.Checkpoint, error) {
	var files []*safetensors.File
	for _, c := range contents {
		if path.Ext(c.Name) != tensorsExtension {
			continue
		}
		file, err := safetensors.NewFile(c.Name, bytes.NewReader(c.Data), int64(len(c.Data)))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return safetensors.NewCheckpoint(files...)
}

// fileBy gives a file's bytes: of the delta where it is one of tensors, and else of the store.
func fileBy(ctx context.Context, s storage.Store, d *delta.Delta, base *safetensors.Checkpoint,
	file File) ([]byte, error) {
	if path.Ext(file.Name) != tensorsExtension {
		return storage.GetBlob(ctx, s, file.Ref)
	}
	r, err := d.Reader(ctx, base, file.Name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(&checked{from: r, ref: file.Ref, digest: sha256.New()})
	return data, errors.Join(err, r.Close())
}
