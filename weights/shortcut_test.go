package weights_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// trained are the files of a model of 1.5 MiB after so many steps, each of which
// changes one element of 64.
func trained(t *testing.T, steps int) []weights.Content {
	t.Helper()
	values := make([]byte, 3<<19)
	source := rand.New(rand.NewPCG(1, 1))
	for i := range values {
		values[i] = byte(source.Uint32())
		if i%2 == 1 {
			values[i] &^= 0x40 // so that each is a number
		}
	}
	for range steps {
		for range len(values) / 2 / 64 {
			values[2*source.IntN(len(values)/2)]++
		}
	}
	var model bytes.Buffer
	if err := safetensors.Write(&model, []safetensors.Data{{Name: "w", Dtype: safetensors.BF16,
		Shape: []int64{int64(len(values) / 2)}, Bytes: values}}, nil); err != nil {
		t.Fatal(err)
	}
	return []weights.Content{{Name: "model.safetensors", Data: model.Bytes()},
		{Name: "config.json", Data: fmt.Appendf(nil, `{"steps": %d}`, steps)}}
}

func publishTrained(t *testing.T, s storage.Store, version int64, files []weights.Content) *weights.Published {
	t.Helper()
	published, err := weights.Publish(t.Context(), s, "repair", version, files...)
	if err != nil {
		t.Fatal(err)
	}
	return published
}

// TestDeltas: a version gets a delta where one is worth it, and is published whatever comes of it.
func TestDeltas(t *testing.T) {
	s := store(t)
	first := publishTrained(t, s, 1, trained(t, 0))
	if first.Delta != nil || first.NoDelta != nil {
		t.Errorf("the first version: %+v, %v", first.Delta, first.NoDelta)
	}
	second := publishTrained(t, s, 2, trained(t, 1))
	d := second.Delta
	if second.NoDelta != nil || d == nil || d.Base != 1 || d.BaseManifest != first.Ref.SHA256 || d.Size > 3<<19/10 {
		t.Fatalf("the second: %+v, %v", d, second.NoDelta)
	}
	if err := storage.VerifyBlob(t.Context(), s, d.Ref); err != nil {
		t.Error(err)
	}
	if again, err := weights.FetchDelta(t.Context(), s, "repair", 2); err != nil || *again != *d {
		t.Errorf("it is described as %+v, %v", again, err)
	}
	if again := publishTrained(t, s, 2, trained(t, 1)); again.Delta == nil || *again.Delta != *d ||
		again.Ref != second.Ref {
		t.Errorf("published again: %+v, %v", again.Delta, again.NoDelta)
	}
	settings := trained(t, 1)
	settings[1].Data = []byte("{}")
	for version, files := range map[int64][]weights.Content{3: settings,
		4: {{Name: "model.safetensors", Data: small(t)}}} {
		if got := publishTrained(t, s, version, files); got.Delta != nil || got.NoDelta != nil {
			t.Errorf("version %d has %+v, %v", version, got.Delta, got.NoDelta)
		}
	}
	publishTrained(t, s, 5, trained(t, 0))
	other := trained(t, 0)
	source := rand.New(rand.NewPCG(2, 2))
	values := other[0].Data[len(other[0].Data)-3<<19:]
	for i := range values {
		values[i] = byte(source.Uint32())
		if i%2 == 1 {
			values[i] &^= 0x40 // so that each is a number
		}
	}
	if got := publishTrained(t, s, 6, other); got.Delta != nil || got.NoDelta != nil {
		t.Errorf("other weights: %+v, %v", got.Delta, got.NoDelta)
	}
	for info, err := range s.List(t.Context(), "weights/repair/v000006/") {
		if err != nil || !strings.HasSuffix(info.Key, "/manifest.json") {
			t.Errorf("%s is there (%v)", info.Key, err)
		}
	}
}

func small(t *testing.T) []byte { return files(t, 1)[0].Data }

// TestNoDelta: a base that cannot be read costs the delta alone.
func TestNoDelta(t *testing.T) {
	s := store(t)
	first := publishTrained(t, s, 1, trained(t, 0))
	if err := s.Put(t.Context(), first.Manifest.Files[0].Key, []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	second := publishTrained(t, s, 2, trained(t, 1))
	if second.Delta != nil || !errors.Is(second.NoDelta, storage.ErrCorrupt) || second.Current != 2 {
		t.Errorf("%+v", second)
	}
	if err := s.Delete(t.Context(), second.Manifest.Files[0].Key); err != nil {
		t.Fatal(err)
	}
	if third := publishTrained(t, s, 3, trained(t, 2)); third.Delta != nil ||
		!errors.Is(third.NoDelta, storage.ErrNotFound) || third.Current != 3 {
		t.Errorf("%+v", third)
	}
	for _, text := range []string{"", "null", `{"base":7}`,
		`{"base":0,"base_manifest":"","key":"weights/repair/current","sha256":"","size":1}`} {
		if err := s.Put(t.Context(), weights.DeltaKey("repair", 3), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := weights.FetchDelta(t.Context(), s, "repair", 3); !storage.IsUnusable(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMadeDeltaIsVerified: a trainer's delta of other bytes than it names does not become the
// version's, which is whole without it.
func TestMadeDeltaIsVerified(t *testing.T) {
	s := store(t)
	publishTrained(t, s, 1, trained(t, 0))
	var files []weights.File
	for _, content := range trained(t, 1) {
		ref, err := weights.Upload(t.Context(), s, "repair", bytes.NewReader(content.Data), int64(len(content.Data)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, weights.File{Name: content.Name, Ref: ref})
	}
	digest := storage.Digest([]byte("a delta"))
	made := &weights.MadeDelta{Base: 1, Ref: storage.Ref{Key: weights.FileKey("repair", digest),
		SHA256: digest, Size: 7}}
	if err := s.Put(t.Context(), made.Key, []byte("another")); err != nil {
		t.Fatal(err)
	}
	published, err := weights.PublishFrom(t.Context(), s, "repair", 2, files, made)
	if err != nil || published.Delta != nil || !errors.Is(published.NoDelta, storage.ErrCorrupt) ||
		published.Current != 2 {
		t.Errorf("%+v, %v", published, err)
	}
}

// TestDeltaCrashAtEveryWrite: a publisher that dies at any write leaves the version before, and the
// next one makes the objects that an undisturbed one makes.
func TestDeltaCrashAtEveryWrite(t *testing.T) {
	contents := func(s storage.Store) (all []string) {
		for info, err := range s.List(t.Context(), "weights/") {
			if err != nil {
				t.Fatal(err)
			}
			data, err := s.Get(t.Context(), info.Key)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, info.Key+" "+storage.Digest(data))
		}
		return all
	}
	undisturbed := store(t)
	publishTrained(t, undisturbed, 1, trained(t, 0))
	publishTrained(t, undisturbed, 2, trained(t, 1))
	want := contents(undisturbed)
	writes := 0
	for ; ; writes++ {
		s := store(t)
		publishTrained(t, s, 1, trained(t, 0))
		_, err := weights.Publish(t.Context(), &stopping{Store: s, left: writes}, "repair", 2, trained(t, 1)...)
		if err == nil {
			break
		}
		wantCurrent(t, s, 1)
		publishTrained(t, s, 2, trained(t, 1))
		wantCurrent(t, s, 2)
		if got := contents(s); !slices.Equal(got, want) {
			t.Errorf("after %d writes:\n%q\nwant\n%q", writes, got, want)
		}
	}
	if writes != 6 {
		t.Errorf("%d writes, want 6: two files, manifest, delta, its description, pointer", writes)
	}
}

// TestMadeDeltaCrashAtEveryWrite: the same of a version whose trainer uploaded a delta and no file
// of tensors; two publishers at once finish what a dead one began.
func TestMadeDeltaCrashAtEveryWrite(t *testing.T) {
	next, elsewhere := trained(t, 1), store(t)
	publishTrained(t, elsewhere, 1, trained(t, 0))
	d, err := elsewhere.Get(t.Context(), publishTrained(t, elsewhere, 2, next).Delta.Key)
	if err != nil {
		t.Fatal(err)
	}
	upload := func(s storage.Store, data []byte) storage.Ref {
		t.Helper()
		ref, err := weights.Upload(t.Context(), s, "repair", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	digest := storage.Digest(next[0].Data)
	model := weights.File{Name: next[0].Name, Ref: storage.Ref{Key: weights.FileKey("repair", digest), SHA256: digest,
		Size: int64(len(next[0].Data))}}
	writes := 0
	for ; ; writes++ {
		s := store(t)
		publishTrained(t, s, 1, trained(t, 0))
		made := weights.MadeDelta{Base: 1, Ref: upload(s, d)}
		files := []weights.File{model, {Name: next[1].Name, Ref: upload(s, next[1].Data)}}
		publish := func(s storage.Store) (*weights.Published, error) {
			if err := weights.Rebuild(t.Context(), s, "repair", files, made); err != nil {
				return nil, err
			}
			return weights.PublishFrom(t.Context(), s, "repair", 2, files, &made)
		}
		first, err := publish(&stopping{Store: s, left: writes})
		if err == nil && first.NoDelta == nil {
			break
		}
		if current, _, err := weights.Current(t.Context(), s, "repair"); err != nil || current != 1 {
			t.Errorf("after %d writes version %d is current: %v", writes, current, err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if published, err := publish(s); err != nil || published.Delta == nil ||
					published.Delta.Ref != made.Ref {
					t.Errorf("after %d writes: %+v, %v", writes, published, err)
				}
			})
		}
		both.Wait()
		wantCurrent(t, s, 2)
		if _, contents, err := weights.Fetch(t.Context(), s, "repair", 2); err != nil ||
			!bytes.Equal(contents[0].Data, next[0].Data) {
			t.Errorf("after %d writes: %v", writes, err)
		}
	}
	if writes != 4 {
		t.Errorf("%d writes, want 4: the file, manifest, the delta's description, pointer", writes)
	}
}
