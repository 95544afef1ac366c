// Package weights is a library that publishes policy versions in an object store. It
// needs nothing of the plane.
//
//   - A trainer calls Publish with files in memory, or Upload and PublishFrom with files of any
//     size: they are checked, named by their digests, and become visible at once or not at all.
//   - An inference server calls Current and Fetch, or has package fetch keep a folder at the newest
//     version; package engine tells vLLM and SGLang to load it.
//   - Package delta makes a version of the one before and what has changed; package mirror copies
//     versions from store to store.
//   - Package safetensors reads and writes the files.
package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// FormatFull says that a version's files are all that an inference server needs.
	FormatFull = "full"

	maxFiles = 4096
	// MaxVersion bounds the files of a version together, in bytes.
	MaxVersion = 1 << 40

	manifestName = "manifest.json"
)

var (
	policyName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)
	fileName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// File is what a Manifest says of one file.
type File struct {
	Name string `json:"name"` // as the inference server expects it: model-00001-of-00002.safetensors
	storage.Ref
}

// Manifest lists the files of one policy version.
type Manifest struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Format  string `json:"format"` // FormatFull
	Base    int64  `json:"base"`   // version that the files are a difference to; -1: none
	Files   []File `json:"files"`
}

// pointer is the content of weights/<policy>/current.
type pointer struct {
	Version  int64       `json:"version"`
	Manifest storage.Ref `json:"manifest"`
}

func folder(policy string, version int64) string {
	return fmt.Sprintf("weights/%s/v%06d", policy, version)
}

// ManifestKey is the key of a version's manifest: weights/<policy>/v000012/manifest.json.
func ManifestKey(policy string, version int64) string {
	return folder(policy, version) + "/" + manifestName
}

// PointerKey is the key of the object that names a policy's current version:
// weights/<policy>/current.
func PointerKey(policy string) string { return "weights/" + policy + "/current" }

func checkNames(policy string, version int64) error {
	if !policyName.MatchString(policy) {
		return fmt.Errorf("policy name %.120q: want at most 100 letters, digits and ._-, not beginning with one of .-",
			policy)
	}
	if version < 0 {
		return fmt.Errorf("version %d is negative", version)
	}
	return nil
}

func (m *Manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// same reports whether two manifests of a version name the same files, wherever they lie and in
// whatever order and bytes that is written.
func (m *Manifest) same(other *Manifest) bool {
	contents := map[string]string{}
	for _, file := range m.Files {
		contents[file.Name] = file.SHA256
	}
	for _, file := range other.Files { // both were checked: no name is twice
		if contents[file.Name] != file.SHA256 {
			return false
		}
	}
	return len(m.Files) == len(other.Files) && m.Format == other.Format && m.Base == other.Base
}

// check verifies that a manifest is what its key says, and that its files lie
// where the policy's files lie.
func (m *Manifest) check(policy string, version int64) error {
	switch {
	case m.Policy != policy || m.Version != version:
		return corrupt("it is of policy %.120q, version %d", m.Policy, m.Version)
	case m.Format != FormatFull || m.Base != -1:
		return corrupt("its format is %.40q with base %d; this program reads %q", m.Format, m.Base, FormatFull)
	case len(m.Files) == 0 || len(m.Files) > maxFiles:
		return corrupt("%d files (limit %d)", len(m.Files), maxFiles)
	}
	seen, total := map[string]bool{}, int64(0)
	for _, file := range m.Files {
		if !fileName.MatchString(file.Name) || seen[file.Name] {
			return corrupt("file name %.140q is invalid or appears twice", file.Name)
		}
		seen[file.Name] = true
		if err := file.Validate(); err != nil {
			return corrupt("file %s: %w", file.Name, err)
		}
		if total += file.Size; total > MaxVersion { // each is at most storage.MaxStream, so the sum does not overflow
			return corrupt("its files have more than %d bytes together", int64(MaxVersion))
		}
		if file.Key != FileKey(policy, file.SHA256) {
			return corrupt("file %s lies elsewhere: %s", file.Name, file.Key)
		}
	}
	return nil
}

// Current tells a policy's current version and its manifest's Ref; storage.ErrNotFound
// when none was published.
func Current(ctx context.Context, s storage.Store, policy string) (version int64, manifest storage.Ref, err error) {
	if err := checkNames(policy, 0); err != nil {
		return 0, storage.Ref{}, err
	}
	present, _, err := loadPointer(ctx, s, policy)
	if err != nil {
		return 0, storage.Ref{}, fmt.Errorf("current version of policy %s: %w", policy, err)
	}
	return present.Version, present.Manifest, nil
}

func loadPointer(ctx context.Context, s storage.Store, policy string) (present pointer, etag string, err error) {
	data, etag, err := s.Load(ctx, PointerKey(policy))
	if err != nil {
		return pointer{}, "", err
	}
	if err := json.Unmarshal(data, &present); err != nil {
		return pointer{}, "", corrupt("%s: %w", PointerKey(policy), err)
	}
	if err := present.Manifest.Validate(); err != nil {
		return pointer{}, "", corrupt("%s: %w", PointerKey(policy), err)
	}
	if present.Version < 0 || present.Manifest.Key != ManifestKey(policy, present.Version) {
		return pointer{}, "", corrupt("%s names version %d and %s", PointerKey(policy),
			present.Version, present.Manifest.Key)
	}
	return present, etag, nil
}

// FetchManifest reads and checks the manifest of a version whose files are to be read;
// storage.ErrNotFound when it was not published, ErrCollected when its files are given up.
func FetchManifest(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, error) {
	m, _, err := ReadManifest(ctx, s, policy, version)
	if err != nil {
		return nil, err
	}
	if err := CheckWhole(ctx, s, policy, version); err != nil {
		return nil, fmt.Errorf("policy %s, version %d: %w", policy, version, err)
	}
	return m, nil
}

// ReadManifest is FetchManifest also of a version that was collected, with the bytes that were
// read, of which the manifest's digest is.
func ReadManifest(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, []byte, error) {
	m, data, err := readManifest(ctx, s, policy, version)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest of policy %s, version %d: %w", policy, version, err)
	}
	return m, data, nil
}

func fetchManifest(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, error) {
	m, _, err := readManifest(ctx, s, policy, version)
	return m, err
}

func readManifest(ctx context.Context, s storage.Store, policy string, version int64) (*Manifest, []byte, error) {
	if err := checkNames(policy, version); err != nil {
		return nil, nil, err
	}
	data, _, err := s.Load(ctx, ManifestKey(policy, version))
	if err != nil {
		return nil, nil, err
	}
	m, err := decodeManifest(data, policy, version)
	return m, data, err
}

func decodeManifest(data []byte, policy string, version int64) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, corrupt("%w", err)
	}
	return &m, m.check(policy, version)
}

// errNoTensors says that a version has nothing to load.
var errNoTensors = errors.New("no file ends in .safetensors")

// corrupt makes an error of the kind storage.ErrCorrupt.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %w", storage.ErrCorrupt, fmt.Errorf(format, args...))
}
