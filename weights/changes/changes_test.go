package changes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// checkpoint writes tensors into a folder and opens it.
func checkpoint(t *testing.T, tensors ...safetensors.Data) *safetensors.Checkpoint {
	t.Helper()
	dir := t.TempDir()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// random is a tensor with random bytes.
func random(r *rand.Rand, name string, dtype safetensors.Dtype, width int64, shape ...int64) safetensors.Data {
	n := width
	for _, length := range shape {
		n *= length
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return safetensors.Data{Name: name, Dtype: dtype, Shape: shape, Bytes: data}
}

// apply sets changes in tensors, as a server does.
func apply(t *testing.T, dir string, digests map[string]string, to []safetensors.Data) {
	t.Helper()
	for name, digest := range digests {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || storage.Digest(data) != digest {
			t.Fatalf("%s has the digest %s, and not %s (%v)", name, storage.Digest(data), digest, err)
		}
		header, err := safetensors.Validate(bytes.NewReader(data), int64(len(data)), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, tensor := range to {
			shape, some := header.Metadata[tensor.Name]
			if !some {
				continue
			}
			if want := strings.ReplaceAll(fmt.Sprint(tensor.Shape), " ", ","); shape != want {
				t.Errorf("tensor %s has the shape %s, want %s", tensor.Name, shape, want)
			}
			at, _ := header.Tensor(tensor.Name + placesSuffix)
			values, _ := header.Tensor(tensor.Name + valuesSuffix)
			width := int(values.Size / values.Elements())
			last := -1
			for j := range int(at.Elements()) {
				place := int(binary.LittleEndian.Uint32(data[int(at.Offset)+4*j:]))
				if place <= last {
					t.Fatalf("tensor %s: place %d behind %d", tensor.Name, place, last)
				}
				last = place
				copy(to[i].Bytes[place*width:], data[int(values.Offset)+j*width:][:width])
			}
		}
	}
}

// TestWrite: tensors of all widths, with changes at their ends, in pieces and in files, are the new
// ones when the changes have been set.
func TestWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var old []safetensors.Data
	for dtype, width := range map[safetensors.Dtype]int64{"F8_E4M3": 1, "BF16": 2, "F32": 4, "F64": 8} {
		for i, length := range []int64{1, 7, 1000, (piece + 4096) / width} {
			old = append(old, random(r, fmt.Sprintf("%s.%d", dtype, i), dtype, width, 1, length))
		}
	}
	old = append(old, safetensors.Data{Name: "empty", Dtype: "F32", Shape: []int64{0, 3}},
		random(r, "scalar", "F32", 4), random(r, "same", "F32", 4, 5))
	var new []safetensors.Data
	elements := 0
	for _, tensor := range old {
		tensor.Bytes = slices.Clone(tensor.Bytes)
		width := map[safetensors.Dtype]int{"F8_E4M3": 1, "BF16": 2, "F32": 4, "F64": 8}[tensor.Dtype]
		for at := 0; at < len(tensor.Bytes) && tensor.Name != "same"; at += width {
			if at == 0 || at+width == len(tensor.Bytes) || r.IntN(50) == 0 {
				tensor.Bytes[at+r.IntN(width)] ^= 0x10
				elements++
			}
		}
		new = append(new, tensor)
	}
	dir := t.TempDir()
	digests, err := Write(t.Context(), checkpoint(t, old...), checkpoint(t, new...), dir)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, dir, digests, old)
	for i := range old {
		if !bytes.Equal(old[i].Bytes, new[i].Bytes) {
			t.Errorf("tensor %s is another one", old[i].Name)
		}
	}
	if len(digests) != 1 {
		t.Errorf("%d elements are in %d files", elements, len(digests))
	}
}

// TestSeveralFiles: a tensor may be in two files.
func TestSeveralFiles(t *testing.T) {
	old := safetensors.Data{Name: "big", Dtype: "F64", Shape: []int64{3 << 18}, Bytes: make([]byte, 6<<20)}
	new := old
	new.Bytes = slices.Clone(old.Bytes)
	for at := 0; at < len(new.Bytes); at += 80 {
		new.Bytes[at] = 1
	}
	dir := t.TempDir()
	digests, err := write(t.Context(), checkpoint(t, old), checkpoint(t, new),
		&writer{dir: dir, limit: 1 << 20, fileSize: 1, digests: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(digests) != 2 {
		t.Errorf("%d files", len(digests))
	}
	to := []safetensors.Data{old}
	apply(t, dir, digests, to)
	if !bytes.Equal(old.Bytes, new.Bytes) {
		t.Error("the tensor is another one")
	}
}

// TestWhole: where changes are of no use there are none.
func TestWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := random(r, "a", "BF16", 2, 8, 8), random(r, "b", "BF16", 2, 64)
	shaped, typed, other := a, a, random(r, "a", "BF16", 2, 8, 8)
	shaped.Shape, typed.Dtype = []int64{64}, "F16"
	four := safetensors.Data{Name: "a", Dtype: "F4", Shape: []int64{8}, Bytes: []byte{1, 2, 3, 4}}
	for name, pair := range map[string][2][]safetensors.Data{
		"a tensor more":   {{a}, {a, b}},
		"a tensor less":   {{a, b}, {a}},
		"another shape":   {{a}, {shaped}},
		"another type":    {{a}, {typed}},
		"all has changed": {{a}, {other}},
		"half an element": {{four}, {four}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Write(t.Context(), checkpoint(t, pair[0]...), checkpoint(t, pair[1]...),
				t.TempDir()); !errors.Is(err, ErrWhole) {
				t.Errorf("%v", err)
			}
		})
	}
	if digests, err := Write(t.Context(), checkpoint(t, a), checkpoint(t, a), t.TempDir()); err != nil ||
		len(digests) != 0 {
		t.Errorf("of one version with itself: %v, %v", digests, err)
	}
}
