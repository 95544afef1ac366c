package delta_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// TestFilesOnDisk: files, which are read in pieces, give the same delta as checkpoints that are
// read in chunks, whatever changes in which part of a chunk.
func TestFilesOnDisk(t *testing.T) {
	const n = delta.ChunkSize / 2
	old := tensor(rand.New(rand.NewPCG(3, 4)), "w", "BF16", 2*n+100)
	mark := func(from, to, every int) safetensors.Data { return marked(old, from, to, every) }
	for name, next := range map[string]safetensors.Data{
		"nothing":                old,
		"the first unit":         mark(0, 1, 1),
		"the last of a chunk":    mark(n-1, n, 1),
		"the last unit":          mark(2*n+99, 2*n+100, 1),
		"all":                    mark(0, 2*n+100, 1),
		"the first eighth":       mark(0, n/8, 1),
		"little, and then all":   mark(n/2, n, 1),
		"a twentieth":            mark(7, 2*n+100, 20),
		"from within the chunk":  mark(n+n/2+1, 2*n+100, 50),
		"the rest behind chunks": mark(2*n, 2*n+100, 9),
		"far apart":              mark(0, 2*n, 65301), // the shifted gaps are 255
	} {
		t.Run(name, func(t *testing.T) { wantAlike(t, old, next) })
	}
}

// TestChunksAtOnce: the chunks of a tensor are encoded and applied at once. The race detector looks
// at this test, as at so many chunks of others it takes minutes.
func TestChunksAtOnce(t *testing.T) {
	const n = delta.ChunkSize / 2
	old := tensor(rand.New(rand.NewPCG(3, 5)), "w", "BF16", 2*n+100)
	wantAlike(t, old, marked(old, 0, 2*n+100, 50))
}

// marked is a tensor of two bytes for each element, in which every so many have changed.
func marked(old safetensors.Data, from, to, every int) safetensors.Data {
	next := old
	next.Bytes = slices.Clone(old.Bytes)
	for i := from; i < to; i += every {
		next.Bytes[2*i]++
	}
	return next
}

// wantAlike makes a delta of files, which must be that of checkpoints in memory, and applies it.
func wantAlike(t *testing.T, old, next safetensors.Data) {
	t.Helper()
	from, to := model{"m.safetensors": {old}}.files(t), model{"m.safetensors": {next}}.files(t)
	var b bytes.Buffer
	if err := delta.Encode(t.Context(), &b, onDisk(t, from), onDisk(t, to)); err != nil {
		t.Fatal(err)
	}
	if want := encode(t, from, to); !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%d bytes, want those %d of checkpoints in memory", b.Len(), len(want))
	}
	got, err := apply(t, from, b.Bytes(), filepath.Join(t.TempDir(), "next"))
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, got, to)
}

func onDisk(t *testing.T, files map[string][]byte) *safetensors.Checkpoint {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
