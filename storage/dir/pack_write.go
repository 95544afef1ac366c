package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

var _ storage.Packer = (*Store)(nil)

// packWriter appends to the pack of this process. Objects that are put at the same time are
// written, and synced, together: while one group is synced the next one gathers.
type packWriter struct {
	queueMu sync.Mutex
	queue   []*waiting
	// turn is taken by who writes, and the members below are its own.
	turn chan struct{}
	file *os.File
	own  *pack
	size int64
	used time.Time
}

// waiting is an object on its way into a pack.
type waiting struct {
	name string
	data []byte
	at   time.Time
	done chan error
}

// maxGroup is how many bytes are written at once.
const maxGroup = 4 << 20

// packsAllowed is there when no process has the store open that knows no packs, or none had when
// it was made. Processes of versions that know none may run beside others while a plane goes
// from one version to another.
const packsAllowed = own + "/packs"

func (s *Store) allowPacks() error {
	file, err := s.root.OpenFile(packsAllowed, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func (s *Store) arePacksAllowed() (bool, error) {
	_, err := s.root.Stat(packsAllowed)
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// PutPacked implements storage.Packer.
func (s *Store) PutPacked(ctx context.Context, key string, data []byte) error {
	if len(data) > MaxPacked || !s.packing {
		return s.Put(ctx, key, data)
	}
	err := storage.ValidateKey(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return s.failed(ctx, "put", key, err)
	}
	// A file at the key comes before what is in a pack.
	if _, err := s.root.Lstat(key); !missing(err) {
		return s.Put(ctx, key, data)
	}
	p := s.packsOf(path.Dir(key))
	there, err := p.holds(path.Base(key), data)
	if err == nil && !there {
		err = p.put(path.Base(key), data)
	}
	return s.failed(ctx, "put", key, err)
}

// holds says whether this process put the object lately, and it is still there.
func (p *packs) holds(name string, data []byte) (bool, error) {
	p.mu.Lock()
	own := slices.ContainsFunc(p.index.places(name), func(at place) bool { return p.numbered[at.pack].own })
	p.mu.Unlock()
	if !own {
		return false, nil
	}
	found, err := p.find(name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	there, err := found.read(0, found.size)
	return bytes.Equal(there, data) && time.Since(found.modified) < storage.RefreshAfter,
		errors.Join(err, found.Close())
}

func (p *packs) put(name string, data []byte) error {
	w := &waiting{name: name, data: data, at: time.Now(), done: make(chan error, 1)}
	p.queueMu.Lock()
	p.queue = append(p.queue, w)
	p.queueMu.Unlock()
	for {
		select {
		case err := <-w.done:
			return err
		case p.turn <- struct{}{}:
			group := p.group()
			err := p.write(group)
			for _, each := range group {
				each.done <- err
			}
			<-p.turn
		}
	}
}

// group takes those that wait.
func (p *packs) group() []*waiting {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	n, size := 0, 0
	for n < len(p.queue) && (n == 0 || size+len(p.queue[n].data) <= maxGroup) {
		size += len(p.queue[n].data)
		n++
	}
	group := p.queue[:n:n]
	p.queue = p.queue[n:]
	return group
}

// write appends objects, and returns when they are on the disk.
func (p *packs) write(group []*waiting) error {
	if len(group) == 0 {
		return nil
	}
	if err := p.prepare(); err != nil {
		return err
	}
	size := 0
	for _, w := range group {
		size += packHead + len(w.name) + len(w.data) + 7
	}
	buffer, records := make([]byte, 0, size), make([]record, 0, len(group))
	for _, w := range group {
		at := p.size + int64(len(buffer))
		buffer = appendRecord(buffer, w.name, w.data, w.at)
		records = append(records, record{name: w.name, at: at, size: int64(len(w.data)), modified: w.at})
	}
	_, err := p.file.WriteAt(buffer, p.size)
	if err == nil {
		err = p.file.Sync()
	}
	if err != nil {
		// Nobody knows what of it is there, so nothing comes behind it.
		return errors.Join(err, p.file.Truncate(p.size), p.abandon())
	}
	p.size += int64(len(buffer))
	p.used = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[p.own.name] != p.own {
		return fmt.Errorf("pack %s was removed", p.own.name)
	}
	for _, r := range records {
		p.add(p.own, r)
	}
	p.own.scanned = p.size
	return nil
}

// prepare makes a pack, unless there is one that still has its name.
func (p *packs) prepare() error {
	if p.file != nil {
		if p.size < maxPack && p.isThere(p.own.name, p.file) {
			return nil
		}
		if err := p.seal(); err != nil {
			return err
		}
	}
	p.store.sealIdle(p)
	if err := p.store.makeFolder(p.folder); err != nil {
		return err
	}
	for range 3 {
		name := rand.Text()
		file, err := p.store.root.OpenFile(path.Join(p.folder, name+packEnding), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(lockExclusive(file), p.store.sync(p.folder)); err != nil {
			return errors.Join(err, file.Close())
		}
		if p.isThere(name, file) { // before it was locked it was nobody's, and could be removed
			p.mu.Lock()
			defer p.mu.Unlock()
			if err := p.refresh(); err != nil { // it may be another folder of that name
				return errors.Join(err, file.Close())
			}
			// The names that were just read may have it already.
			if p.own = p.known[name]; p.own == nil {
				p.own = p.learn(name)
			}
			p.file, p.size, p.own.own = file, 0, true
			return nil
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return errors.New("its packs are removed as soon as they are made")
}

// isThere says whether an open pack has its name.
func (p *packs) isThere(name string, file *os.File) bool {
	named, err := p.store.root.Stat(path.Join(p.folder, name+packEnding))
	if err != nil {
		return false
	}
	mine, err := file.Stat()
	return err == nil && os.SameFile(named, mine)
}

// seal ends the pack, if there is one.
func (p *packs) seal() error {
	if p.file == nil {
		return nil
	}
	_, err := p.file.WriteAt(appendRecord(nil, "", nil, time.Now()), p.size)
	return errors.Join(err, p.abandon())
}

// abandon lets the pack be as it is.
func (p *packs) abandon() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.file.Close()
	p.own.own, p.file, p.own = false, nil, nil
	return err
}

// idle is how long a pack stays open to which nothing is added.
const idle = time.Minute

// sealIdle ends the packs of other folders to which nothing was added for some time.
func (s *Store) sealIdle(but *packs) {
	for _, p := range s.allPacks() {
		if p == but {
			continue
		}
		select {
		case p.turn <- struct{}{}:
			if p.file != nil && time.Since(p.used) > idle {
				_ = p.seal() // readers check the records of one without an end
			}
			<-p.turn
		default:
		}
	}
}

// closePacks ends all packs.
func (s *Store) closePacks() error {
	var err error
	for _, p := range s.allPacks() {
		p.turn <- struct{}{}
		err = errors.Join(err, p.seal())
		<-p.turn
		p.mu.Lock()
		p.forget()
		p.mu.Unlock()
	}
	return err
}

func (s *Store) allPacks() []*packs {
	s.packsMu.Lock()
	defer s.packsMu.Unlock()
	return slices.Collect(maps.Values(s.packs))
}
