package weights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

const (
	// minDelta is how many bytes of tensors' files must have changed for a
	// delta to be worth its making.
	minDelta = 1 << 20
	// deltaTime bounds how long a version waits for its delta.
	deltaTime = 10 * time.Minute
)

// maxDelta is the size in bytes up to which a delta is worth its reading in place of so many.
func maxDelta(changed int64) int64 { return changed / 10 * 7 }

// Delta tells how a version's files of tensors follow from those of an older one, all of them, also
// those that did not change. Nobody has to trust it: what comes of it counts when it has the
// digests that the manifest names.
type Delta struct {
	Base         int64  `json:"base"`          // the older version
	BaseManifest string `json:"base_manifest"` // the SHA-256 of its manifest
	storage.Ref         // of the delta; see package delta
}

// DeltaKey is the key of the object that describes a version's Delta:
// weights/<policy>/v000012/delta.json.
func DeltaKey(policy string, version int64) string { return folder(policy, version) + "/delta.json" }

// deltaObject is where a delta lies that the publisher made: both versions are written once, and
// what is encoded follows from them. A trainer's lies at its FileKey.
func deltaObject(policy string, version, base int64) string {
	return fmt.Sprintf("%s/from-v%06d%s", folder(policy, version), base, delta.Extension)
}

// FetchDelta reads what describes a version's delta; storage.ErrNotFound when it has none.
func FetchDelta(ctx context.Context, s storage.Store, policy string, version int64) (*Delta, error) {
	d, err := fetchDelta(ctx, s, policy, version)
	if err != nil {
		return nil, fmt.Errorf("delta of policy %s, version %d: %w", policy, version, err)
	}
	return d, nil
}

func fetchDelta(ctx context.Context, s storage.Store, policy string, version int64) (*Delta, error) {
	if err := checkNames(policy, version); err != nil {
		return nil, err
	}
	data, _, err := s.Load(ctx, DeltaKey(policy, version))
	if err != nil {
		return nil, err
	}
	return decodeDelta(data, policy, version)
}

func decodeDelta(data []byte, policy string, version int64) (*Delta, error) {
	var d Delta
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, corrupt("%w", err)
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	placed := d.Key == deltaObject(policy, version, d.Base) || d.Key == FileKey(policy, d.SHA256)
	if d.Base < 0 || d.Base >= version || !placed || len(d.BaseManifest) != 2*sha256.Size {
		return nil, corrupt("it names version %d and %s", d.Base, d.Key)
	}
	return &d, nil
}

// addDelta gives a version whose manifest is written the delta from the version that is current;
// nil where none is worth it. One that the trainer made stays where it is, and costs nothing: so
// it may be of small files.
func addDelta(ctx context.Context, s storage.Store, next *Manifest, made *MadeDelta) (*Delta, error) {
	if made == nil && changedBytes(next, nil) < minDelta {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deltaTime)
	defer cancel()
	if d, err := fetchDelta(ctx, s, next.Policy, next.Version); !errors.Is(err, storage.ErrNotFound) {
		return d, err
	}
	present, _, err := loadPointer(ctx, s, next.Policy)
	if errors.Is(err, storage.ErrNotFound) || err == nil && present.Version >= next.Version {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	base, err := fetchManifest(ctx, s, next.Policy, present.Version)
	if err != nil {
		return nil, err
	}
	changed := changedBytes(next, base)
	d := &Delta{Base: base.Version, BaseManifest: present.Manifest.SHA256}
	switch {
	case made != nil && made.Base == base.Version && made.Size <= maxDelta(changed):
		d.Ref, err = admit(ctx, s, next.Policy, File{Name: "a trainer's" + delta.Extension, Ref: made.Ref},
			&inspection{})
	case changed < minDelta:
		return nil, nil
	default:
		d.Ref, err = putDelta(ctx, s, base, next, maxDelta(changed))
	}
	if err != nil || d.Size == 0 {
		return nil, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	err = s.PutIfAbsent(ctx, DeltaKey(next.Policy, next.Version), append(data, '\n'))
	if errors.Is(err, storage.ErrExists) { // another publisher was faster
		return fetchDelta(ctx, s, next.Policy, next.Version)
	}
	return d, err
}

// changedBytes is the size of a version's files of tensors that base, which may be nil, has not.
func changedBytes(next, base *Manifest) (sum int64) {
	known := map[string]bool{}
	if base != nil {
		for _, file := range base.Files {
			known[file.SHA256] = true
		}
	}
	for _, file := range next.Files {
		if path.Ext(file.Name) == tensorsExtension && !known[file.SHA256] {
			sum += file.Size
		}
	}
	return sum
}

// putDelta encodes into the store, as a stream. A delta above limit is not written, and has no Ref.
func putDelta(ctx context.Context, s storage.Store, base, next *Manifest, limit int64) (ref storage.Ref, err error) {
	from, err := openTensors(ctx, s, base)
	defer func() { err = errors.Join(err, from.close()) }()
	if err != nil {
		return ref, fmt.Errorf("version %d: %w", base.Version, err)
	}
	to, err := openTensors(ctx, s, next)
	defer func() { err = errors.Join(err, to.close()) }()
	if err != nil {
		return ref, err
	}
	read, write := io.Pipe()
	encoded := make(chan struct{})
	go func() {
		defer close(encoded)
		write.CloseWithError(delta.Encode(ctx, write, from.Checkpoint, to.Checkpoint))
	}()
	m := &measured{Reader: read, digest: sha256.New(), limit: limit}
	key := deltaObject(next.Policy, next.Version, base.Version)
	err = s.PutReader(ctx, key, m, -1)
	read.Close() // so that the encoder ends, too
	<-encoded
	if m.size > limit {
		return ref, nil
	}
	return storage.Ref{Key: key, SHA256: hex.EncodeToString(m.digest.Sum(nil)), Size: m.size}, err
}

// measured measures what is read, up to a limit.
type measured struct {
	io.Reader
	digest      hash.Hash
	size, limit int64
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.digest.Write(p[:n])
	if m.size += int64(n); m.size > m.limit {
		return 0, fmt.Errorf("%w: the delta has more than %d bytes", storage.ErrTooLarge, m.limit)
	}
	return n, err
}

// stored is a version's tensors in a store.
type stored struct {
	*safetensors.Checkpoint
	objects []storage.Object
}

func openTensors(ctx context.Context, s storage.Store, m *Manifest) (opened stored, err error) {
	var files []*safetensors.File
	for _, file := range m.Files {
		if path.Ext(file.Name) != tensorsExtension {
			continue
		}
		object, err := storage.OpenBlob(ctx, s, file.Ref)
		if err != nil {
			return opened, fmt.Errorf("file %s: %w", file.Name, err)
		}
		opened.objects = append(opened.objects, object)
		header, err := safetensors.Validate(object, file.Size, maxPublishedHeader)
		if err != nil {
			return opened, fmt.Errorf("file %s: %w", file.Name, err)
		}
		files = append(files, &safetensors.File{Name: file.Name, Size: file.Size, Header: header, ReaderAt: object})
	}
	opened.Checkpoint, err = safetensors.NewCheckpoint(files...)
	return opened, err
}

func (s stored) close() (err error) {
	for _, object := range s.objects {
		err = errors.Join(err, object.Close())
	}
	return err
}
