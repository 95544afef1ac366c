package weights

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
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
	// Current is the policy's current version afterwards: the one published, or a later
	// one that was there already.
	Current int64
	// Delta leads to the version from the one that was current; nil for none. NoDelta says what
	// went wrong with it: the version is whole without it.
	Delta   *Delta
	NoDelta error
}

// Publish makes a policy version visible, in an order in which readers never see a part of it:
// files under keys of their own content, the manifest that lists them, a delta where one is worth
// it, the pointer to the current version. The pointer moves forward only.
//
// The files together must be a whole model of finite numbers: ErrStructure and ErrUnfit.
//
// Repeating it with the same files is safe and finishes what was interrupted. Other files under a
// version that was published are refused: storage.ErrExists.
func Publish(ctx context.Context, s storage.Store, policy string, version int64, files ...Content) (*Published, error) {
	published, err := publishContents(ctx, s, policy, version, files)
	if err != nil {
		return nil, fmt.Errorf("publish policy %s, version %d: %w", policy, version, err)
	}
	return published, nil
}

func publishContents(ctx context.Context, s storage.Store, policy string, version int64,
	contents []Content) (*Published, error) {
	files := make([]File, len(contents))
	for i, c := range contents {
		files[i].Name = c.Name
	}
	if err := checkFileNames(policy, version, files); err != nil {
		return nil, err
	}
	if err := inspect(contents); err != nil { // before anything is written
		return nil, err
	}
	for i, c := range contents {
		var err error
		if files[i].Ref, err = Upload(ctx, s, policy, bytes.NewReader(c.Data), int64(len(c.Data))); err != nil {
			return nil, fmt.Errorf("file %s: %w", c.Name, err)
		}
	}
	return publish(ctx, s, policy, version, files, nil)
}

// inspect judges files in memory.
func inspect(contents []Content) error {
	var seen inspection
	for _, c := range contents {
		sink, done, err := seen.begin(c.Name, bytes.NewReader(c.Data), int64(len(c.Data)))
		if err != nil {
			return fmt.Errorf("file %s: %w", c.Name, err)
		}
		if sink != nil {
			_, _ = sink.Write(c.Data) // into memory
			done()
		}
	}
	_, err := seen.judge()
	return err
}

// PublishFrom is Publish of files that lie in the store already, of any size: it reads each once,
// in pieces, for its digest and structure. The manifest names those that lie at their FileKey where
// they are; others are copied there. An error that is in a file is a *FileError. What was copied by
// then is no part of any version, and garbage. The tensors must have the names, types and shapes of
// the version that is current, or it is ErrUnfit.
//
// made, which may be nil, becomes the version's delta if its base is the version that is current.
// allow has AllowNotFinite and its like.
func PublishFrom(ctx context.Context, s storage.Store, policy string, version int64, files []File, made *MadeDelta,
	allow ...string) (*Published, error) {
	published, err := publishFrom(ctx, s, policy, version, files, made, allow)
	if err != nil {
		return nil, fmt.Errorf("publish policy %s, version %d: %w", policy, version, err)
	}
	return published, nil
}

func publishFrom(ctx context.Context, s storage.Store, policy string, version int64, files []File, made *MadeDelta,
	allow []string) (*Published, error) {
	if err := checkFileNames(policy, version, files); err != nil {
		return nil, err
	}
	admitted, seen := make([]File, len(files)), inspection{allow: allow}
	for i, file := range files {
		ref, err := admit(ctx, s, policy, file, &seen)
		if err != nil {
			return nil, &FileError{file, err}
		}
		admitted[i] = File{Name: file.Name, Ref: ref}
	}
	checkpoint, err := seen.judge()
	if err != nil {
		return nil, err
	}
	if err := seen.follows(ctx, s, policy, version, checkpoint); err != nil {
		return nil, err
	}
	return publish(ctx, s, policy, version, admitted, made)
}

// publish makes a version of verified files visible.
func publish(ctx context.Context, s storage.Store, policy string, version int64, files []File,
	made *MadeDelta) (*Published, error) {
	m := &Manifest{Policy: policy, Version: version, Format: FormatFull, Base: -1, Files: files}
	data, err := m.encode()
	if err != nil {
		return nil, err
	}
	m, ref, err := putManifest(ctx, s, m, data)
	if err != nil {
		return nil, err
	}
	published := &Published{Manifest: m, Ref: ref}
	published.Delta, published.NoDelta = addDelta(ctx, s, m, made) // before anybody learns of the version
	if published.Current, err = advance(ctx, s, policy, pointer{Version: version, Manifest: ref}); err != nil {
		return nil, fmt.Errorf("move the pointer: %w", err)
	}
	return published, nil
}

// CheckNames verifies the names of what is to be published, before anything is read.
func CheckNames(policy string, version int64, names []string) error {
	if err := checkNames(policy, version); err != nil {
		return err
	}
	if len(names) > maxFiles {
		return fmt.Errorf("%d files (limit %d)", len(names), maxFiles)
	}
	seen, tensors := map[string]bool{}, false
	for _, name := range names {
		extension := path.Ext(name)
		if !fileName.MatchString(name) || extension == "" || extension == "." || name == manifestName || seen[name] {
			return fmt.Errorf("file name %.140q: want letters, digits and ._-, with an extension, once, and not %s",
				name, manifestName)
		}
		seen[name] = true
		tensors = tensors || extension == tensorsExtension
	}
	if !tensors {
		return errNoTensors
	}
	return nil
}

func checkFileNames(policy string, version int64, files []File) error {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = file.Name
	}
	return CheckNames(policy, version, names)
}

// tensorsExtension is that of the files whose structure is verified.
const tensorsExtension = ".safetensors"

// ErrStructure means that a file of tensors is not what its header says.
var ErrStructure = errors.New("not a safetensors file whose header fits its bytes")

// structureError is an ErrStructure that says what is wrong.
type structureError struct{ error }

func (e structureError) Unwrap() error        { return e.error }
func (e structureError) Is(target error) bool { return target == ErrStructure }

// validate verifies the structure of a file of tensors. It reads the header only.
func validate(r io.ReaderAt, size int64) (*safetensors.Header, error) {
	header, err := safetensors.Validate(r, size, maxPublishedHeader)
	if errors.Is(err, storage.ErrCorrupt) {
		err = structureError{err}
	}
	return header, err
}

// maxPublishedHeader bounds the headers of what is published, in bytes: parsing one
// takes several times its size.
const maxPublishedHeader = 16 << 20

// Reveal makes a version visible whose files have been copied into a store: by its manifest, byte
// for byte as it was published elsewhere, and then by the pointer, which moves forward only. It
// gives the version that is current then. storage.ErrExists where the version has another manifest.
func Reveal(ctx context.Context, s storage.Store, policy string, version int64,
	manifest []byte) (current int64, err error) {
	m, err := decodeManifest(manifest, policy, version)
	if err == nil {
		var ref storage.Ref
		if _, ref, err = putManifest(ctx, s, m, manifest); err == nil {
			current, err = advance(ctx, s, policy, pointer{Version: version, Manifest: ref})
		}
	}
	if err != nil {
		return 0, fmt.Errorf("reveal policy %s, version %d: %w", policy, version, err)
	}
	return current, nil
}

// putManifest writes a manifest, and gives what is there then: another program may have written
// the same in other bytes.
func putManifest(ctx context.Context, s storage.Store, m *Manifest, data []byte) (*Manifest, storage.Ref, error) {
	key := ManifestKey(m.Policy, m.Version)
	if len(data) > storage.MaxPointer {
		return nil, storage.Ref{}, fmt.Errorf("manifest: %w: %d bytes (limit %d)", storage.ErrTooLarge,
			len(data), storage.MaxPointer)
	}
	err := s.PutIfAbsent(ctx, key, data)
	if errors.Is(err, storage.ErrExists) {
		present, stored, loadErr := readManifest(ctx, s, m.Policy, m.Version)
		if loadErr != nil {
			return nil, storage.Ref{}, fmt.Errorf("the manifest that is there: %w", loadErr)
		}
		if !m.same(present) {
			return nil, storage.Ref{}, fmt.Errorf("the version was published before with other content: %w", err)
		}
		m, data, err = present, stored, nil
	}
	return m, storage.Ref{Key: key, SHA256: storage.Digest(data), Size: int64(len(data))}, err
}

// advance moves the pointer to a version unless it is there or further already, and gives the
// version that it names then.
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

// Fetch reads the files of a version into memory, at most storage.MaxObject bytes together, and
// verifies their digests and, of tensors, their structure. storage.ErrNotFound when the version was
// not published; storage.ErrCorrupt when the bytes are others.
func Fetch(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, []Content, error) {
	m, err := FetchManifest(ctx, s, policy, version)
	if err != nil {
		return nil, nil, err
	}
	names, total := make([]string, len(m.Files)), int64(0)
	for i, file := range m.Files {
		names[i], total = file.Name, total+file.Size
	}
	if err = CheckNames(policy, version, names); err == nil && total > storage.MaxObject {
		err = fmt.Errorf("%w: %d bytes in %d files (limit %d)", storage.ErrTooLarge, total,
			len(m.Files), storage.MaxObject)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("fetch policy %s, version %d: %w", policy, version, err)
	}
	files := make([]Content, len(m.Files))
	for i, file := range m.Files {
		data, err := storage.GetBlob(ctx, s, file.Ref)
		if err != nil {
			return nil, nil, fmt.Errorf("fetch policy %s, version %d: %w", policy, version, err)
		}
		files[i] = Content{Name: file.Name, Data: data}
	}
	for _, file := range files {
		if path.Ext(file.Name) != tensorsExtension {
			continue
		}
		if _, err := validate(bytes.NewReader(file.Data), int64(len(file.Data))); err != nil {
			return nil, nil, fmt.Errorf("fetch policy %s, version %d: file %s: %w", policy, version, file.Name, err)
		}
	}
	return m, files, nil
}
