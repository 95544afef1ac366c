package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// next is a file of tensors in which one element of 512 has changed.
func next(before weights.Content, step int) weights.Content {
	after := slices.Clone(before.Data)
	for i := 4096 + 4*step; i < len(after); i += 2048 {
		after[i]++
	}
	return weights.Content{Name: before.Name, Data: after}
}

// steps are versions 1 to n of a model of 1.5 MiB.
func steps(t *testing.T, s storage.Store, n int) (all []weights.Content) {
	t.Helper()
	all = []weights.Content{{}, tensors(t, 1, 3<<19)}
	publish(t, s, 1, all[1])
	for version := 2; version <= n; version++ {
		all = append(all, next(all[version-1], version))
		publish(t, s, int64(version), all[version], named("config.json", fmt.Sprint(version)))
	}
	return all
}

func fetched(t *testing.T, f *Folder, s storage.Store, version int64) *Version {
	t.Helper()
	v, err := f.Fetch(t.Context(), s, version, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDeltas: who follows a policy reads deltas, and one for each version that it has missed.
func TestDeltas(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	versions := steps(t, s, 6)
	f := open(t, at)
	fetched(t, f, s, 1)
	whole := s.read
	s.read = 0
	for _, c := range []struct {
		version int64
		deltas  int
	}{{2, 1}, {3, 1}, {6, 3}} {
		v := fetched(t, f, s, c.version)
		same(t, at, c.version, versions[c.version], named("config.json", fmt.Sprint(c.version)))
		if v.Deltas != c.deltas || v.Whole != "" {
			t.Errorf("version %d: %+v", c.version, v)
		}
	}
	if s.read > whole/10 {
		t.Errorf("%d bytes were read of 5 versions of %d", s.read, whole)
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) != 6 { // four versions, the link and the lock
		t.Errorf("%v are left, %v", entries, err)
	}
}

// TestDeltaOfNoUse: whatever is wrong with a delta or with the version that it begins at,
// the right bytes are read.
func TestDeltaOfNoUse(t *testing.T) {
	put := func(t *testing.T, s storage.Store, key string, data []byte) {
		t.Helper()
		if err := s.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
	described := func(t *testing.T, s storage.Store) *weights.Delta {
		t.Helper()
		d, err := weights.FetchDelta(t.Context(), s, "p", 3)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// redescribe lets the description name other bytes, as a faulty publisher would.
	redescribe := func(t *testing.T, s storage.Store, data []byte) {
		t.Helper()
		d := described(t, s)
		put(t, s, d.Key, data)
		d.SHA256, d.Size = storage.Digest(data), int64(len(data))
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, weights.DeltaKey("p", 3), text)
	}
	for name, c := range map[string]struct {
		harm  func(t *testing.T, s storage.Store, at string)
		whole string // "": nothing says so
	}{
		"a wrong bit": {func(t *testing.T, s storage.Store, _ string) {
			d := described(t, s)
			data, err := s.Get(t.Context(), d.Key)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			put(t, s, d.Key, data)
		}, "corrupt"},
		"no delta": {func(t *testing.T, s storage.Store, _ string) {
			if err := s.Delete(t.Context(), described(t, s).Key); err != nil {
				t.Fatal(err)
			}
		}, "not found"},
		"no description": {func(t *testing.T, s storage.Store, _ string) {
			if err := s.Delete(t.Context(), weights.DeltaKey("p", 3)); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"a description that is none": {func(t *testing.T, s storage.Store,
			_ string) {
			put(t, s, weights.DeltaKey("p", 3), []byte("{"))
		}, "corrupt"},
		"another file": {func(t *testing.T, s storage.Store,
			_ string) {
			redescribe(t, s, []byte("nothing of the kind"))
		}, "open delta"},
		"the delta of another version": {func(t *testing.T, s storage.Store, _ string) {
			d, err := weights.FetchDelta(t.Context(), s, "p", 2)
			if err != nil {
				t.Fatal(err)
			}
			data, err := s.Get(t.Context(), d.Key)
			if err != nil {
				t.Fatal(err)
			}
			redescribe(t, s, data)
		}, "the base is another one"},
		"a damaged base": {func(t *testing.T, _ storage.Store, at string) {
			harmed(t, filepath.Join(at, "v000002", "model.safetensors"), func(data []byte) { data[len(data)-3] ^= 1 })
		}, "another digest"},
		"a header of the base": {func(t *testing.T, _ storage.Store, at string) {
			harmed(t, filepath.Join(at, "v000002", "model.safetensors"), func(data []byte) { data[9] ^= 1 })
		}, "checkpoint"},
		"no base": {func(t *testing.T, _ storage.Store, at string) {
			if err := os.Remove(filepath.Join(at, "v000002", "model.safetensors")); err != nil {
				t.Fatal(err)
			}
		}, "checkpoint"},
		"a base of another manifest": {func(t *testing.T, _ storage.Store, at string) {
			harmed(t, filepath.Join(at, "v000002", aboutName), func(data []byte) {
				i := bytes.Index(data, []byte(`"digest": "`)) + 11
				data[i] = 'a' + ('f'-data[i])%6
			})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, at := newStore(t), t.TempDir()
			versions := steps(t, s, 3)
			f := open(t, at)
			fetched(t, f, s, 2)
			c.harm(t, s, at)
			v := fetched(t, f, s, 3)
			same(t, at, 3, versions[3], named("config.json", "3"))
			if v.Deltas != 0 || v.Read < int64(len(versions[3].Data)) {
				t.Errorf("%d deltas, %d bytes read", v.Deltas, v.Read)
			}
			if (v.Whole == "") != (c.whole == "") || !strings.Contains(v.Whole, c.whole) {
				t.Errorf("it says %q, want %q", v.Whole, c.whole)
			}
		})
	}
}

func harmed(t *testing.T, path string, harm func([]byte)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	harm(data)
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestAppliedFileIsVerified: what came of a delta is believed when it has its digest,
// also after an interruption.
func TestAppliedFileIsVerified(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	versions := steps(t, s, 3)
	f := open(t, at)
	fetched(t, f, s, 2)
	ends := errors.New("the process ends")
	s.fail = func(int) error { // the delta is one read, the settings the next
		if _, err := os.Stat(filepath.Join(f.marksPath(3), "model.safetensors")); err == nil {
			return ends
		}
		return nil
	}
	if _, err := f.Fetch(t.Context(), s, 3, "", nil); !errors.Is(err, ends) {
		t.Fatal(err)
	}
	harmed(t, filepath.Join(f.filesPath(3), "model.safetensors"), func(data []byte) { data[len(data)-3] ^= 1 })
	s.fail = nil
	fetched(t, f, s, 3)
	same(t, at, 3, versions[3], named("config.json", "3"))
}

// TestDeltasResumed: a fetch by deltas that ends after any read goes on where it was. A failure of
// the store costs no deltas.
func TestDeltasResumed(t *testing.T) {
	ends := errors.New("the process ends")
	s := newStore(t)
	versions := steps(t, s, 4)
	for after := 1; ; after++ {
		s.fail = nil
		at := t.TempDir()
		f := open(t, at)
		fetched(t, f, s, 1)
		f.piece = 256
		s.reads, s.read = 0, 0
		ctx, end := context.WithCancelCause(t.Context())
		s.fail = func(n int) error {
			if n >= after {
				end(ends)
				return ends
			}
			return nil
		}
		_, err := f.Fetch(ctx, s, 4, "", nil)
		if err == nil {
			if after < 8 {
				t.Errorf("it took %d reads", after)
			}
			return
		}
		same(t, at, 1, versions[1])
		f.Close()
		s.fail = nil
		again := open(t, at)
		again.piece = 256
		fetched(t, again, s, 4)
		same(t, at, 4, versions[4], named("config.json", "4"))
		if s.read > 3<<19/10 {
			t.Fatalf("ended after %d reads: %d bytes were read in all", after, s.read)
		}
	}
}

// TestUselessDeltasAreNotTriedAgain: a delta leads to other bytes than were published, and the
// fetch is interrupted again and again. It goes on with the files.
func TestUselessDeltasAreNotTriedAgain(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	versions := steps(t, s, 2)
	d, err := weights.FetchDelta(t.Context(), s, "p", 2)
	if err != nil {
		t.Fatal(err)
	}
	wrong := encoded(t, versions[1], next(versions[1], 7))
	d.SHA256, d.Size = storage.Digest(wrong), int64(len(wrong))
	text, err := json.Marshal(d)
	if err := errors.Join(err, s.Put(t.Context(), d.Key, wrong),
		s.Put(t.Context(), weights.DeltaKey("p", 2), text)); err != nil {
		t.Fatal(err)
	}
	f := open(t, at)
	fetched(t, f, s, 1)
	s.reads, s.read = 0, 0
	ends := errors.New("the process ends")
	for n := 1; ; n++ {
		s.reads = 0
		s.fail = func(reads int) error {
			if reads > 3 {
				return ends
			}
			return nil
		}
		if _, err := f.Fetch(t.Context(), s, 2, "", nil); err == nil {
			break
		} else if !errors.Is(err, ends) || n > 64 {
			t.Fatal(n, err)
		}
	}
	same(t, at, 2, versions[2], named("config.json", "2"))
	if s.read > 3<<19+3<<19/10 {
		t.Errorf("%d bytes were read of a version of %d", s.read, 3<<19)
	}
}

// TestDeltaOfOtherFiles: a delta that leads to more than the version has is not applied.
func TestDeltaOfOtherFiles(t *testing.T) {
	model := tensors(t, 1, 64)
	data := model.Data
	text := encoded(t, weights.Content{}, model)
	d, err := delta.Open(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		size int
		fits bool
	}{{"model.safetensors", len(data), true}, {"model.safetensors", len(data) - 1, false},
		{"other.safetensors", len(data), false}} {
		err := fits(d, &Version{Files: []weights.File{{Name: c.name, Ref: storage.Ref{Size: int64(c.size)}}}})
		if (err == nil) != c.fits || err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s of %d bytes: %v", c.name, c.size, err)
		}
	}
}

// encoded is the delta between two files of tensors, of which the first may be none.
func encoded(t *testing.T, from, to weights.Content) []byte {
	t.Helper()
	var checkpoints []*safetensors.Checkpoint
	for _, content := range []weights.Content{from, to} {
		var files []*safetensors.File
		if content.Name != "" {
			file, err := safetensors.NewFile(content.Name, bytes.NewReader(content.Data), int64(len(content.Data)))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		c, err := safetensors.NewCheckpoint(files...)
		if err != nil {
			t.Fatal(err)
		}
		checkpoints = append(checkpoints, c)
	}
	var b bytes.Buffer
	if err := delta.Encode(t.Context(), &b, checkpoints[0], checkpoints[1]); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
