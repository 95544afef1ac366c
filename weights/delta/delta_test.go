package delta_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// model is a checkpoint by file.
type model map[string][]safetensors.Data

func (m model) files(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name, tensors := range m {
		var b bytes.Buffer
		if err := safetensors.Write(&b, tensors, map[string]string{"file": name}); err != nil {
			t.Fatal(err)
		}
		files[name] = b.Bytes()
	}
	return files
}

func checkpoint(t testing.TB, files map[string][]byte) *safetensors.Checkpoint {
	t.Helper()
	var opened []*safetensors.File
	for name, data := range files {
		f, err := safetensors.NewFile(name, bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, f)
	}
	slices.SortFunc(opened, func(a, b *safetensors.File) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	c, err := safetensors.NewCheckpoint(opened...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(t testing.TB, base, next map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := delta.Encode(t.Context(), &b, checkpoint(t, base), checkpoint(t, next)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t testing.TB, data []byte) *delta.Delta {
	t.Helper()
	d, err := delta.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func fold(t testing.TB, deltas ...[]byte) []byte {
	t.Helper()
	var opened []*delta.Delta
	for _, d := range deltas {
		opened = append(opened, open(t, d))
	}
	var b bytes.Buffer
	if err := delta.Fold(t.Context(), &b, opened...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// apply gives the files that a delta makes.
func apply(t testing.TB, base map[string][]byte, data []byte, dir string) (map[string][]byte, error) {
	t.Helper()
	d, err := delta.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	if err := delta.ApplyUnsynced(t.Context(), checkpoint(t, base), d, dir); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files, nil
}

func wantFiles(t testing.TB, got, want map[string][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d files in place of %d", len(got), len(want))
	}
	for name, data := range want {
		if !bytes.Equal(got[name], data) {
			t.Fatalf("file %s has other bytes", name)
		}
	}
}

var dtypes = map[safetensors.Dtype]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "U16": 2,
	"I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8, "F4": 1, "F6_E2M3": 1, "F6_E3M2": 1,
}

func randomBytes(r *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// tensor makes a tensor of n elements; n is a multiple of 8.
func tensor(r *rand.Rand, name string, dtype safetensors.Dtype, n int) safetensors.Data {
	size := n * dtypes[dtype]
	switch dtype {
	case "F4":
		size = n / 2
	case "F6_E2M3", "F6_E3M2":
		size = n / 4 * 3
	}
	return safetensors.Data{Name: name, Dtype: dtype, Shape: []int64{int64(n)}, Bytes: randomBytes(r, size)}
}

// changed is a tensor of which a share of the bytes has changed; of 0 to 1, and
// above 1 everything is new.
func changed(r *rand.Rand, t safetensors.Data, share float64) safetensors.Data {
	t.Bytes = slices.Clone(t.Bytes)
	for i := range t.Bytes {
		if r.Float64() < share {
			t.Bytes[i] += byte(1 + r.IntN(3))
		}
		if share > 1 {
			t.Bytes[i] = byte(r.Uint32())
		}
	}
	return t
}

func sortedDtypes() []safetensors.Dtype {
	var all []safetensors.Dtype
	for dtype := range dtypes {
		all = append(all, dtype)
	}
	slices.Sort(all)
	return all
}

func random(r *rand.Rand, n int) model {
	m := model{}
	for i, dtype := range sortedDtypes() {
		file := fmt.Sprintf("model-%d.safetensors", i%3)
		m[file] = append(m[file], tensor(r, "t."+string(dtype), dtype, n))
	}
	return m
}

// step is what training may do to a model.
func (m model) step(r *rand.Rand, shares ...float64) model {
	next := model{}
	for name, tensors := range m {
		for _, t := range tensors {
			t = changed(r, t, shares[r.IntN(len(shares))])
			switch r.IntN(12) {
			case 0: // moved to another file
				next["model-moved.safetensors"] = append(next["model-moved.safetensors"], t)
				continue
			case 1:
				t.Name += "'"
			case 2:
				t.Shape = []int64{t.Shape[0] * 1, 1}
			case 3:
				if r.IntN(4) == 0 {
					continue
				}
			}
			next[name] = append(next[name], t)
		}
	}
	next["model-new.safetensors"] = []safetensors.Data{tensor(r, fmt.Sprint("new.", r.Uint64()), "BF16", 8*r.IntN(9))}
	return next
}

func TestRoundTrips(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		shares := []float64{0, 0.001, 0.02, 0.2, 0.6, 2}
		base := random(r, 8*r.IntN(400))
		next := base.step(r, shares...)
		old, new := base.files(t), next.files(t)
		got, err := apply(t, old, encode(t, old, new), filepath.Join(t.TempDir(), "v1"))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		wantFiles(t, got, new)
		wantFiles(t, stream(t, old, encode(t, old, new), slices.Collect(maps.Keys(new))), new)
	}
}

// stream gives the same files as apply by way of Reader.
func stream(t *testing.T, base map[string][]byte, data []byte, names []string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range names {
		r, err := open(t, data).Reader(t.Context(), checkpoint(t, base), name)
		if err != nil {
			t.Fatal(err)
		}
		if files[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestChunks: tensors of several chunks, whose last one is short, with each kind
// of change in each width.
func TestChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, dtype := range []safetensors.Dtype{"U8", "BF16", "F32", "F64"} {
		base := tensor(r, "w", dtype, (delta.ChunkSize+delta.ChunkSize/64)/dtypes[dtype]+8)
		for _, share := range []float64{0, 1e-6, 0.005, 0.5, 2} {
			t.Run(fmt.Sprint(dtype, share), func(t *testing.T) {
				old := model{"m.safetensors": {base}}.files(t)
				next := changed(r, base, share)
				next.Bytes[len(next.Bytes)-1]++
				new := model{"m.safetensors": {next}}.files(t)
				got, err := apply(t, old, encode(t, old, new), filepath.Join(t.TempDir(), "v1"))
				if err != nil {
					t.Fatal(err)
				}
				wantFiles(t, got, new)
			})
		}
	}
}

func TestRenamedAndUnchangedTakeNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := tensor(r, "a", "BF16", 8000), tensor(r, "b", "BF16", 8000)
	old := model{"m.safetensors": {a, b}}.files(t)
	renamed, reshaped := a, b
	renamed.Name, reshaped.Shape = "c", []int64{80, 100}
	d := encode(t, old, model{"m.safetensors": {renamed, reshaped}}.files(t))
	for _, entry := range open(t, d).Tensors {
		if want := map[string]string{"c": "a", "b": "b"}[entry.Name]; entry.From != want || entry.Bytes() != 0 ||
			entry.Old != entry.New {
			t.Errorf("tensor %s comes from %q in %d bytes", entry.Name, entry.From, entry.Bytes())
		}
	}
	if len(d) > 1000 {
		t.Errorf("a delta of %d bytes", len(d))
	}
}

// TestChain: 130 versions one after the other, and folds of parts of the chain.
func TestChain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	m := random(r, 160)
	first := m.files(t)
	current, deltas := first, [][]byte(nil)
	versions := []map[string][]byte{first}
	dir := t.TempDir()
	for i := range 130 {
		m = m.step(r, 0, 0.01, 0.01, 0.3)
		next := m.files(t)
		d := encode(t, current, next)
		got, err := apply(t, current, d, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		wantFiles(t, got, next)
		current, deltas, versions = got, append(deltas, d), append(versions, next)
	}
	for _, part := range [][2]int{{0, 1}, {0, 2}, {3, 20}, {100, 130}, {0, 130}} {
		got, err := apply(t, versions[part[0]], fold(t, deltas[part[0]:part[1]]...),
			filepath.Join(dir, fmt.Sprint(part)))
		if err != nil {
			t.Fatalf("versions %v: %v", part, err)
		}
		wantFiles(t, got, versions[part[1]])
	}
	whole := fold(t, fold(t, deltas[:60]...), fold(t, deltas[60:]...))
	if got, err := apply(t, first, whole, filepath.Join(dir, "folds")); err != nil {
		t.Error(err)
	} else {
		wantFiles(t, got, current)
	}
	var b bytes.Buffer
	if err := delta.Fold(t.Context(), &b, open(t, deltas[0]), open(t, deltas[2])); !errors.Is(err, delta.ErrBase) {
		t.Errorf("a fold with a gap: %v", err)
	}
}

// small is a chain of two deltas with chunks of every mode.
func small(t testing.TB) (base map[string][]byte, deltas [][]byte, versions []map[string][]byte) {
	r := rand.New(rand.NewPCG(5, 5))
	few, many, all := tensor(r, "few", "BF16", 400), tensor(r, "many", "U8", 64), tensor(r, "all", "BF16", 24)
	same := tensor(r, "same", "F32", 8)
	base = model{"m.safetensors": {few, many, all, same}}.files(t)
	current := base
	for range 2 {
		few, many, all = changed(r, few, 0.02), changed(r, many, 0.9), changed(r, all, 2)
		next := model{"m.safetensors": {few, many, all, same}}.files(t)
		deltas, versions = append(deltas, encode(t, current, next)), append(versions, next)
		current = next
	}
	return base, deltas, versions
}

// TestDamage: with one bit flipped, one byte taken out or the rest cut at every position, a chain
// ends in its exact bytes or in an error, and nothing appears.
func TestDamage(t *testing.T) {
	base, deltas, versions := small(t)
	dir := t.TempDir()
	n, refused := 0, 0
	try := func(damaged []byte) {
		n++
		out := filepath.Join(dir, fmt.Sprint(n))
		got, err := apply(t, versions[0], damaged, out)
		if err == nil {
			wantFiles(t, got, versions[1])
			return
		}
		refused++
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("error of another kind: %v", err)
		}
		if entries, _ := filepath.Glob(filepath.Join(dir, "."+filepath.Base(out)+"*")); len(entries) > 0 {
			t.Fatalf("it left %v", entries)
		}
	}
	for i := range deltas[1] {
		for bit := range 8 {
			damaged := slices.Clone(deltas[1])
			damaged[i] ^= 1 << bit
			try(damaged)
		}
		try(deltas[1][:i])
		try(slices.Delete(slices.Clone(deltas[1]), i, i+1))
	}
	if refused < n*95/100 {
		t.Errorf("%d of %d were refused", refused, n)
	}
	for name := range base { // a bit of the base
		for i := range base[name] {
			damaged := slices.Clone(base[name])
			damaged[i] ^= 1
			f, err := safetensors.NewFile(name, bytes.NewReader(damaged), int64(len(damaged)))
			if err != nil {
				continue
			}
			got, err := apply(t, map[string][]byte{name: damaged}, deltas[0], filepath.Join(dir, fmt.Sprint("base", i)))
			if err == nil {
				wantFiles(t, got, versions[0])
			} else if !errors.Is(err, delta.ErrBase) && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("byte %d of the base (data from %d): %v", i, f.DataOffset(), err)
			}
		}
	}
}

func TestAnotherBase(t *testing.T) {
	_, deltas, versions := small(t)
	if _, err := apply(t, versions[1], deltas[1], filepath.Join(t.TempDir(), "v")); !errors.Is(err, delta.ErrBase) {
		t.Errorf("a delta on what it leads to: %v", err)
	}
	var b bytes.Buffer
	if err := delta.Fold(t.Context(), &b, open(t, deltas[1]), open(t, deltas[0])); !errors.Is(err, delta.ErrBase) {
		t.Errorf("a fold in the wrong order: %v", err)
	}
	if r, err := open(t, deltas[1]).Reader(t.Context(), checkpoint(t, versions[1]), "m.safetensors"); err != nil {
		t.Error(err)
	} else if _, err := io.ReadAll(r); !errors.Is(err, delta.ErrBase) {
		t.Errorf("a file that is read from another base: %v", err)
	}
	if _, err := open(t, deltas[1]).Reader(t.Context(), checkpoint(t, versions[0]),
		"other.safetensors"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a file that the delta does not have: %v", err)
	}
	dir := t.TempDir()
	if _, err := apply(t, versions[0], deltas[1], dir); !errors.Is(err, storage.ErrExists) {
		t.Errorf("a folder that exists: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	base, deltas, versions := small(f)
	for _, d := range deltas {
		f.Add(d, byte(0))
		f.Add(d, byte(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, change byte) {
		if len(data) > 80 && change == 1 { // past the digest of the index
			foot := data[len(data)-40:]
			if stored := binary.LittleEndian.Uint64(foot); stored < uint64(len(data)-48) {
				delta.Reseal(data)
			}
		}
		got, err := apply(t, base, data, filepath.Join(t.TempDir(), "v"))
		if err == nil && bytes.Equal(data, deltas[0]) {
			wantFiles(t, got, versions[0])
		}
		if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, delta.ErrBase) {
			t.Fatalf("error of another kind: %v", err)
		}
	})
}
