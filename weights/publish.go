package weights

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// swapAttempts bounds how often a publisher meets another one at the pointer.
const swapAttempts = 32

// Content is a file with its bytes.
type Content struct {
	Name string // model.safetensors, config.json, …
	Data []byte
}

// Published says what Publish has done.
type Published struct {
	Manifest *Manifest
	Ref      storage.Ref // of the manifest
	// Current is the policy's current version afterwards: the one published, or a later one that was there already.
	Current int64
}

// Publish makes a policy version visible, in an order in which readers never see a part of it: files under keys of their own
// content, the manifest that lists them, the pointer to the current version. The pointer moves forward only.
//
// Files whose name ends in .safetensors are verified in their structure, and there must be one.
//
// Repeating it with the same files is safe and finishes what was interrupted. Other files under a version that was published are
// refused: storage.ErrExists.
func Publish(ctx context.Context, s storage.Store, policy string, version int64, files ...Content) (*Published, error) {
	published, err := publish(ctx, s, policy, version, files)
	if err != nil {
		return nil, fmt.Errorf("publish policy %s, version %d: %w", policy, version, err)
	}
	return published, nil
}

func publish(ctx context.Context, s storage.Store, policy string, version int64, files []Content) (*Published, error) {
	if err := Check(policy, version, files); err != nil {
		return nil, err
	}
	m := &Manifest{Policy: policy, Version: version, Format: FormatFull, Base: -1}
	for _, file := range files {
		extension := path.Ext(file.Name)
		key := folder(policy, version) + "/" + strings.TrimSuffix(file.Name, extension)
		ref, err := storage.PutNamed(ctx, s, key, extension, file.Data)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file.Name, err)
		}
		m.Files = append(m.Files, File{Name: file.Name, Ref: ref})
	}
	ref, err := putManifest(ctx, s, m)
	if err != nil {
		return nil, err
	}
	current, err := advance(ctx, s, policy, pointer{Version: version, Manifest: ref})
	if err != nil {
		return nil, fmt.Errorf("move the pointer: %w", err)
	}
	return &Published{Manifest: m, Ref: ref, Current: current}, nil
}

// Check verifies names and structure of what is to be published; its errors lie in the files, not in the store.
func Check(policy string, version int64, files []Content) error {
	if err := checkNames(policy, version); err != nil {
		return err
	}
	return checkFiles(files)
}

// checkFiles verifies names and structure before anything is written.
func checkFiles(files []Content) error {
	if len(files) > maxFiles {
		return fmt.Errorf("%d files (limit %d)", len(files), maxFiles)
	}
	seen, tensors := map[string]bool{}, false
	for _, file := range files {
		extension := path.Ext(file.Name)
		if !fileName.MatchString(file.Name) || extension == "" || extension == "." || file.Name == manifestName || seen[file.Name] {
			return fmt.Errorf("file name %.140q: want letters, digits and ._-, with an extension, once, and not %s", file.Name, manifestName)
		}
		seen[file.Name] = true
		if extension != ".safetensors" {
			continue
		}
		tensors = true
		if _, err := Validate(bytes.NewReader(file.Data), int64(len(file.Data)), 0); err != nil {
			return fmt.Errorf("file %s: %w", file.Name, err)
		}
	}
	if !tensors {
		return errNoTensors
	}
	return nil
}

func putManifest(ctx context.Context, s storage.Store, m *Manifest) (storage.Ref, error) {
	data, err := m.encode()
	if err != nil {
		return storage.Ref{}, err
	}
	ref := storage.Ref{Key: ManifestKey(m.Policy, m.Version), SHA256: storage.Digest(data), Size: int64(len(data))}
	if len(data) > storage.MaxPointer {
		return storage.Ref{}, fmt.Errorf("manifest: %w: %d bytes (limit %d)", storage.ErrTooLarge, len(data), storage.MaxPointer)
	}
	err = s.PutIfAbsent(ctx, ref.Key, data)
	if !errors.Is(err, storage.ErrExists) {
		return ref, err
	}
	present, _, loadErr := s.Load(ctx, ref.Key)
	if loadErr != nil {
		return storage.Ref{}, loadErr
	}
	if !bytes.Equal(present, data) {
		return storage.Ref{}, fmt.Errorf("the version was published before with other content: %w", err)
	}
	return ref, nil
}

// advance moves the pointer to a version unless it is there or further already, and gives the version that it names then.
func advance(ctx context.Context, s storage.Store, policy string, next pointer) (int64, error) {
	data, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	for range swapAttempts {
		present, etag, err := loadPointer(ctx, s, policy)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			etag = ""
		case err != nil:
			return 0, err
		case present.Version > next.Version:
			return present.Version, nil
		case present.Version == next.Version && present.Manifest == next.Manifest:
			return present.Version, nil
		case present.Version == next.Version:
			return 0, corrupt("it names another manifest of version %d", next.Version)
		}
		_, err = s.CompareAndSwap(ctx, PointerKey(policy), etag, data)
		if !errors.Is(err, storage.ErrConflict) {
			return next.Version, err
		}
	}
	return 0, fmt.Errorf("%d attempts: %w", swapAttempts, storage.ErrConflict)
}

// Fetch reads the files of a version and verifies their digests and, of tensors, their structure. storage.ErrNotFound
// when the version was not published; storage.ErrCorrupt when the bytes are others.
func Fetch(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, []Content, error) {
	m, err := FetchManifest(ctx, s, policy, version)
	if err != nil {
		return nil, nil, err
	}
	files := make([]Content, len(m.Files))
	for i, file := range m.Files {
		data, err := storage.GetBlob(ctx, s, file.Ref)
		if err != nil {
			return nil, nil, fmt.Errorf("fetch policy %s, version %d: %w", policy, version, err)
		}
		files[i] = Content{Name: file.Name, Data: data}
	}
	if err := checkFiles(files); err != nil {
		return nil, nil, fmt.Errorf("fetch policy %s, version %d: %w", policy, version, err)
	}
	return m, files, nil
}
