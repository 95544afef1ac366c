package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// Prefix begins the keys of layers' manifests in the store.
const Prefix = "agents/"

// maxManifest bounds a manifest, in bytes.
const maxManifest = 256 << 10

// manifestVersion is that of the manifest's format.
const manifestVersion = 1

// Layer is the manifest of an installed agent. Its digest, the SHA-256 of its JSON, names the layer
// with all that it holds.
type Layer struct {
	Version  int     `json:"version"`
	Profile  Profile `json:"profile"`
	Platform string  `json:"platform"` // linux/amd64
	// Glibc is the version of the GNU C library that the image must have at least, "2.28"; "" for
	// any image.
	Glibc string `json:"glibc,omitempty"`
	// Interpreter is what the layer brings along: "node 24.22.3", "python 3.12.1", or nothing.
	Interpreter string      `json:"interpreter,omitempty"`
	Files       int         `json:"files"`
	Bytes       int64       `json:"bytes"` // of the files' contents
	Tree        storage.Ref `json:"tree"`  // the tar of the folder
}

// Stored is a layer in the store.
type Stored struct {
	Digest string    `json:"digest"`
	Built  time.Time `json:"built"` // or built again
	// Damaged says why the manifest cannot be read; then the layer is empty.
	Damaged string `json:"damaged,omitempty"`
	Layer
}

// ErrNoLayer says that the store has no such layer.
var ErrNoLayer = errors.New("there is no such layer")

// Valid reports whether a text is a layer's digest.
func Valid(digest string) bool {
	sum, err := hex.DecodeString(digest)
	return err == nil && len(sum) == 32 && strings.ToLower(digest) == digest
}

func manifestKey(digest string) string { return Prefix + digest + ".json" }

// digestOf is the digest in the key of a manifest.
func digestOf(key string) (string, bool) {
	digest, found := strings.CutSuffix(strings.TrimPrefix(key, Prefix), ".json")
	return digest, found && Valid(digest) && key == manifestKey(digest)
}

// put stores a manifest, whose tree is in the store.
func put(ctx context.Context, store storage.Store, layer Layer) (digest string, err error) {
	text, err := json.Marshal(layer)
	if err != nil {
		return "", err
	}
	ref, err := storage.PutKeyedFrom(ctx, store, manifestKey, bytes.NewReader(text), int64(len(text)))
	return ref.SHA256, err
}

// Load reads a layer's manifest: ErrNoLayer, or storage.ErrCorrupt where it is not what its digest
// says.
func Load(ctx context.Context, store storage.Store, digest string) (Layer, error) {
	if !Valid(digest) {
		return Layer{}, fmt.Errorf("layer %.80q: want its digest, 64 hexadecimal digits", digest)
	}
	stored, err := load(ctx, store, digest)
	return stored.Layer, err
}

func load(ctx context.Context, store storage.Store, digest string) (Stored, error) {
	key := manifestKey(digest)
	info, err := store.Stat(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return Stored{}, fmt.Errorf("layer %s: %w: `rondo agents list` lists them, `rondo agents build` builds one",
			digest, ErrNoLayer)
	}
	if err != nil {
		return Stored{}, err
	}
	if info.Size > maxManifest {
		return Stored{}, fmt.Errorf("%s: %w: a manifest of %d bytes", key, storage.ErrCorrupt, info.Size)
	}
	text, err := storage.GetBlob(ctx, store, storage.Ref{Key: key, SHA256: digest, Size: info.Size})
	if err != nil {
		return Stored{}, err
	}
	var layer Layer
	err = json.Unmarshal(text, &layer)
	if err == nil && layer.Version != manifestVersion {
		err = fmt.Errorf("version %d of the manifest: this program reads version %d", layer.Version, manifestVersion)
	}
	if err == nil {
		err = layer.Tree.Validate()
	}
	if err != nil {
		return Stored{}, fmt.Errorf("%s: %w: %w", key, storage.ErrCorrupt, err)
	}
	return Stored{Digest: digest, Built: info.Modified, Layer: layer}, nil
}

// List gives all layers of a store, by name, the newest of each first. Damaged ones are the last.
func List(ctx context.Context, store storage.Store) (all []Stored, err error) {
	for info, err := range store.List(ctx, Prefix) {
		if err != nil {
			return nil, err
		}
		digest, ours := digestOf(info.Key)
		if !ours {
			continue
		}
		found, err := load(ctx, store, digest)
		switch {
		case errors.Is(err, ErrNoLayer): // removed meanwhile
			continue
		case errors.Is(err, storage.ErrCorrupt):
			found = Stored{Digest: digest, Built: info.Modified, Damaged: err.Error()}
		case err != nil:
			return nil, err
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Stored) int {
		if a, b := a.Damaged != "", b.Damaged != ""; a != b {
			return map[bool]int{true: 1, false: -1}[a]
		}
		return cmp.Or(cmp.Compare(a.Profile.Name, b.Profile.Name), b.Built.Compare(a.Built), cmp.Compare(a.Digest,
			b.Digest))
	})
	return all, nil
}

// leastDigits are those of a digest that name a layer where it is shortened.
const leastDigits = 6

// Find gives the layer of a digest, of its first digits, or the newest one of NAME or NAME@VERSION.
func Find(ctx context.Context, store storage.Store, text string) (Stored, error) {
	if Valid(text) { // other layers are not looked at
		return load(ctx, store, text)
	}
	all, err := List(ctx, store)
	if err != nil {
		return Stored{}, err
	}
	name, version, _ := strings.Cut(text, "@")
	var digits []Stored
	for _, s := range all {
		if s.Damaged == "" && s.Profile.Name == name && (version == "" || s.Profile.Install.Version == version) {
			return s, nil
		}
		if len(text) >= leastDigits && strings.HasPrefix(s.Digest, text) {
			digits = append(digits, s)
		}
	}
	switch len(digits) {
	case 0:
		return Stored{}, fmt.Errorf("layer %.80q: %w: `rondo agents list` lists them, `rondo agents build` builds one",
			text, ErrNoLayer)
	case 1:
		return digits[0], digits[0].err()
	}
	return Stored{}, fmt.Errorf("%d layers begin with %s: give more digits", len(digits), text)
}

// err is a damaged layer's.
func (s Stored) err() error {
	if s.Damaged == "" {
		return nil
	}
	return fmt.Errorf("layer %s is damaged (`rondo agents remove %s` removes it): %s: %w", s.Digest, s.Digest,
		s.Damaged, storage.ErrCorrupt)
}

// Remove takes a layer out of a store. The garbage collector deletes what only it held.
func Remove(ctx context.Context, store storage.Store, digest string) error {
	if _, err := Load(ctx, store, digest); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	return store.Delete(ctx, manifestKey(digest))
}

// IsManifest reports whether a key is one of a layer's manifest.
func IsManifest(key string) bool {
	_, ours := digestOf(key)
	return ours
}

// Reach calls reach with the keys of all objects that the layers of a store hold.
func Reach(ctx context.Context, store storage.Store, reach func(key string) error) error {
	all, err := List(ctx, store)
	if err != nil {
		return fmt.Errorf("the layers of agents cannot be listed: %w", err)
	}
	for _, s := range all {
		if err := s.err(); err != nil {
			return err
		}
		pieces, err := parts.References(ctx, store, s.Tree)
		if err != nil {
			return fmt.Errorf("layer %s of the agent %s: %w (`rondo agents remove %s` removes it)", s.Digest,
				s.Profile.Name, err, s.Digest)
		}
		for _, ref := range append(pieces, s.Tree) {
			if err := reach(ref.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
