package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// CacheBytes is what the layers on a machine may take beside those in use.
const CacheBytes = 8 << 30

// Cache keeps layers unpacked in a folder, each once and by its digest, for all processes that use
// the folder. It may be deleted while none does.
type Cache struct {
	dir  string
	most int64
	// removeAll is os.RemoveAll, or a test's that fails half way.
	removeAll func(path string) error
	mu        sync.Mutex
	// whole are the layers that this process has looked through.
	whole map[string]bool
}

// Opened is a layer on this machine. Nobody throws it away before it is closed.
type Opened struct {
	Layer Layer
	// Path is the layer's folder. What mounts it must mount it read-only.
	Path string
	lock *os.File
}

// Close lets the layer go.
func (o *Opened) Close() error { return o.lock.Close() }

// Mount shows the layer in a sandbox, at Folder.
func (o *Opened) Mount() sandbox.Mount { return sandbox.Mount{Source: o.Path, Target: Folder} }

const (
	treeName    = "tree"
	listingName = "listing"
	halfSuffix  = ".half" // of a layer that is being unpacked
	lockSuffix  = ".lock"
	// mostUnpacked bounds the tries to unpack a layer that others throw away meanwhile.
	mostUnpacked = 3
	// patience is how long a process waits for others that unpack a layer.
	patience = 10 * time.Minute
)

// ErrPlatform says that a layer was built for machines of another kind.
var ErrPlatform = errors.New("it is for another platform")

// OpenCache uses a folder, which it makes. When its layers take more than most bytes, those that
// were not used for the longest time are thrown away.
func OpenCache(dir string, most int64) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("folder of agents' layers: %w", err)
	}
	return &Cache{dir: dir, most: most, removeAll: os.RemoveAll, whole: map[string]bool{}}, nil
}

func (c *Cache) path(digest, suffix string) string { return filepath.Join(c.dir, digest+suffix) }

// Open gives the folder of a layer of the store. It is unpacked where it is not there, or is not
// what was unpacked.
func (c *Cache) Open(ctx context.Context, store storage.Store, digest string) (*Opened, error) {
	layer, err := Load(ctx, store, digest)
	if err != nil {
		return nil, err
	}
	if here := runtime.GOOS + "/" + runtime.GOARCH; layer.Platform != here {
		return nil, fmt.Errorf("layer %s of the agent %s: %w: built for %s, and this machine is %s: "+
			"build it on a machine like this one", digest, layer.Profile.Name, ErrPlatform, layer.Platform, here)
	}
	file, err := os.OpenFile(c.path(digest, lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", digest, err)
	}
	if err := c.ready(ctx, store, digest, layer, file); err != nil {
		return nil, errors.Join(fmt.Errorf("layer %s of the agent %s: %w", digest, layer.Profile.Name, err),
			file.Close())
	}
	now := time.Now()
	_ = os.Chtimes(file.Name(), now, now) // when it was used last
	return &Opened{layer, filepath.Join(c.path(digest, ""), treeName), file}, nil
}

// ready leaves the lock shared and the layer whole. Between the lock for itself and the shared one
// another process may throw the layer away.
func (c *Cache) ready(ctx context.Context, store storage.Store, digest string, layer Layer, file *os.File) error {
	for range mostUnpacked {
		if err := lock(ctx, file, false); err != nil {
			return err
		}
		if c.look(digest) {
			return nil
		}
		if err := c.alone(ctx, file); err != nil {
			return err
		}
		if c.look(digest) {
			continue
		}
		if err := c.unpack(ctx, store, digest, layer); err != nil {
			return err
		}
		c.evict(digest)
	}
	return errors.New("other processes throw it away as often as it is unpacked: " +
		"the folder of layers may use too few bytes")
}

// alone takes the lock for this process. Others have a layer that is being unpacked for as long as
// that takes, and one that is in use for hours.
func (c *Cache) alone(ctx context.Context, file *os.File) error {
	patient, cancel := context.WithTimeoutCause(ctx, patience,
		errors.New("it is damaged and in use: wait until no rollout uses it"))
	defer cancel()
	return lock(patient, file, true)
}

// look reports whether the unpacked layer is what it was. A process looks through a layer once.
func (c *Cache) look(digest string) bool {
	want, err := os.ReadFile(filepath.Join(c.path(digest, ""), listingName))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.whole, digest)
		return false
	}
	if !c.whole[digest] {
		found, err := listing(filepath.Join(c.path(digest, ""), treeName))
		c.whole[digest] = err == nil && found.Sum == parseContents(want).Sum
	}
	return c.whole[digest]
}

// contents is what is written down of an unpacked layer.
type contents struct {
	Sum   string `json:"sum"` // of names, modes, sizes, times and links
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

func parseContents(text []byte) (c contents) {
	_ = json.Unmarshal(text, &c) // what is damaged has no sum
	return c
}

// listing describes a tree without reading its files.
func listing(folder string) (contents, error) {
	sum, found := sha256.New(), contents{}
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(name); err != nil {
				return err
			}
		}
		size, changed := int64(0), int64(0)
		if info.Mode().IsRegular() {
			size, changed = info.Size(), info.ModTime().UnixNano()
			found.Files, found.Bytes = found.Files+1, found.Bytes+size
		}
		fmt.Fprintf(sum, "%q %v %d %d %q\n", strings.TrimPrefix(name, folder), info.Mode(), size, changed, link)
		return nil
	})
	found.Sum = hex.EncodeToString(sum.Sum(nil))
	return found, err
}

// clear removes a layer. It leaves its place at once: of a process that is killed meanwhile,
// nothing stays that has a listing and looks whole.
func (c *Cache) clear(digest string) error {
	half := c.path(digest, halfSuffix)
	if err := c.removeAll(half); err != nil {
		return err
	}
	if err := os.Rename(c.path(digest, ""), half); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.removeAll(half)
}

// unpack unpacks beside the place and moves there what is whole.
func (c *Cache) unpack(ctx context.Context, store storage.Store, digest string, layer Layer) (err error) {
	half, place := c.path(digest, halfSuffix), c.path(digest, "")
	if err := errors.Join(c.clear(digest), os.MkdirAll(filepath.Join(half, treeName), 0o755)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(half))
		}
	}()
	for _, folder := range []string{half, filepath.Join(half, treeName)} { // another user looks into it from inside
		if err := os.Chmod(folder, 0o755); err != nil {
			return err
		}
	}
	if err := fill(ctx, store, layer, min(layer.Bytes, MaxBytes), filepath.Join(half, treeName)); err != nil {
		return err
	}
	found, err := listing(filepath.Join(half, treeName))
	if err == nil && (found.Files != layer.Files || found.Bytes != layer.Bytes) {
		err = fmt.Errorf("%w: %d files of %d bytes, where its manifest says %d of %d", storage.ErrCorrupt,
			found.Files, found.Bytes, layer.Files, layer.Bytes)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(found)
	if err == nil {
		err = os.WriteFile(filepath.Join(half, listingName), text, 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(half, place)
}

// errTree says that a tar can be no layer.
var errTree = errors.New("its files can be no layer")

// fill unpacks a layer's tar, which has at most so many bytes. Its bytes are those that the digest
// names, or the end of the stream is an error.
func fill(ctx context.Context, store storage.Store, layer Layer, most int64, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	// The first reading checks sizes and paths, so that nothing is written of a
	// tar that can be no layer.
	check := func(from io.Reader) error {
		err := sandbox.Check(from, most)
		if err != nil && !errors.Is(err, sandbox.ErrSource) {
			err = fmt.Errorf("%w: %w", errTree, err)
		}
		return err
	}
	for _, read := range []func(io.Reader) error{check, func(from io.Reader) error {
		return sandbox.UnpackTo(root,
			from)
	}} {
		from, _, err := parts.Open(ctx, store, layer.Tree, nil)
		if err != nil {
			return err
		}
		if err := errors.Join(read(from), from.Close()); err != nil {
			return err
		}
	}
	return nil
}

// evict throws layers away until the others take no more than the bound, those that were used last
// longest. One that is in use stays.
func (c *Cache) evict(keep string) {
	type heldLayer struct {
		digest string
		bytes  int64
		used   time.Time
	}
	locks, err := filepath.Glob(c.path("*", lockSuffix))
	if err != nil {
		return
	}
	var all []heldLayer
	total := int64(0)
	for _, name := range locks {
		digest := strings.TrimSuffix(filepath.Base(name), lockSuffix)
		text, err := os.ReadFile(filepath.Join(c.path(digest, ""), listingName))
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil {
			continue
		}
		total += parseContents(text).Bytes
		all = append(all, heldLayer{digest, parseContents(text).Bytes, info.ModTime()})
	}
	halves, _ := filepath.Glob(c.path("*", halfSuffix))
	for _, half := range halves { // of a process that was killed
		c.throwAway(strings.TrimSuffix(filepath.Base(half), halfSuffix),
			func(string) error { return c.removeAll(half) })
	}
	slices.SortFunc(all, func(a, b heldLayer) int { return a.used.Compare(b.used) })
	for _, h := range all {
		if total <= c.most {
			return
		}
		if h.digest != keep && c.throwAway(h.digest, c.clear) {
			total -= h.bytes
		}
	}
}

// throwAway removes a layer, or what is left of one, unless it is in use.
func (c *Cache) throwAway(digest string, remove func(digest string) error) bool {
	file, err := os.OpenFile(c.path(digest, lockSuffix), os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer file.Close()
	if alone, err := tryLock(file, true); err != nil || !alone {
		return false
	}
	return remove(digest) == nil
}
