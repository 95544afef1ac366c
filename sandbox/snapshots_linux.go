package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
	"github.com/rondo-rl/rondo/sandbox/internal/loopdisk"
)

// Snapshots keeps snapshots unpacked in a folder, each once and by its digest, for all sandboxes
// that begin with it, also those of other processes that use the folder. Where no overlay can be
// mounted, which takes the host's root, each sandbox gets a copy instead, and the folder stays
// empty; a nil *Snapshots does the same.
type Snapshots struct {
	dir  string
	role Role
	most int64
	// over: more than most is there, as far as is known. To look takes a
	// while where there are many.
	over atomic.Bool
	mu   sync.Mutex
	used map[string]*unpacked // by digest
}

// unpacked is a snapshot that this process uses, or has used and not thrown away.
type unpacked struct {
	mu    sync.Mutex
	users int
	lock  *os.File // while there are users; shared, so that nobody throws the snapshot away
	whole bool     // it was looked through once
}

// Snapshot is what workspaces of sandboxes begin with: see Spec.Snapshot. Whoever has it
// from Use releases it when it makes no more sandboxes with it; those that there are
// hold on to it themselves.
type Snapshot struct {
	fetch   Fetch
	from    *Snapshots // nil: every sandbox gets a copy
	digest  string
	place   *unpacked
	release func()
}

// Release lets the snapshot go. It may be called more than once.
func (s *Snapshot) Release() { s.release() }

// hold keeps the snapshot for one sandbox more.
func (s *Snapshot) hold() (release func()) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	s.place.users++
	return func() { s.from.drop(s.place) }
}

// OpenSnapshots uses a folder, which it makes, for sandboxes of one role; those of another
// get copies. When unpacked snapshots take more than most bytes, those that were not used for
// the longest time and are not used now are thrown away. What a process left there half
// unpacked is cleared away.
func OpenSnapshots(dir string, role Role, most int64) (*Snapshots, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{dir, filepath.Join(dir, scratchPlace), filepath.Join(dir, workspacePlace)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("folder of snapshots: %w", err)
		}
	}
	s := &Snapshots{dir: dir, role: role, most: most, used: map[string]*unpacked{}}
	s.over.Store(true)
	half, err := filepath.Glob(filepath.Join(dir, "*"+halfSuffix))
	if err != nil {
		return nil, err
	}
	for _, name := range half {
		digest := filepath.Base(name[:len(name)-len(halfSuffix)])
		if lock, err := s.tryLock(digest); err == nil {
			err = errors.Join(os.RemoveAll(name), lock.Close())
			if err != nil {
				return nil, fmt.Errorf("folder of snapshots: %w", err)
			}
		}
	}
	return s, nil
}

const (
	halfSuffix = ".half" // of a snapshot that is being unpacked
	lockSuffix = ".lock"
)

// Use makes a snapshot ready, whose archive has a SHA-256 digest and comes from fetch. What
// was unpacked before is looked through once by each process that uses it, and unpacked again
// where it is not what it was.
func (s *Snapshots) Use(ctx context.Context, digest string, fetch Fetch) (*Snapshot, error) {
	if s == nil || os.Geteuid() != 0 {
		return &Snapshot{fetch: fetch, release: func() {}}, nil
	}
	if sum, err := hex.DecodeString(digest); err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("snapshot %.80q: %w: give the SHA-256 of its archive", digest, ErrInvalid)
	}
	s.mu.Lock()
	u := s.used[digest]
	if u == nil {
		u = &unpacked{}
		s.used[digest] = u
	}
	s.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users == 0 {
		err := s.take(ctx, u, digest, fetch)
		// root of a user namespace, or without its rights
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
			return &Snapshot{fetch: fetch, release: func() {}}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", digest, err)
		}
	}
	u.users++
	return &Snapshot{fetch: fetch, from: s, digest: digest, place: u, release: sync.OnceFunc(func() { s.drop(u) })}, nil
}

func (s *Snapshots) drop(u *unpacked) {
	u.mu.Lock()
	u.users--
	unused := u.users == 0
	if unused {
		u.lock.Close()
	}
	u.mu.Unlock()
	if unused && s.over.Load() {
		s.evict()
	}
}

// take makes an unpacked snapshot ready under its lock, which it then shares.
func (s *Snapshots) take(ctx context.Context, u *unpacked, digest string, fetch Fetch) error {
	lock, err := os.OpenFile(s.path(digest, lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = s.ready(ctx, u, digest, fetch, lock)
	if err == nil {
		now := time.Now()
		err = os.Chtimes(lock.Name(), now, now) // who was used last
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	u.lock = lock
	return nil
}

// ready leaves the lock shared. To unpack takes the lock alone, and whoever does not get it at once
// looks again: who has it may be unpacking, and whoever uses the snapshot shares the lock for as
// long as a rollout lasts.
func (s *Snapshots) ready(ctx context.Context, u *unpacked, digest string, fetch Fetch, lock *os.File) error {
	for unpacked, paused := 0, time.Duration(0); unpacked <= mostUnpacked && paused <= mostPaused; {
		if err := flock(ctx, lock, unix.LOCK_SH); err != nil {
			return err
		}
		if _, err := os.Stat(s.path(digest, "")); err != nil {
			u.whole = false
		}
		if u.whole || s.look(digest) == nil {
			u.whole = true
			return nil
		}
		switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK): // and the shared lock is given up
			time.Sleep(lockPause)
			paused += lockPause
			continue
		case err != nil:
			return err
		}
		if s.look(digest) != nil { // nobody else has unpacked it meanwhile
			if err := s.unpack(ctx, digest, fetch); err != nil {
				return err
			}
			unpacked++
		}
		u.whole = true
	}
	return errors.New("it is damaged and in use, or thrown away as often as it is unpacked: the folder of snapshots may use too few bytes")
}

const (
	// mostUnpacked and mostPaused bound the tries to unpack a snapshot that others damage, hold or
	// throw away. To unpack a large one takes as long as it takes.
	mostUnpacked = 3
	mostPaused   = time.Minute
	lockPause    = 10 * time.Millisecond
)

// look compares the unpacked tree with what was written down of it.
func (s *Snapshots) look(digest string) error {
	file, err := os.Open(filepath.Join(s.path(digest, ""), baseName))
	if err != nil {
		return err
	}
	defer file.Close()
	want, err := archive.DecodeBase(file)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(s.path(digest, ""), treeName))
	if err != nil {
		return err
	}
	defer root.Close()
	found, err := archive.Scan(root)
	if err == nil && !found.Equal(want) {
		err = errors.New("it is not what was unpacked")
	}
	return err
}

// unpack unpacks beside the place and moves there what is whole.
func (s *Snapshots) unpack(ctx context.Context, digest string, fetch Fetch) error {
	data, err := fetch(ctx)
	if err != nil {
		return err
	}
	defer data.Close()
	half := s.path(digest, halfSuffix)
	if err := errors.Join(os.RemoveAll(half), os.RemoveAll(s.path(digest, "")),
		os.MkdirAll(filepath.Join(half, treeName), 0o755)); err != nil {
		return err
	}
	sum := sha256.New()
	err = fill(half, io.TeeReader(data, sum), int(s.role.hostUser()))
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != digest {
		err = fmt.Errorf("%w: its archive has another digest", ErrInvalid)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	if err := os.Rename(half, s.path(digest, "")); err != nil {
		return err
	}
	s.evict()
	return nil
}

// fill unpacks an archive into a folder's tree, which becomes the sandbox's user's,
// and writes its base down.
func fill(folder string, data io.Reader, user int) error {
	root, err := os.OpenRoot(filepath.Join(folder, treeName))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := archive.Unpack(root, data); err != nil {
		return err
	}
	base, err := archive.Scan(root)
	if err != nil {
		return err
	}
	for _, name := range append([]string{"."}, base.Names()...) {
		if err := root.Lchown(name, user, hostUser); err != nil {
			return err
		}
	}
	if base, err = archive.Scan(root); err != nil { // the owner is part of what tells a file that was not touched
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, baseName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(base.Encode(file), file.Close())
}

// mount makes the mounts of a sandbox that begins with the snapshot, and opens its base.
func (s *Snapshot) mount(d *loopdisk.Disk, diskBytes int64) ([]*os.File, error) {
	made, err := mountLayers(s.from.dir, s.digest, d, s.from.role.hostUser(), diskBytes)
	if err != nil {
		return nil, err
	}
	base, err := os.Open(filepath.Join(s.from.path(s.digest, ""), baseName))
	if err != nil {
		made.close()
		return nil, err
	}
	return []*os.File{made.scratch, made.workspace, base}, nil
}

func (s *Snapshots) path(digest, suffix string) string { return filepath.Join(s.dir, digest+suffix) }

func (s *Snapshots) tryLock(digest string) (*os.File, error) {
	lock, err := os.OpenFile(s.path(digest, lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// keptSnapshot is a snapshot in the folder.
type keptSnapshot struct {
	digest string
	used   time.Time
	bytes  int64
}

// evict throws snapshots away until those that are left fit, the longest unused first. What cannot
// be thrown away now is left to the next time.
func (s *Snapshots) evict() {
	all, total := s.list()
	defer func() { s.over.Store(total > s.most) }()
	slices.SortFunc(all, func(a, b keptSnapshot) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if total <= s.most {
			return
		}
		lock, err := s.tryLock(k.digest)
		if err != nil {
			continue // it is used
		}
		if os.RemoveAll(s.path(k.digest, "")) == nil {
			total -= k.bytes
		}
		lock.Close() // the file stays: another one of its name would be another lock
	}
}

func (s *Snapshots) list() (all []keptSnapshot, total int64) {
	locks, _ := filepath.Glob(filepath.Join(s.dir, "*"+lockSuffix))
	for _, name := range locks {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		digest := filepath.Base(name[:len(name)-len(lockSuffix)])
		k := keptSnapshot{digest: digest, used: info.ModTime(), bytes: bytesOf(s.path(digest, ""))}
		all, total = append(all, k), total+k.bytes
	}
	return all, total
}

// bytesOf is what an unpacked snapshot takes, 0 where there is none.
func bytesOf(folder string) int64 {
	file, err := os.Open(filepath.Join(folder, baseName))
	if err != nil {
		return 0
	}
	defer file.Close()
	total, _ := archive.BaseBytes(file) // one that cannot be read is unpacked again when it is used
	return total
}
