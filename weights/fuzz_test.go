package weights

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// own reports whether an object is of the policy: nobody who reads its
// versions may be led elsewhere.
func own(key string) bool {
	return storage.ValidateKey(key) == nil && strings.HasPrefix(key, "weights/p/")
}

// FuzzManifest: a manifest names objects of its policy alone, with sizes
// that add up, or is refused.
func FuzzManifest(f *testing.F) {
	digest := strings.Repeat("a", 64)
	for _, file := range []File{
		{Name: "model.safetensors", Ref: storage.Ref{Key: FileKey("p", digest), SHA256: digest, Size: 1}},
	} {
		data, err := (&Manifest{Policy: "p", Version: 7, Format: FormatFull, Base: -1, Files: []File{file}}).encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data, "p", 7)
		if err != nil {
			if !storage.IsUnusable(err) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := decodeManifest(again, "p", 7)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := read.encode(); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("written and read it is another one: %v", err)
		}
		total := int64(0)
		for _, file := range m.Files {
			if total += file.Size; file.Size < 0 || total > MaxVersion || !own(file.Key) ||
				strings.ContainsAny(file.Name, "/\\") {
				t.Fatalf("%+v", file)
			}
		}
	})
}

// FuzzDelta: what describes a delta names an object of its policy alone and an
// older version, or is refused.
func FuzzDelta(f *testing.F) {
	digest := strings.Repeat("a", 64)
	for _, key := range []string{FileKey("p", digest), deltaObject("p", 7, 6)} {
		data, err := json.Marshal(Delta{Base: 6, BaseManifest: digest,
			Ref: storage.Ref{Key: key, SHA256: digest, Size: 1}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decodeDelta(data, "p", 7)
		switch {
		case err != nil && !storage.IsUnusable(err):
			t.Fatalf("an error of another kind: %v", err)
		case err == nil && (d.Base < 0 || d.Base > 6 || !own(d.Key) || d.Size < 0):
			t.Fatalf("%+v", d)
		}
	})
}
