// Package fetch lays published versions of a policy into a folder from which
// inference servers load them.
//
//	DIR/v000012/          a version: the files that were published, all verified, and rondo.json, which says what they are
//	DIR/current           a link to the newest of them
//	DIR/.v000013.part/    what has been read so far of the next one
//	DIR/.v000012.from000011/  the elements that differ between two versions, where a server sets these alone
//	DIR/.rates.json       how fast the last versions were read and made of deltas
//
// A version appears by one rename when all its bytes are verified and on the disk, so that a reader
// of the folder never sees a part of one.
package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/durable"
	"github.com/rondo-rl/rondo/weights"
)

// ErrInUse means that another process fetches into the folder.
var ErrInUse = errors.New("another process fetches into the folder")

// Names in a folder. Those that begin with a dot cannot be those of published files.
const (
	currentLink = "current"
	lockName    = ".lock"
	aboutName   = "rondo.json"
)

var versionName = regexp.MustCompile(`^v(\d{6,18})$`)

// Version is a version that lies whole in a folder.
type Version struct {
	Policy  string         `json:"policy"`
	Version int64          `json:"version"`
	Digest  string         `json:"digest"` // of the manifest
	Files   []weights.File `json:"files"`
	// Dir is where it lies, as an absolute path.
	Dir string `json:"-"`

	// What Fetch has done: the bytes that it read, those among them that a near store gave, and
	// how many deltas led to the version; 0: its files were read whole, and Whole says why where
	// deltas led to it: they are of no use, or slower. Refused says which near store gave other
	// bytes than were published.
	Read    int64  `json:"-"`
	Near    int64  `json:"-"`
	Deltas  int    `json:"-"`
	Whole   string `json:"-"`
	Refused string `json:"-"`
}

// Bytes is the size of the version's files.
func (v *Version) Bytes() (sum int64) {
	for _, f := range v.Files {
		sum += f.Size
	}
	return sum
}

// Folder is a folder that this process alone writes to.
type Folder struct {
	dir    string
	policy string
	lock   *os.File
	piece  int64 // what is read at once
	least  int64 // bytes that tell a rate
	near   []NearStore
	wait   time.Duration // for what the near stores lack

	changing sync.Mutex
	made     map[[2]string]*Changes // by the digests of both versions
}

// Open takes a folder for one policy; ErrInUse while another process has it. The kernel gives it
// back however the process ends.
func Open(dir, policy string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, policy: policy, lock: lock, piece: pieceSize, least: leastMeasured,
		made: map[[2]string]*Changes{}}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	for _, n := range f.numbers() { // a folder of another policy has the same names with other weights
		if v, err := f.Have(n); err == nil && v.Policy != policy {
			lock.Close()
			return nil, fmt.Errorf("%s holds versions of policy %s: give %s a folder of its own", dir, v.Policy, policy)
		}
	}
	return f, nil
}

// Close gives the folder back. The versions stay.
func (f *Folder) Close() error { return f.lock.Close() }

func (f *Folder) path(version int64) string {
	return filepath.Join(f.dir, fmt.Sprintf("v%06d", version))
}

func (f *Folder) partPath(version int64) string {
	return filepath.Join(f.dir, fmt.Sprintf(".v%06d.part", version))
}

// filesPath is where the files of a part lie, and marksPath where it is noted which
// pieces of them have been read.
func (f *Folder) filesPath(version int64) string { return filepath.Join(f.partPath(version), "files") }
func (f *Folder) marksPath(version int64) string { return filepath.Join(f.partPath(version), "pieces") }

// numbers are the versions in the folder, the newest first.
func (f *Folder) numbers() (found []int64) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if match := versionName.FindStringSubmatch(e.Name()); match != nil && e.IsDir() {
			if n, err := strconv.ParseInt(match[1], 10, 64); err == nil {
				found = append(found, n)
			}
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	return found
}

// Have gives a version that lies in the folder, with fs.ErrNotExist where it does not.
func (f *Folder) Have(version int64) (*Version, error) {
	v := &Version{Dir: f.path(version)}
	data, err := os.ReadFile(filepath.Join(v.Dir, aboutName))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err == nil && v.Version != version {
		err = fmt.Errorf("%s says that it is version %d", v.Dir, v.Version)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Current is the version to which the folder's link points, with
// fs.ErrNotExist where there is none.
func (f *Folder) Current() (*Version, error) {
	target, err := os.Readlink(filepath.Join(f.dir, currentLink))
	if err != nil {
		return nil, err
	}
	match := versionName.FindStringSubmatch(target)
	if match == nil {
		return nil, fmt.Errorf("%s/%s points to %q, which is no version", f.dir, currentLink, target)
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		return nil, err
	}
	return f.Have(n)
}

// publish lets a part appear as a version.
func (f *Folder) publish(v *Version) error {
	part := f.filesPath(v.Version)
	about, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(part, aboutName), append(about, '\n'), 0o644); err != nil {
		return err
	}
	if err := durable.SyncTree(part); err != nil {
		return err
	}
	if err := os.RemoveAll(v.Dir); err != nil { // one without a rondo.json that says what it is
		return err
	}
	if err := os.Rename(part, v.Dir); err != nil {
		return err
	}
	if err := f.point(v); err != nil {
		return err
	}
	return os.RemoveAll(f.partPath(v.Version))
}

// point lets the link point to a version.
func (f *Folder) point(v *Version) error {
	link, next := filepath.Join(f.dir, currentLink), filepath.Join(f.dir, "."+currentLink)
	if at, err := os.Readlink(link); err == nil && at == filepath.Base(v.Dir) {
		return nil
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(v.Dir), next); err != nil {
		return err
	}
	if err := os.Rename(next, link); err != nil {
		return err
	}
	return durable.Sync(f.dir)
}

// Remove deletes the versions behind so many of the newest, but for the one that the link names and
// those that are needed, and what is left of parts. It must not be called while Fetch is at work.
func (f *Folder) Remove(newest int, needed ...int64) error {
	current, err := f.Current()
	if err != nil {
		return err
	}
	needed = append(slices.Clone(needed), current.Version)
	var errs []error
	for i, n := range f.numbers() {
		if i < newest || slices.Contains(needed, n) {
			continue
		}
		// Under another name at once, so that a deletion which is
		// interrupted leaves no half version.
		gone := filepath.Join(f.dir, fmt.Sprintf(".v%06d.old", n))
		errs = append(errs, os.RemoveAll(gone), os.Rename(f.path(n), gone), os.RemoveAll(gone))
	}
	for _, pattern := range []string{".v*.part", ".v*.old"} {
		// a folder with a pattern's letters in its name keeps them
		parts, err := filepath.Glob(filepath.Join(f.dir, pattern))
		errs = append(errs, err)
		for _, part := range parts {
			errs = append(errs, os.RemoveAll(part))
		}
	}
	return errors.Join(append(errs, f.removeChanges())...)
}

// find is a file of a version that lies in the folder with some content; "" for none.
func (f *Folder) find(ref storage.Ref) string {
	for _, n := range f.numbers() {
		v, err := f.Have(n)
		if err != nil {
			continue
		}
		for _, file := range v.Files {
			if file.SHA256 == ref.SHA256 && file.Size == ref.Size {
				return filepath.Join(v.Dir, file.Name)
			}
		}
	}
	return ""
}
